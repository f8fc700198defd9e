"""Memory in a process of its own: who loads its library, what grants open there, and what a kill costs."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    MEMORY,
    AgentConfig,
    AgentSpec,
    ExecutionError,
    FunctionModel,
    MemorySettings,
    ModelRequest,
    NewRecord,
    PermissionTier,
    Runtime,
    SessionKind,
    SessionTree,
    ToolContext,
    script_call,
    tool,
)
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.memory import MemoryQuery, Selection
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.journal.replay import read_fact
from sessiontree.models.answers import Answer
from sessiontree.runtime.memory.memory_api import MAX_LOSSES, MemoryApi
from sessiontree.runtime.memory.memory_peers import open_store
from sessiontree.runtime.transport.rpc import get_method
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.testing.force import unwrapped
from tests.behaviour.fact_fixtures import facts_of
from tests.system.backends.ray.misdeed_fakes import Misdeed

pytestmark = pytest.mark.slow

PATIENCE_S = 200.0
SESSIONS, STORES, KILLS = 8, 12, 6


def reply(request: ModelRequest) -> Answer:
    """A branch stores so many records; whoever else is asked ends at once."""
    step = sum(isinstance(message, ToolResultMessage) for message in request.messages)
    if not request.session_id.startswith("main/b"):
        return "done"
    return script_call("memory_store", text=f"{request.session_id}: {step}") if step < STORES else "done"


async def keep(ctx: ToolContext) -> Any:
    """Leave the session's grant in a file, once memory knows it."""
    assert await ctx.require(MEMORY).search(MemoryQuery("planted"))
    return (ctx.workspace_root / "grant").write_text(unwrapped(ctx.status)._link.grant)


async def misuse(ctx: ToolContext) -> Any:
    """Ask memory with the session's own grant and with others; returns what came of it."""
    link = unwrapped(ctx.status)._link
    memory: Any = link.memory()
    own = link.grant
    old = (ctx.workspace_root / "grant").read_text()
    said: dict[str, str] = {}
    for name, grant in (("own", own), ("old", old), ("forged", "f" * 32), ("empty", "")):
        for asked, given in (
            ("search", (MemoryQuery("planted"),)),
            ("store", ((NewRecord("planted"),), "key")),
            ("forget", (Selection(path="src"), "key")),
        ):
            said[f"{asked} {name}"] = await _outcome(getattr(memory, asked)(grant, *given))
    for asked in ("close", "revoked", "ended", "_ensure_open"):
        method = replace(get_method(MemoryApi.search), name=asked)
        said[asked] = await _outcome(memory.port._port.ask(method, (own,)))
    return said


async def _outcome(asking: Any) -> str:
    try:
        await asking
    except SessionTreeError as error:
        return type(error).__name__
    return "done"


def peek(ctx: ToolContext) -> Any:
    """Try to list the place the agent's prompt names."""
    try:
        return os.listdir(ctx.config.prompt)  # noqa: PTH208 - as a hostile tool would
    except OSError as error:
        return type(error).__name__


TOOLS = tuple(Misdeed(body.__name__, body) for body in (keep, misuse, peek))


def obey(request: ModelRequest) -> Answer:
    """Call the tool the task names, then say what came of it."""
    (task, *_) = request.messages
    results = [each for each in request.messages if isinstance(each, ToolResultMessage)]
    return results[-1].text if results else script_call(task.text)


def rows_of(runtime: Runtime) -> RayBackend:
    """Return the backend of a runtime."""
    assert isinstance(runtime.backend, RayBackend)
    return runtime.backend


async def memory_row(runtime: Runtime) -> ActorRow:
    """Return the row of memory's process."""
    (row,) = [row for row in await rows_of(runtime).actors() if row.role == "memory"]
    return row


def state_of(workspace: Path) -> Path:
    """Return a state directory alongside a workspace."""
    return workspace.with_name(f"{workspace.name}-state")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A runtime of its own: its memory may be killed."""
    async with Runtime(state_of(tmp_path), slots=SESSIONS + 1) as runtime, asyncio.timeout(PATIENCE_S):
        yield runtime


async def texts_in(runtime: Runtime, tree_id: str) -> Counter[str]:
    """Return what the closed store of a runtime holds of a tree."""
    settings = MemorySettings()
    store = await open_store(settings, settings.uri_in(runtime.state_dir))
    try:
        records = await store.select(Selection(tree_id=tree_id), None, 10_000)
    finally:
        await store.close()
    return Counter(record.text for record in records)


def has_library(pid: int) -> bool:
    """Whether a process has the store's library mapped, or the one beneath it."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return "/lancedb/" in maps or "/pyarrow/" in maps


def is_there(pid: int) -> bool:
    """Whether a process is there."""
    return Path(f"/proc/{pid}").exists()


async def test_only_memory_loads_its_library(ray_runtime: Runtime, tmp_path: Path) -> None:
    """Neither the supervisor nor any host has the store's library in its process; memory has."""
    async with SessionTree(tmp_path, model=FunctionModel(obey), runtime=ray_runtime) as tree:
        await tree.main.call("memory_store", {"text": "the sky is blue"})
        worker = await tree.main.spawn("worker", "session_status")
        await worker.result()
        rows = [row for row in await rows_of(ray_runtime).actors() if row.pid]
        loaded = {row.role for row in rows if has_library(row.pid)}
        assert loaded == {"memory"}
        assert {"supervisor", "memory", "acting", "observing"} <= {row.role for row in rows}


@tool(tier=PermissionTier.READ_ONLY, kinds=set(SessionKind))
def own_library() -> str:
    """Use libraries that Ray would have loaded; say which it had not, and whether garbage is collected."""
    absent = [name for name in ("pyarrow", "requests", "urllib3", "jsonschema") if name not in sys.modules]
    real, of_ray = importlib.import_module("requests"), sys.modules["ray._private.state"].requests
    used = [of_ray.get is real.get, importlib.import_module("jsonschema").validate({}, {}) is None]
    return f"{len(importlib.import_module('pyarrow').array([1, 2]))} {gc.isenabled()} {absent} {used}"


async def test_tool_may_import_what_its_process_started_without(runtime: Runtime, tmp_path: Path) -> None:
    """A host starts without what it does not need and collects no garbage; a tool finds both as usual.

    Not in the run's own runtime: what its tool loads stays in the host, and other tests look for that.
    """
    model = FunctionModel(obey)
    async with SessionTree(tmp_path, model=model, tools=[own_library], runtime=runtime) as tree:
        worker = await tree.main.spawn("worker", "own_library")
        absent = ["pyarrow", "requests", "urllib3", "jsonschema"]
        assert (await worker.result()).summary == f"2 True {absent} {[True, True]}"


@pytest.mark.covers("A33")
async def test_worker_searches_and_other_grants_open_nothing(ray_runtime: Runtime, tmp_path: Path) -> None:
    """A Worker's own grant finds; to write, forged, or of an ended session, a grant opens nothing."""
    async with SessionTree(tmp_path, model=FunctionModel(obey), tools=TOOLS, runtime=ray_runtime) as tree:
        await tree.main.call("memory_store", {"text": "planted before", "source": "src/a.py"})
        await (await tree.main.spawn("branch", "keep")).result()
        said = (await (await tree.main.spawn("worker", "misuse")).result()).summary
        refused = dict.fromkeys(("old", "forged", "empty"), "SessionClosed")
        whose = {"search": "done", "store": "PermissionDenied", "forget": "PermissionDenied"}
        expected = {f"{asked} own": came for asked, came in whose.items()}
        expected |= {f"{asked} {name}": came for asked in whose for name, came in refused.items()}
        expected |= dict.fromkeys(("close", "revoked", "ended", "_ensure_open"), "PermissionDenied")
        assert json.loads(said) == expected
        found: Any = (await tree.main.call("memory_search", {"query": "planted"})).details
        assert [hit["session"] for hit in found["details"]["hits"]] == ["main"]


async def test_store_elsewhere_is_hidden_from_workers(tmp_path: Path) -> None:
    """A Worker's process can't look into it, wherever the owner put it."""
    workspace, kept = tmp_path / "workspace", tmp_path.with_name(f"{tmp_path.name}-kept")
    place = kept / "memory"
    workspace.mkdir()
    kept.mkdir()  # before any host starts: what appears next to a hidden place later is hidden anyway
    settings = MemorySettings(uri=str(place))
    agents = {"default": AgentSpec(config=AgentConfig(prompt=str(place)))}
    async with (
        Runtime(tmp_path / "state", memory=settings) as runtime,
        SessionTree(
            workspace, model=FunctionModel(obey), tools=TOOLS, agents=agents, runtime=runtime
        ) as tree,
    ):
        await tree.main.call("memory_store", {"text": "the sky is blue"})
        assert any(place.iterdir())
        assert (await (await tree.main.spawn("worker", "peek")).result()).summary == "PermissionError"


@pytest.mark.covers("C6")
@pytest.mark.long
async def test_kills_lose_and_double_nothing(runtime: Runtime, tmp_path: Path) -> None:
    """Eight sessions store at once; memory is killed six times: every record is there, once."""
    async with SessionTree(tmp_path, model=FunctionModel(reply), runtime=runtime) as tree:
        branches = [await tree.main.spawn("branch", f"store {n}") for n in range(SESSIONS)]
        stored = kills = 0
        killed: set[int] = set()
        async for record in tree.events():
            stored += record.session != "" and isinstance(read_fact(record.text), CallResolved)
            if kills < KILLS and stored > kills * (SESSIONS * STORES - SESSIONS) // KILLS:
                row = await memory_row(runtime)
                if row.pid and row.pid not in killed:
                    os.kill(row.pid, signal.SIGKILL)
                    killed.add(row.pid)
                    kills += 1
            if stored == SESSIONS * STORES:
                break
        assert kills == KILLS
        assert [(await branch.result()).status for branch in branches] == ["completed"] * SESSIONS
        for branch in branches:
            outcomes = await facts_of(tree, CallResolved, branch.session_id)
            assert [fact.outcome for fact in outcomes] == ["ok"] * STORES
        tree_id = tree.tree_id
    await runtime.close()
    expected = {f"main/b{n}: {step}": 1 for n in range(1, SESSIONS + 1) for step in range(STORES)}
    assert await texts_in(runtime, tree_id) == expected


@pytest.mark.long
async def test_memory_ends_with_its_supervisor_and_is_there_again(runtime: Runtime, tmp_path: Path) -> None:
    """The next supervisor starts another one, which finds what was stored."""
    async with SessionTree(tmp_path, model=FunctionModel(obey), runtime=runtime) as tree:
        await tree.main.call("memory_store", {"text": "the sky is up"})
        before = {row.role: row.pid for row in await rows_of(runtime).actors()}
        os.kill(before["supervisor"], signal.SIGKILL)
        await tree.main.call("memory_store", {"text": "the sky is blue"})
        found: Any = (await tree.main.call("memory_search", {"query": "sky"})).details
        assert len(found["details"]["hits"]) == 2
        assert (await memory_row(runtime)).pid != before["memory"]
        assert not is_there(before["memory"])


async def kill_until(done: asyncio.Future[Any], runtime: Runtime) -> None:
    """Kill memory whenever it has begun, until something is done."""
    killed: set[int] = set()
    while not done.done():
        row = await memory_row(runtime)
        if row.pid and row.pid not in killed:
            os.kill(row.pid, signal.SIGKILL)
            killed.add(row.pid)
        await asyncio.wait([done], timeout=0.02)


@pytest.mark.long
async def test_memory_that_is_killed_each_time_fails_the_call_alone(runtime: Runtime, tmp_path: Path) -> None:
    """The tool says why; the tree goes on, and so does memory once it is left alone."""
    async with SessionTree(tmp_path, model=FunctionModel(obey), runtime=runtime) as tree:
        await tree.main.call("memory_store", {"text": "the sky is up"})
        storing = asyncio.ensure_future(tree.main.call("memory_store", {"text": "the sky is blue"}))
        killing = asyncio.ensure_future(kill_until(storing, runtime))
        with pytest.raises(ExecutionError, match=f"lost {MAX_LOSSES} times over this call"):
            await storing
        await killing
        assert await tree.main.send("session_status")
        found = await tree.main.call("memory_search", {"query": "sky"})
        assert "the sky is up" in found.text
