"""Memory: who finds what, what outlives a tree, and what happens without memory."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    ExecutionError,
    FunctionModel,
    MemorySettings,
    ModelRequest,
    PermissionDenied,
    SessionHandle,
    script_call,
)
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import asked, results
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Sleeper

SEARCH = {"tool": "memory_search", "query": "sky", "max_results": 50}


def reply(request: ModelRequest) -> Answer:
    """Make the calls a task names, one a turn, then wait for children and end."""
    (task, *heard) = [message for message in request.messages if isinstance(message, UserMessage)]
    step = sum(isinstance(message, ToolResultMessage) for message in request.messages)
    steps: list[dict[str, Any]] = json.loads(task.text) if task.text.startswith("[") else []
    if step < len(steps):
        return script_call(
            steps[step]["tool"], **{key: value for key, value in steps[step].items() if key != "tool"}
        )
    spawned = sum(each["tool"] == "sessions_spawn" for each in steps)
    return "waiting" if len(heard) < spawned else "done"


MODEL = FunctionModel(reply)


def store(text: str, **more: Any) -> dict[str, Any]:
    """Return a step that stores a text."""
    return {"tool": "memory_store", "text": text, **more}


async def found_by(session: SessionHandle) -> list[str]:
    """Return whose records a session finds."""
    reply = await session.call("memory_search", {"query": "sky", "max_results": 50})
    return sessions_in(reply.details)


def sessions_in(details: Any) -> list[str]:
    """Return whose records a search found."""
    return sorted(hit["session"] for hit in details["details"]["hits"])


async def run(parent: SessionHandle, kind: Any, steps: list[dict[str, Any]]) -> SessionHandle:
    """Have a child make calls, and wait for its end."""
    child = await parent.spawn(kind, json.dumps(steps))
    assert (await child.result()).status == "completed"
    return child


@pytest.mark.covers("A19", "MEM3")
@pytest.mark.slow
async def test_session_finds_its_own_and_what_those_above_it_stored(open_tree: Opener) -> None:
    """Neither siblings nor parents see what a branch stored; its children do, Workers too."""
    async with open_tree(MODEL) as tree:
        await tree.main.call("memory_store", {"text": "the sky is up"})
        below = json.dumps([SEARCH])
        spawn = {"tool": "sessions_spawn", "kind": "worker", "task": below}
        first = await run(tree.main, "branch", [store("the sky is blue"), spawn, SEARCH])
        second = await run(tree.main, "branch", [SEARCH])
        assert sessions_in(results(tree, first.session_id)[2].details) == ["main", "main/b1"]
        assert sessions_in(results(tree, "main/b1/w1")[0].details) == ["main", "main/b1"]
        assert sessions_in(results(tree, second.session_id)[0].details) == ["main"]
        assert await found_by(tree.main) == ["main"]


@pytest.mark.slow
async def test_later_trees_find_what_a_finished_one_left(open_tree: Opener, tmp_path: Path) -> None:
    """All of it, by Mains of the same agent and workspace; nothing of a tree that was cancelled."""
    other = tmp_path / "other"
    other.mkdir()
    async with open_tree(MODEL) as tree:
        await run(tree.main, "branch", [store("the sky is blue", source="sky.md#L1-L2")])
        await tree.main.call("memory_store", {"text": "the sky is up"})
        if open_tree.shared is not None:
            async with open_tree(MODEL) as beside:
                assert await found_by(beside.main) == [], "it has not finished"
        await tree.finish("done")
    async with open_tree(MODEL) as tree:
        assert await found_by(tree.main) == ["main", "main/b1"]
        await tree.main.call("memory_store", {"text": "the sky falls"})
        await tree.cancel()
    async with open_tree(MODEL) as tree:
        assert await found_by(tree.main) == ["main", "main/b1"]
        shown = await tree.main.call("memory_get", {"path": "sky.md", "from": 2, "lines": 5})
        assert "the sky is blue" in shown.text
        assert "sky.md#L1-L2 (free, trust session" in shown.text
    async with open_tree(MODEL, workspace=other) as tree:
        assert await found_by(tree.main) == []


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_tree_that_finished_without_memory_left_what_it_stored(open_tree: Opener) -> None:
    """Who opens the store next asks the journal which of its trees have finished since."""
    async with open_tree(MODEL) as tree:
        await tree.main.call("memory_store", {"text": "the sky is up"})
    async with await open_tree.resume(tree.tree_id, MODEL) as tree:
        await tree.finish("done")
    async with open_tree(MODEL) as tree:
        assert await found_by(tree.main) == ["main"]


@pytest.mark.slow
@pytest.mark.parametrize("approve", [False, True])
async def test_forgetting_is_what_a_person_allows(open_tree: Opener, approve: bool) -> None:
    """After a no everything is there, after a yes it is found by nobody."""
    async with open_tree(MODEL) as tree:
        for text in ("the sky is up", "the sky is blue"):
            await tree.main.call("memory_store", {"text": text, "source": "sky.md"})
        forgetting = asyncio.ensure_future(tree.main.call("memory_forget", {"path": "sky.md"}))
        (request,) = await asked(tree)
        if approve:
            await request.approve()
            assert (await forgetting).output == {"status": "forgotten", "count": 2}
        else:
            await request.deny()
            with pytest.raises(PermissionDenied, match="denied"):
                await forgetting
        assert len(await found_by(tree.main)) == (0 if approve else 2)


@pytest.mark.slow
async def test_sessions_that_store_at_once_lose_and_double_nothing(open_tree: Opener) -> None:
    """Eight branches, five records each: all are there once, under whom they belong to."""
    steps = [store(f"the sky, {number}") for number in range(5)]
    async with open_tree(MODEL) as tree:
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(run(tree.main, "branch", steps))
        await tree.finish("done")
    async with open_tree(MODEL) as tree:
        everybody = await found_by(tree.main)
        assert Counter(everybody) == dict.fromkeys((f"main/b{number}" for number in range(1, 9)), 5)


@pytest.mark.slow
async def test_tree_cancelled_while_it_stores_leaves_memory_at_work(
    open_tree: Opener, board: Switchboard
) -> None:
    """Whatever was under way is there or not; others store and find."""
    steps = [*(store(f"the sky, {number}") for number in range(30)), {"tool": "sleeper"}]
    async with open_tree(MODEL, tools=[Sleeper(board)]) as tree:
        branches = [await tree.main.spawn("branch", json.dumps(steps)) for _ in range(3)]
        async for record in tree.events():
            if record.session == branches[0].session_id and "call_resolved" in record.text:
                break
        assert {line.status for line in await tree.cancel()} == {"cancelled"}
    async with open_tree(MODEL) as tree:
        await tree.main.call("memory_store", {"text": "the sky is still up"})
        assert await found_by(tree.main) == ["main"]


@pytest.mark.own_runtime
async def test_memory_that_can_not_be_opened_is_a_tools_error(open_tree: Opener, tmp_path: Path) -> None:
    """The model learns why, and the tree goes on; so is the program that calls."""
    place = tmp_path / "a-file"
    place.write_text("no directory")
    settings = MemorySettings(uri=str(place))
    steps = [store("the sky is up"), SEARCH, {"tool": "session_status"}]
    async with open_tree(MODEL, memory=settings) as tree:
        branch = await run(tree.main, "branch", steps)
        stored, searched, status = results(tree, branch.session_id)
        assert stored.is_error
        assert searched.is_error
        assert "a-file" in stored.text
        assert not status.is_error
        with pytest.raises(ExecutionError, match="a-file"):
            await tree.main.call("memory_search", {"query": "sky"})
        assert await tree.main.send("[]") == "done"
    assert place.read_text() == "no directory"


@pytest.mark.own_runtime
async def test_store_at_another_place_is_hidden_as_the_state_directory_is(open_tree: Opener) -> None:
    """Tools can't read it beneath the workspace, or the tree is refused before anything is started."""
    place = open_tree.workspace / "kept" / "memory"
    tree = open_tree(MODEL, memory=MemorySettings(uri=str(place)))
    if open_tree.backend == "ray":
        with pytest.raises(Exception, match="is inside the workspace"):
            await tree.start()
        return
    async with tree:
        await tree.main.call("memory_store", {"text": "the sky is up"})
        assert place.is_dir()
        for arguments in ({"path": "kept/memory"}, {"path": "."}):
            with_names = tree.main.call("find", {"pattern": "**/*", **arguments})
            try:
                assert "lance" not in (await with_names).text
            except PermissionDenied:
                assert arguments["path"] == "kept/memory"


@pytest.mark.covers("A23")
@pytest.mark.on_ray
async def test_what_a_reply_says_of_memory_is_in_the_transcript(open_tree: Opener) -> None:
    """The result names the record, and its artifact refers to it."""
    async with open_tree(MODEL) as tree:
        branch = await run(tree.main, "branch", [store("the sky is blue")])
        (message,) = results(tree, branch.session_id)
        stored = json.loads(message.text)
        assert stored["status"] == "stored"
        result = await branch.result()
        assert result.memory_ids == (stored["id"],)
        assert [artifact.uri for artifact in result.artifacts] == [f"memory:{stored['id']}"]
