"""What code in a Worker's process reaches by Ray's own API: the statement JAIL6, and no more."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from sessiontree import PermissionTier, Runtime, ScriptedModel, SessionKind, SessionTree, script_call, tool
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_runtime")]
"""Runtimes of their own, alongside the run's: they share its Ray, whose start takes seconds."""
PATIENCE_S = 200.0
ANSWER_S = 60.0
WAYS = ("itself", "task", "other python", "supervisor", "secrets")


def writing(path: str) -> Callable[..., None]:
    """Return what writes a file, and needs no module of ours where it runs."""

    def write(*_: object) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))

    return write


def supervisor() -> Any:
    """Return the handle of the supervisor's actor that this host holds somewhere."""
    gc.unfreeze()  # a host freezes what it loaded at its start; list that as well
    handles = [each for each in gc.get_objects() if isinstance(each, ActorHandle)]
    (found,) = {each._actor_id.hex(): each for each in handles if "Supervisor" in repr(each)}.values()
    return found


def reached(way: str, path: str) -> str:
    """Try a way, and tell what came of it."""
    if way == "itself":
        writing(path)()
    elif way == "task":
        ray.get(ray.remote(num_cpus=0)(writing(path)).remote(), timeout=ANSWER_S)
    elif way == "other python":
        plain: Any = ray.remote(num_cpus=0, runtime_env={"py_executable": sys.executable})
        ray.get(plain(writing(path)).remote(), timeout=ANSWER_S)
    elif way == "supervisor":
        ray.get(supervisor().__ray_call__.remote(writing(path)), timeout=ANSWER_S)
    else:
        forged = supervisor().ask.remote("a key nobody has", "actors", b"")
        return f"answered {ray.get(forged, timeout=ANSWER_S)!r}"
    return "done"


@tool(tier=PermissionTier.READ_ONLY, kinds=tuple(SessionKind))
def reach(way: str, path: str) -> str:
    """Try to get out.

    Args:
        way: How.
        path: The file that is to be written.
    """
    try:
        return reached(way, path)
    except (OSError, RayError) as error:
        return f"refused: {type(error).__name__}"


async def test_ray_permits_what_is_stated_and_no_more(tmp_path: Path) -> None:
    """The process itself writes nothing; Ray starts others for it, and runs code in the supervisor."""
    ground = tmp_path / "ground"
    ground.mkdir()
    script: list[Answer] = [script_call("reach", way=way, path=str(ground / way)) for way in WAYS]
    model = ScriptedModel({"main": ["well"], "main/w1": [*script, "done"]})
    async with (
        Runtime(tmp_path / "state", slots=2) as runtime,
        SessionTree(ground, model=model, tools=[reach], runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        worker = await tree.main.spawn("worker", "get out")
        assert (await worker.result()).summary == "done"
        told = dict(zip(WAYS, (message.text for message in results(tree, "main/w1")), strict=True))
        assert await tree.main.send("are you well?") == "well"
    assert told["itself"] == "refused: PermissionError"
    assert "PermissionError" in told["task"], "a process that it has started is confined as it is"
    assert told["secrets"].startswith("refused: ")
    assert {each.name for each in ground.iterdir()} == {"other python", "supervisor"}, told
