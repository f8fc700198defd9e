"""On Ray whatever a session's tools left running ends when it leaves its host, and is counted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import uuid
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path

import pytest

from benchmarks.stubborn import KINDS, survivors, until_alive, words
from sessiontree import (
    PermissionTier,
    Runtime,
    ScriptedModel,
    SessionKind,
    SessionStatus,
    SessionTree,
    script_call,
    tool,
)
from sessiontree.models.answers import Answer
from sessiontree.sandbox.process_tree import find_process_identity
from tests.behaviour.fact_fixtures import PATIENCE_S

pytestmark = pytest.mark.slow
EVERY = tuple(SessionKind)


@tool(tier=PermissionTier.READ_ONLY, kinds=EVERY)
def leave(kind: str, mark: str) -> str:
    """Leave processes running; tell a child's exit code, and this process.

    Args:
        kind: Which kind of stubborn processes.
        mark: What they carry.
    """
    subprocess.Popen(words(kind, mark))
    return f"{subprocess.Popen(['/bin/sh', '-c', 'exit 7']).wait()} {os.getpid()}"


@tool(tier=PermissionTier.WORKSPACE)
def crash(mark: str) -> str:
    """Leave a daemon running, and crash.

    Args:
        mark: What it carries.
    """
    subprocess.run(words("daemon", mark), check=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(tier=PermissionTier.READ_ONLY, kinds=EVERY)
def share() -> str:
    """Use shared memory, for which the interpreter runs a process of its own; tell its id, and this one's."""
    memory = shared_memory.SharedMemory(create=True, size=16)
    memory.close()
    memory.unlink()
    tracker = vars(resource_tracker)["_resource_tracker"]
    return f"{tracker._pid} {os.getpid()}"


def new_mark() -> str:
    """Return a mark that nothing carries yet."""
    return f"stubborn-{uuid.uuid4().hex}"


async def said(tree: SessionTree, name: str, **given: str) -> list[str]:
    """Have Main call a tool; return the words of its result."""
    return str((await tree.main.call(name, given)).output).split()


@pytest.mark.covers("STP13")
@pytest.mark.parametrize("kind", [SessionKind.BRANCH, SessionKind.WORKER])
async def test_nothing_is_left_of_a_session_that_ended(
    ray_runtime: Runtime, tmp_path: Path, kind: SessionKind
) -> None:
    """STP13: every kind of stubborn process, of a session that completes."""
    mark = new_mark()
    script: list[Answer] = [*(script_call("leave", kind=each, mark=mark) for each in KINDS), "done"]
    model = ScriptedModel({f"main/{kind.value[0]}1": script})
    async with (
        SessionTree(tmp_path, model=model, tools=[leave], runtime=ray_runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        child = await tree.main.spawn(kind, "leave them")
        assert (await child.result()).status is SessionStatus.COMPLETED
        (line,) = await child.cancel()
        assert line.leftovers >= len(KINDS)
        assert survivors(mark) == []


async def test_what_a_lost_host_left_is_ended_and_counted(ray_runtime: Runtime, tmp_path: Path) -> None:
    """STP13: the reaper outlives it; the session goes on elsewhere, and its receipt knows."""
    mark = new_mark()
    model = ScriptedModel({"main/b1": [script_call("crash", mark=mark), "went on"]})
    async with (
        SessionTree(tmp_path, model=model, tools=[crash], runtime=ray_runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        branch = await tree.main.spawn("branch", "crash")
        assert (await branch.result()).summary == "went on"
        (line,) = await branch.cancel()
        assert line.leftovers >= 1
        assert survivors(mark) == []


async def test_what_belongs_to_the_process_stays(ray_runtime: Runtime, tmp_path: Path) -> None:
    """STP13: the tracker of shared memory stays, and while the session does, so does what its calls left."""
    mark = new_mark()
    async with (
        SessionTree(
            tmp_path, model=ScriptedModel(["here"]), tools=[leave, share], runtime=ray_runtime
        ) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        tracker, host = await said(tree, "share")
        assert await said(tree, "leave", kind="daemon", mark=mark) == ["7", host]
        await until_alive(mark, alive=True)
        assert await said(tree, "share") == [tracker, host]
        assert survivors(mark)
        assert find_process_identity(int(tracker)) is not None
        lines = await tree.cancel()
        assert lines[0].leftovers >= 1
        assert survivors(mark) == []
