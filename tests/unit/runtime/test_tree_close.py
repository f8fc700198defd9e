"""Closing a tree at any moment leaves what it owes to whoever resumes it, and decides nothing."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sessiontree.api.runtime.runtime import Runtime
from sessiontree.api.tree.session_tree import SessionTree
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.values.messages import UserMessage
from sessiontree.journal.journal import Journal
from sessiontree.journal.writer import JournalTask
from sessiontree.models.answers import Answer, script_call
from sessiontree.models.port import ModelRequest
from sessiontree.models.scripted import FunctionModel
from sessiontree.runtime.replay.stored_trees import load_tree
from sessiontree.tree.state.protocol import SpawnAsked

CHILDREN = 6


def answer(request: ModelRequest) -> Answer:
    """Main starts Workers and counts their results; a Worker reads a file and ends."""
    if request.kind is SessionKind.WORKER:
        return "seen" if request.turn > 1 else script_call("read", path="note.txt")
    if request.turn == 1:
        return [
            script_call("sessions_spawn", kind="worker", task=f"look {index}") for index in range(CHILDREN)
        ]
    told = sum(message.to_wire().get("origin") == "child" for message in request.messages)
    return f"{told} of {CHILDREN} came back"


MODEL = FunctionModel(answer)


async def close_after(facts: int, workspace: Path, state: Path, *, shared: bool) -> str:
    """Begin the work and close the tree once so many facts are durable; return the tree's id."""
    runtime = Runtime(state, backend="local") if shared else None
    tree = SessionTree(
        workspace, model=MODEL, state_dir=None if shared else state, runtime=runtime, backend="local"
    )
    await tree.start()
    reply = asyncio.ensure_future(asyncio.wait_for(tree.main.send("go"), None))
    async for record in tree.events():
        if record.seq >= facts:
            break
    await tree.close()
    if runtime is not None:
        # the runtime goes on: what was on its way to the disk arrives there while nobody keeps the tree
        other = SessionTree(workspace, model=MODEL, runtime=runtime)
        async with other:
            await other.main.send("go")
        await runtime.close()
    await asyncio.wait({reply})
    reply.exception()
    return tree.tree_id


async def resumed_to_the_end(tree_id: str, state: Path) -> list[SessionStatus]:
    """Resume the tree, wait until Main has heard every child, and return how all sessions stand."""
    tree = await SessionTree.resume(tree_id, model=MODEL, state_dir=state, backend="local")
    async with tree:
        if not any(isinstance(message, UserMessage) for message in tree.main.history()):
            await tree.main.send("go")
        async for record in tree.events():
            if record.session == "main" and f"{CHILDREN} of {CHILDREN} came back" in record.text:
                break
        return [line.status for line in tree.receipt()]


@pytest.mark.short(6)
@pytest.mark.covers("REL-S47", "STP10")
@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("facts", range(6, 66, 6))
async def test_tree_closed_at_any_moment_decides_nothing(tmp_path: Path, facts: int, shared: bool) -> None:
    """No session ends because its tree was closed, and every child's result comes after the resume."""
    (tmp_path / "note.txt").write_text("a note\n")
    state = tmp_path / "state"
    tree_id = await close_after(facts, tmp_path, state, shared=shared)
    with Journal.open(state, read_only=True) as journal:
        sessions = load_tree(journal, tree_id)[1].sessions.values()
        assert {session.status for session in sessions if not session.is_live} <= {SessionStatus.COMPLETED}
        assert all(session.stop is None for session in sessions)
    statuses = await resumed_to_the_end(tree_id, state)
    assert sorted(statuses) == sorted([SessionStatus.SUSPENDED] + [SessionStatus.COMPLETED] * CHILDREN)


async def test_resumed_tree_has_what_was_decided_just_before_the_close(tmp_path: Path) -> None:
    """STP10: the runtime that closed the tree may still have to write its last facts."""
    written = threading.Event()

    def hold(_: object) -> None:
        written.wait()

    async with Runtime(tmp_path / "state", backend="local") as runtime:
        tree = await SessionTree(tmp_path, model=MODEL, runtime=runtime).start()
        backend: Any = runtime.backend
        controller = backend.core.tree(tree.tree_id)
        backend.core.journal._appender._writer.put(JournalTask(hold, Future()))
        for _ in range(CHILDREN):
            asked = SpawnAsked(controller.now_ms(), "main", SessionKind.WORKER, "look", "handle")
            controller.stimulate(asked, "spawn:test")
        await tree.close()
        resuming = asyncio.create_task(SessionTree.resume(tree.tree_id, model=MODEL, runtime=runtime))
        done, _ = await asyncio.wait({resuming}, timeout=0.2)
        written.set()
        async with await resuming as resumed:
            assert not done
            assert len(resumed.receipt()) == 1 + CHILDREN
