"""A connection's process against hostile servers and kills: bounded, typed, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError, ExecutionError, Timeout
from sessiontree.contracts.handles.mcp import ServerCall, ServerReply
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.mcp.frames import encode_frame
from sessiontree.mcp.pins import pin_listed_tools
from sessiontree.mcp.server_pool import ServerConnection, ServerPool
from sessiontree.mcp.server_process import ServerProcess, ServerUnavailable, start_server
from sessiontree.mcp.server_tools import GivenServer
from sessiontree.mcp.settings import McpServer, ReachedServer, reach
from sessiontree.sandbox.process_tree import list_children

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("hostile_server_program.py")
CALL: dict[str, Any] = {"tool": "one", "arguments": {}}


def hostile(kind: str) -> ReachedServer:
    """Return how to reach a server that misbehaves."""
    return reach(kind, McpServer(command=sys.executable, args=(str(PROGRAM), kind)))


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, over.set)
    try:
        async with asyncio.timeout(60):
            await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_garbage_is_passed_over_and_large_things_are_bounded() -> None:
    """Lines that are no messages change nothing; a large schema is refused by name, a long text is cut."""
    process = ServerProcess("garbage")
    found = await start_server(hostile("garbage"), process)
    tools, refused = pin_listed_tools(found.tools)
    assert (list(tools), list(refused)) == (["one"], ["huge"])
    assert (await process.call(CALL, 20))["reply"]["text"] == "late"
    await process.close()


@pytest.mark.long
async def test_long_result_is_cut() -> None:
    """Text and images have their bounds, and a note says what was left out."""
    process = ServerProcess("huge")
    await start_server(hostile("huge"), process)
    reply = (await process.call(CALL, 20))["reply"]
    assert (len(reply["images"]), len(reply["text"]) < 2**20 + 200) == (16, True)
    assert "24 parts of the result were left out" in reply["text"]
    await process.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["endless", "flood"])
async def test_endless_result_ends_the_connection_and_the_server(kind: str) -> None:
    """The call ends with a typed error; both processes are gone."""
    process = ServerProcess(kind)
    await start_server(hostile(kind), process)
    server, pid = process.server_pid, process.pid
    assert server is not None
    assert pid is not None
    with pytest.raises(ExecutionError, match="whether the call was carried out is unknown"):
        await process.call(CALL, 60)
    await gone(server)
    await gone(pid)
    await process.close()


@pytest.mark.long
async def test_ten_thousand_tools_are_refused() -> None:
    """The listing is bounded; the error says so."""
    process = ServerProcess("many")
    found = await start_server(hostile("many"), process)
    with pytest.raises(ConfigError, match="more than 1,000 tools"):
        pin_listed_tools(found.tools)
    await process.close()


async def test_result_after_the_time_out_reaches_nobody() -> None:
    """The next call of the same connection gets its own result."""
    process = ServerProcess("late")
    await start_server(hostile("late"), process)
    with pytest.raises(Timeout):
        await process.call(CALL, 0.1)
    assert (await process.call(CALL, 30))["reply"]["text"] == "late"
    await process.close()


async def test_server_hears_of_a_call_whose_caller_was_cancelled() -> None:
    """The connection goes on, and the next call is answered."""
    was_called = asyncio.Event()
    process = ServerProcess("silent", on_tools=lambda tools: was_called.set())
    await start_server(hostile("silent"), process)
    calling = asyncio.create_task(process.call(CALL, 60))
    await was_called.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    # A server that did not hear of it would not answer.
    assert (await process.call(CALL, 20))["reply"]["text"] == "late"
    await process.close()


async def test_cancellation_of_a_caller_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is cancelled and gets no error of the server; its call is dropped."""
    is_called, is_dropped = asyncio.Event(), asyncio.Event()

    async def call_for_ever(*_: object) -> ServerReply:
        try:
            is_called.set()
            return await asyncio.Future()
        finally:
            is_dropped.set()

    monkeypatch.setattr(ServerConnection, "call", call_for_ever)
    rows, _ = pin_listed_tools(({"name": "one", "parameters": {"type": "object"}},))
    pool, reached = ServerPool(), hostile("garbage")
    pool.on_tree_opened("t", (GivenServer(reached, {"one": (rows["one"], PermissionTier.READ_ONLY)}),))
    call = ServerCall("garbage", "one", {}, "k", 30)
    calling = asyncio.create_task(pool.call("t", SessionKind.WORKER, call))
    await is_called.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await is_dropped.wait()
    await pool.close()


async def test_connection_outlives_a_listing_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lists too many tools later has none; the connection goes on to answer."""
    is_listed, take = asyncio.Event(), ServerConnection._take_tools

    def take_tools(connection: ServerConnection, rows: tuple[Any, ...]) -> None:
        if len(rows) > 1_000:
            asyncio.get_running_loop().call_soon(is_listed.set)
        take(connection, rows)

    monkeypatch.setattr(ServerConnection, "_take_tools", take_tools)
    connection = ServerConnection(hostile("growing"))
    process = ServerProcess("growing")
    rows, _ = pin_listed_tools((await start_server(hostile("growing"), process)).tools)
    await process.close()
    call = ServerCall("growing", "one", {}, "k", 5)
    assert (await connection.call(rows["one"], call)).text == "late"
    await is_listed.wait()
    try:
        with pytest.raises(ExecutionError, match="offers no usable tool 'one' any more"):
            await connection.call(rows["one"], call)
    finally:
        await connection.close()


@pytest.mark.parametrize("killed", ["connection", pytest.param("server", marks=pytest.mark.long)])
async def test_kill_leaves_no_process_and_the_pool_starts_again(killed: str) -> None:
    """SIGKILL of either process ends the other one; the next call has new ones."""
    pool, reached = ServerPool(), hostile("garbage")
    process = ServerProcess("garbage")
    tools, _ = pin_listed_tools((await start_server(reached, process)).tools)
    await process.close()
    pool.on_tree_opened("t", (GivenServer(reached, {"one": (tools["one"], PermissionTier.READ_ONLY)}),))
    call = ServerCall("garbage", "one", {}, "k", 30)
    assert (await pool.call("t", SessionKind.WORKER, call)).text == "late"
    (before,) = pool.pids()
    server = next(iter(pool.list_server_pids()))
    os.kill(before if killed == "connection" else server, signal.SIGKILL)
    await gone(before)
    await gone(server)
    assert (await pool.call("t", SessionKind.WORKER, call)).text == "late"
    (after,) = pool.pids()
    assert after != before
    await pool.close()
    await gone(after)


async def test_start_whose_caller_left_is_used_and_ended() -> None:
    """The next call uses the process that an abandoned call has started; closing the pool ends it."""
    pool, reached = ServerPool(), hostile("garbage")
    process = ServerProcess("garbage")
    tools, _ = pin_listed_tools((await start_server(reached, process)).tools)
    await process.close()
    pool.on_tree_opened("t", (GivenServer(reached, {"one": (tools["one"], PermissionTier.READ_ONLY)}),))
    call = ServerCall("garbage", "one", {}, "k", 30)
    abandoned = asyncio.ensure_future(pool.call("t", SessionKind.WORKER, call))
    await asyncio.sleep(0.05)
    pool.drop("t", "k")
    with pytest.raises(ExecutionError, match="was dropped"):
        await abandoned
    async with asyncio.timeout(30):
        while not pool.pids():  # noqa: ASYNC110 - nobody waits for this start any more
            await asyncio.sleep(0.01)
    (started,) = pool.pids()
    assert (await pool.call("t", SessionKind.WORKER, call)).text == "late"
    assert pool.pids() == [started]
    await pool.close()
    await gone(started)


async def test_kill_of_both_processes_leaves_none_that_the_server_started() -> None:
    """A script that starts a server and another program: what it started ends with it."""
    script = f"sleep 100000 & {sys.executable} {PROGRAM} garbage; true"
    process = ServerProcess("script")
    await start_server(reach("script", McpServer(command="sh", args=("-c", script))), process)
    server, pid = process.server_pid, process.pid
    assert server is not None
    assert pid is not None
    below = list_children(server)
    assert len(below) == 2
    os.kill(pid, signal.SIGKILL)
    os.kill(server, signal.SIGKILL)
    for each in below:
        await gone(each)
    await process.close()


async def test_program_that_is_no_server_is_unavailable_with_its_last_words() -> None:
    """The error is typed; what the program said is for the owner alone."""
    entry = McpServer(command=sys.executable, args=("-c", "import sys; sys.exit('no such repository')"))
    process = ServerProcess("broken")
    with pytest.raises(ServerUnavailable, match="its process has ended") as raised:
        await start_server(reach("broken", entry), process)
    assert raised.value.said == "no such repository"


@pytest.mark.parametrize(
    "message",
    [{"id": []}, {"id": {}}, {"failed": 7}, {"tools": 7}, {"tools": [7]}],
    ids=["list", "object", "failure", "tools", "rows"],
)
async def test_message_of_no_known_form_ends_the_connection(message: dict[str, Any]) -> None:
    """Whoever waits hears of it, and does not wait until the time is over."""
    ends: list[str] = []
    process = ServerProcess("odd", ends.append, ServerConnection(hostile("garbage"))._on_tools)
    asked = process._asked[1] = asyncio.get_running_loop().create_future()
    reader = asyncio.StreamReader()
    reader.feed_data(encode_frame(message))
    await process._listen(reader)
    assert "not an answer" in ends[0]
    with pytest.raises(ExecutionError, match="was lost during the call"):
        await asked
