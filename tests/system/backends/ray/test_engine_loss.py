"""A Ray that dies under its program: whoever waits is informed, the program lives, and its trees go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sessiontree import EngineLost, SessionTreeError
from sessiontree.backends.ray.client.serialization import dump_value
from sessiontree.backends.ray.client.supervisor_client import SupervisorClient
from sessiontree.backends.ray.engine import engine_home
from sessiontree.backends.ray.engine.engine_servers import (
    MAX_REFUSALS,
    PROBE_EVERY_S,
    PROBE_S,
    EngineWatch,
    JoinedWatch,
    Server,
    find_listener,
)
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.runtime.transport.rpc import RpcResponse
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

PROGRAM_S = 240.0
"""Two starts of a Ray and some seconds; on a machine where everybody starts one at once, longer."""
PATIENCE_S = 60.0
"""Longest time for what takes a moment: it finds whoever waits for ever, on a busy machine too."""
TOLD_S = 10.0
"""After how long, at most, everybody knows that a Ray which was joined is lost, by the times of its watch."""
PROBED_S = 0.3
"""How often a watch looks here."""
LOST = EngineLost("its raylet ended", "resume")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for the names of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)
        # The agents of a Ray that is not ours outlive its raylet by a minute.
        engine_home.end_processes(
            Path(path), grace_s=0.0, known=engine_home.log_writers(Path(path).resolve())
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "whose"),
    [
        pytest.param("gcs_server", "private", marks=pytest.mark.long),
        ("raylet", "private"),
        pytest.param("gcs_server", "joined", marks=pytest.mark.long),
        pytest.param("raylet", "joined", marks=pytest.mark.long),
    ],
)
async def test_everybody_who_waits_is_told_and_the_tree_goes_on(
    server: str, whose: str, tmp_path: Path, short_path: Path
) -> None:
    """Typed errors in time, no plain call blocks, nothing is left or printed, and the next Ray takes over."""
    (tmp_path / "workspace").mkdir()
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.system.backends.ray.loss_program", str(tmp_path), server, whose),
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
        env={**os.environ, "OWN_RAY": str(short_path)},
    )
    try:
        out, complaints = await asyncio.wait_for(running.communicate(), PROGRAM_S)
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert running.returncode == 0, complaints.decode()
    *printed, last = out.decode().splitlines()
    told = json.loads(last)
    waiters = {name: told[name] for name in ("send", "result", "map", "events", "client_calls", "progress")}
    assert {name: error for name, (error, _) in waiters.items()} == dict.fromkeys(waiters, "EngineLost")
    assert max(seconds for _, seconds in waiters.values()) < PATIENCE_S
    assert told["plain"] == ["EngineLost"] * 4
    assert told["later"] == ["EngineLost"] * 2
    assert max(told["plain_s"], told["held_up_s"]) < PATIENCE_S
    assert told["left"] == []
    assert told["again"].startswith("answer")
    if whose == "private":
        assert (printed, complaints.decode()) == ([], "")


def child() -> subprocess.Popen[bytes]:
    """Return a process to be watched."""
    return subprocess.Popen(["sleep", "1000"])


def test_watch_ends_with_the_first_of_its_servers() -> None:
    """The other one lives on."""
    first, second = child(), child()
    watch = EngineWatch([Server("gcs_server", first.pid), Server("raylet", second.pid)])
    try:
        threading.Timer(0.05, second.kill).start()
        assert watch.wait() == f"its raylet (process {second.pid}) ended"
    finally:
        for each in (first, second):
            each.kill()
            each.wait()


def test_watch_knows_of_a_server_that_ended_before() -> None:
    """Nothing is waited for."""
    gone = child()
    gone.kill()
    gone.wait()
    assert EngineWatch([Server("raylet", gone.pid)]).wait() == f"its raylet (process {gone.pid}) ended"


def test_watch_is_stopped_before_it_began_and_after_it_ended() -> None:
    """It leaves no descriptor behind."""
    before = descriptors()
    watch = EngineWatch([])
    watch.stop()
    assert watch.wait() is None
    watch.stop()
    assert descriptors() == before


def descriptors() -> int:
    """Return how many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_gcs_that_answers_nobody_is_lost_within_the_time() -> None:
    """One that answers is not; a single refusal is forgiven. With the usual times everybody knows in time."""
    assert TOLD_S > MAX_REFUSALS * (PROBE_EVERY_S + PROBE_S)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        watch = JoinedWatch([], address, PROBED_S)
        with pytest.raises(TimeoutError):
            watch.lost.result(timeout=PROBED_S * 1.5)
        began = time.monotonic()
    lost = watch.lost.result(timeout=PATIENCE_S)
    assert lost.died == f"the GCS at {address} cannot be reached"
    assert time.monotonic() - began > (MAX_REFUSALS - 1) * PROBED_S * 0.5
    watch.stop()


def test_joined_watch_that_is_stopped_tells_nobody() -> None:
    """Its future is cancelled."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        watch = JoinedWatch([], f"127.0.0.1:{listening.getsockname()[1]}")
        watch.stop()
    assert watch.lost.cancelled()


def test_who_listens_at_a_socket_is_seen(tmp_path: Path) -> None:
    """Nobody does at one that is left over, or was never there."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert find_listener(path) == os.getpid()
    assert find_listener(path) is None
    assert find_listener(tmp_path / "none") is None


class Unheard:
    """A supervisor that never answers but to its opening."""

    def __init__(self, pid: int | None = None) -> None:
        self.ask = self.command = self
        self._pid = pid

    def remote(self, key: str, name: str, data: bytes, turn: Any = None) -> Any:
        """Begin a call."""
        if name == "open":
            opening: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            opening.set_result(dump_value(RpcResponse("first", self._pid)))
            return opening
        return Unanswered()


class Unanswered:
    """An answer that never comes, however it is waited for."""

    def __await__(self) -> Any:
        return asyncio.get_running_loop().create_future().__await__()

    def future(self) -> Future[bytes]:
        """Return it as those wait for it who have no loop."""
        return Future()


async def report(supervisor: SupervisorApi) -> SessionReport:
    """Ask something that is answered at once."""
    return await supervisor.report("tree", "main")


async def test_lost_line_fails_who_waits_and_who_asks_later() -> None:
    """Each gets an error of its own; who was cancelled before stays cancelled."""
    line = SupervisorClient(Unheard(), "key", lambda: True)
    await line.begin()
    waiting = [asyncio.create_task(line.supervisor.result("tree", "main")) for _ in range(3)]
    cancelled = asyncio.create_task(line.supervisor.call("tree", "main", "c1", "write", {}))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.to_thread(line.lose, LOST)
    await asyncio.wait([*waiting, cancelled], timeout=PATIENCE_S)
    errors = [task.exception() for task in waiting]
    assert [str(error) for error in errors] == [str(LOST)] * 3
    assert len({id(error) for error in errors}) == 3
    assert cancelled.cancelled()
    for ask in (line.supervisor.result("tree", "main"), asyncio.to_thread(line.ask_now, report)):
        with pytest.raises(EngineLost):
            await ask
    line.closed()


async def test_plain_question_under_way_fails_with_the_line() -> None:
    """It waits in a thread here; in a program it would hold up the loop."""
    line = SupervisorClient(Unheard(), "key", lambda: True)
    await line.begin()
    asking = asyncio.create_task(asyncio.to_thread(line.ask_now, report))
    await asyncio.sleep(0.05)
    line.lose(LOST)
    with pytest.raises(EngineLost):
        await asyncio.wait_for(asking, PATIENCE_S)


async def test_plain_question_does_not_wait_for_a_dead_supervisor() -> None:
    """It says at once that the supervisor starts again, though that takes long."""
    process = child()
    line = SupervisorClient(Unheard(process.pid), "key", lambda: True)
    await line.begin()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    began = time.monotonic()
    with pytest.raises(SessionTreeError, match="being restarted; try again"):
        line.ask_now(report)
    assert time.monotonic() - began < PATIENCE_S
    line.closed()
