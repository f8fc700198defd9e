"""What doubles share with their tests works alike in coroutines, threads, plain code and other processes."""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterator

import pytest

from tests.behaviour.signal_fixtures import Counter, Flag, Log, Turnstile
from tests.behaviour.switchboard_fixtures import HOST, Remote, Switchboard

PATIENCE_S = 60.0
Way = Callable[[Switchboard], Switchboard | Remote]
WAYS: dict[str, Way] = {"here": lambda board: board, "over the line": lambda board: board.remote}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """How a signal reaches the switchboard."""
    return WAYS[request.param]


@pytest.fixture
def own_board() -> Iterator[Switchboard]:
    """A switchboard of the test's own, which nobody is connected to at the end."""
    board = Switchboard()
    yield board
    assert board.is_quiet(PATIENCE_S)
    board.close()


async def test_flag_lets_everybody_through_who_waits_or_comes_later(own_board: Switchboard, way: Way) -> None:
    """Coroutines and threads alike, once it is set and not before."""
    flag = Flag(way(own_board), "flag")
    waiting = [asyncio.create_task(flag.wait()) for _ in range(3)]
    blocking = asyncio.create_task(asyncio.to_thread(flag.wait_blocking, PATIENCE_S))
    assert not flag.is_set()
    assert not flag.wait_blocking(0.001)
    Flag(own_board, "flag").set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(waiting)
        assert await blocking
        await flag.wait()
    assert flag.wait_blocking()
    flag.set()
    assert flag.is_set()


async def test_turnstile_lets_through_as_many_as_it_was_released_for(
    own_board: Switchboard, way: Way
) -> None:
    """In the order they came; whoever stops waiting uses nothing up."""
    turnstile = Turnstile(way(own_board), "turnstile")
    through: list[int] = []

    async def pass_through(number: int) -> None:
        await turnstile.acquire()
        through.append(number)

    async with asyncio.timeout(PATIENCE_S):
        turnstile.release(2)
        await turnstile.acquire()
        await turnstile.acquire()
        gone = asyncio.create_task(turnstile.acquire())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(gone), 0.01)
        gone.cancel()
        await asyncio.wait({gone})
        if way(own_board) is not own_board:
            assert await asyncio.to_thread(own_board.is_quiet, PATIENCE_S)
        tasks = [asyncio.create_task(pass_through(number)) for number in range(2)]
        turnstile.release()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert len(through) == 1
        turnstile.release()
        await asyncio.wait(tasks)
    assert sorted(through) == [0, 1]


async def test_log_is_the_list_of_what_was_written(own_board: Switchboard, way: Way) -> None:
    """What was written is there when ``append`` returns; values come back as their JSON form."""
    log = Log(way(own_board), "log")
    assert log == []
    holding = asyncio.create_task(log.holds(3))
    log.append("one")
    assert Log(own_board, "log") == ["one"]
    log.append(("two", 2, None))
    await asyncio.to_thread(log.append, "é" * 100_000)
    async with asyncio.timeout(PATIENCE_S):
        assert await holding == log.items() == ["one", ["two", 2, None], "é" * 100_000]
    assert len(log) == 3
    assert "one" in log
    assert log == Log(own_board, "log")
    assert log != ["one"]


async def test_counter_gives_every_caller_another_number(own_board: Switchboard, way: Way) -> None:
    """However many count at a time."""
    counter = Counter(way(own_board), "counter")
    numbers: list[int] = []

    def count() -> None:
        numbers.extend(counter.add() for _ in range(25))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(numbers) == list(range(1, 101))
    assert counter.value() == 100
    assert counter.add(5) == 105


PROGRAM = """
import asyncio, pickle, sys
flag, turnstile, log, counter = pickle.load(sys.stdin.buffer)

async def run():
    log.append("begun")
    waiting = asyncio.create_task(flag.wait())
    counter.add()
    await waiting
    await turnstile.acquire()
    await asyncio.to_thread(log.append, "let through")

asyncio.run(run())
log.append([flag.is_set(), counter.value()])
turnstile.release(2)
"""


async def test_all_of_it_works_from_another_process(own_board: Switchboard) -> None:
    """A coroutine, a thread and plain code of a process that got them pickled."""
    flag, turnstile, log, counter = Flag(own_board), Turnstile(own_board), Log(own_board), Counter(own_board)
    given = pickle.dumps((flag, turnstile, log, counter))
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdin=PIPE)
    assert program.stdin is not None
    program.stdin.write(given)
    program.stdin.close()
    async with asyncio.timeout(PATIENCE_S):
        assert await log.holds(1) == ["begun"]
        flag.set()
        turnstile.release()
        assert await log.holds(3) == ["begun", "let through", [True, 1]]
        await turnstile.acquire()
        await turnstile.acquire()
        assert await program.wait() == 0


async def test_signal_travels_as_a_name(own_board: Switchboard) -> None:
    """Unpickled twice, here or after another trip, it is the same signal; two new ones are two."""
    log = Log(own_board)
    there = pickle.loads(pickle.dumps(log))
    back = pickle.loads(pickle.dumps(there))
    there.append("there")
    back.append("back")
    assert log == ["there", "back"]
    assert Log(own_board) == []


async def test_wrong_token_opens_nothing(own_board: Switchboard) -> None:
    """Whoever does not know the secret is hung up on, and changes nothing."""
    log = Log(own_board, "log")
    with pytest.raises(ConnectionError):
        Log(Remote(own_board.remote.port, "0" * 32), "log").append("x")
    with socket.create_connection((HOST, own_board.remote.port), PATIENCE_S) as line:
        line.sendall(b"nonsense\n")
        assert line.recv(1) == b""
    assert log == []


async def test_whoever_waits_when_it_closes_is_told() -> None:
    """The end of the test ends every wait, and whoever comes later finds nobody."""
    board = Switchboard()
    flag = pickle.loads(pickle.dumps(Flag(board)))
    waiting = asyncio.create_task(flag.wait())
    blocking = asyncio.create_task(asyncio.to_thread(flag.wait_blocking))
    await asyncio.sleep(0)
    board.close()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait({waiting, blocking})
    assert isinstance(waiting.exception(), OSError)
    assert isinstance(blocking.exception(), OSError)
    with pytest.raises(ConnectionError):
        flag.set()


@pytest.mark.slow
def test_quiet_counts_whoever_has_connected(own_board: Switchboard) -> None:
    """A caller that the switchboard has not accepted yet is on the line: it holds a descriptor soon."""
    for _ in range(200):
        with socket.create_connection((HOST, own_board.remote.port), PATIENCE_S):
            assert not own_board.is_quiet(0)
        assert own_board.is_quiet(PATIENCE_S)
