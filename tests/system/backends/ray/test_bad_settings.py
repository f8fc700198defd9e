"""What can't work on Ray is said before anything is started, and with what to do instead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, Runtime, ScriptedModel, SessionTree
from tests.behaviour.effect_fakes import Append

MODEL = ScriptedModel(["hello"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"address": "ray://somewhere:10001"}, "Ray Client"),
        ({"address": "nowhere"}, "give host:port or 'auto'"),
        ({"num_cpus": -1}, "num_cpus is -1"),
        ({"address": "auto", "num_cpus": 2}, "num_cpus=2 is only for a private Ray"),
        ({"max_host_bytes": 1}, "max_host_bytes is 1"),
        ({"kernel_enforcement": "maybe"}, "kernel_enforcement 'maybe'"),
        ({"slots": 0}, "slots is 0"),
        ({"slots": 2.5}, "slots is 2.5; give a whole number"),
        ({"max_host_bytes": "4G"}, "max_host_bytes is .4G.; give a whole number"),
        ({"num_cpus": True}, "num_cpus is True; give a whole number"),
        ({"backend": "local", "num_cpus": 1}, "num_cpus"),
        ({"backend": "abacus"}, "backend 'abacus'"),
        ({"backend": "local", "placement": {"worker": {}}}, "only backend 'ray' takes placement"),
        ({"shards": "per-node", "placement": {"worker": {}}}, "leave one of them out"),
        ({"placement": {"main": {}}}, "placement can't move 'main'"),
    ],
)
def test_setting_that_cannot_be_is_refused(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    """Each names the setting and what would be accepted; nothing is started."""
    with pytest.raises(ConfigError, match=said):
        Runtime(tmp_path, **settings)
    assert not list(tmp_path.iterdir())


async def test_state_inside_the_workspace_is_refused(tmp_path: Path) -> None:
    """It would hide from Workers whatever appears in the workspace later."""
    tree = SessionTree(tmp_path, model=MODEL, state_dir=tmp_path / "state")
    with pytest.raises(ConfigError, match="is inside the workspace"):
        await tree.start()


@pytest.mark.slow
async def test_placement_without_a_cluster_is_refused(ray_runtime: Runtime, tmp_path: Path) -> None:
    """A private Ray has one node; the error says how to reach a cluster."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with pytest.raises(ConfigError, match=r"placement needs a cluster, .*address='auto'"):
        async with Runtime(tmp_path / "placed", placement={"worker": {}}) as runtime:
            await SessionTree(workspace, model=MODEL, runtime=runtime).start()


@pytest.mark.slow
async def test_tool_that_cannot_travel_is_named(ray_runtime: Runtime, tmp_path: Path) -> None:
    """A lock, a connection, a loop: the error says which tool, and the runtime serves others."""
    tool = Append()
    tool.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="can't pickle tool 'append'"):
        await SessionTree(tmp_path, model=MODEL, tools=[tool], runtime=ray_runtime).start()
    async with SessionTree(tmp_path, model=MODEL, tools=[Append()], runtime=ray_runtime) as tree:
        assert await tree.main.send("hi") == "hello"
