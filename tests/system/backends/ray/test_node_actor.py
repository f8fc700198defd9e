"""The program of a supervisor on another node: whom it answers, and what it refuses at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, PermissionDenied, SessionTreeError
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.cluster.node_actor import NodeActor, NodePlan, ProgramFiles
from sessiontree.backends.ray.commands.remote_node import release
from sessiontree.backends.ray.engine.program_copy import ProgramCopies
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from tests.unit.tree.tree_fixtures import config

KEY = "the key of the program"
NOTHING = PackedResources(b"", None)


async def asked(actor: NodeActor, name: str, *given: Any, key: str = KEY) -> Any:
    """Ask the actor as the creating program does."""
    return load_value(await actor.ask(key, name, dump_value(given))).unwrap()


async def test_actor_answers_its_program_alone(tmp_path: Path) -> None:
    """Without the key nothing begins; a question before the beginning is an error and not a crash."""
    plan = NodePlan(tmp_path / "state", release(), {})
    with pytest.raises(PermissionDenied, match="without the key"):
        await asked(NodeActor(KEY), "begin", plan, key="another key")
    assert not (tmp_path / "state").exists()
    with pytest.raises(SessionTreeError, match="has not begun"):
        await asked(NodeActor(KEY), "open_trees")


async def test_node_with_another_release_is_refused_and_claims_nothing(tmp_path: Path) -> None:
    """The error names each release that differs, and only those."""
    ours = release()
    plan = NodePlan(tmp_path / "state", (ours[0], "3.10.1", ours[2]), {})
    with pytest.raises(ConfigError, match=rf"it has Python {ours[1]} instead of 3\.10\.1; install") as found:
        await asked(NodeActor(KEY), "begin", plan)
    assert "Ray" not in str(found.value)
    assert not (tmp_path / "state").exists()


async def test_tree_is_refused_where_its_workspace_is_missing(tmp_path: Path) -> None:
    """The program's node may have a directory that this node does not have."""
    tree = replace(config(), workspace=str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match=r"elsewhere' is not a directory there"):
        await asked(NodeActor(KEY), "open_tree", tree.tree_id, tree, {}, NOTHING, None)


async def test_node_whose_settings_are_refused_leaves_its_journal_to_others(tmp_path: Path) -> None:
    """A claim is given back if the settings are wrong; a second attempt gets the same journal."""
    wrong = NodePlan(tmp_path, release(), {"no_such_setting": 1})
    right = NodePlan(tmp_path, release(), {"enforcement": "best_effort"})
    with pytest.raises(TypeError, match="no_such_setting"):
        await asked(NodeActor(KEY), "begin", wrong)
    actor = NodeActor(KEY)
    assert await asked(actor, "begin", right) == tmp_path
    tree = replace(config(), workspace=str(tmp_path.parent))
    with pytest.raises(SessionTreeError, match="does not have the program's modules"):
        await asked(actor, "open_tree", tree.tree_id, tree, {}, NOTHING, ProgramFiles("unknown", None))
    await asked(actor, "end")


def test_received_program_stays_in_its_directory(tmp_path: Path) -> None:
    """Modules are written below the copy; a path that leads out of it is refused."""
    copies = ProgramCopies(tmp_path / "state")
    try:
        place = copies.received({"package/module.py": b"VALUE = 1\n"})
        assert (place / "package" / "module.py").read_bytes() == b"VALUE = 1\n"
        for name in ("../escaped.py", str(tmp_path / "escaped.py")):
            with pytest.raises(ConfigError, match="leads out of the copy"):
                copies.received({name: b""})
        assert not list(tmp_path.rglob("escaped.py"))
    finally:
        copies.close()
