"""Processes of actors that die while they start: noticed at once, started again, reported, not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import ray

from sessiontree import EngineLost, Runtime, ScriptedModel, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.backends.ray.client.supervisor_client import SupervisorClient
from sessiontree.backends.ray.engine.engine_servers import RAYLET, list_watched_servers
from sessiontree.backends.ray.hosts.process_start import (
    LOOK_S,
    MAX_STARTS,
    MAX_TOLD,
    MAX_UNSEEN_S,
    ActorRestarter,
    FailedStarts,
    StartMonitor,
    StartTimeout,
    end_started,
)
from sessiontree.backends.ray.supervisor_launch import _give_up
from sessiontree.control.client import ControlClient
from sessiontree.sandbox.process_tree import find_process_identity, list_children
from tests.system.house.error_fixtures import has_cause

PATIENCE_S = 60.0
NOTICED_S = 1.0
RAY_PATIENCE_S = 120.0
ROUNDS = 4


class Clock:
    """A clock that goes where it is asked to."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that sleep, under a name and with further words; all end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str = "python", *words: str) -> subprocess.Popen[bytes]:
        code = "import sys; print(flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            [name, "-I", "-S", "-c", code, *words],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        running.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and collect it."""
    process.kill()
    process.wait()


def note_of(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Note a process as the launcher does."""
    found = find_process_identity(process.pid)
    assert found is not None
    with path.open("a") as file:
        file.write(f"{found.pid} {found.started}\n")


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether something that a thread does is done in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return condition()


def watch_of(path: Path, clock: Clock | None = None, pace: StartTimeout | None = None) -> StartMonitor:
    """Return a watch of what this process starts."""
    return StartMonitor(path, os.getpid(), pace or StartTimeout(1.0), clock or Clock())


def test_process_is_seen_before_the_launcher_begins(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The raylet's child that has the note's path among its words, and no other child of it."""
    note = tmp_path / "starts-x-1234"
    watch = watch_of(note)
    other = started("python", str(tmp_path / "starts-y-1234"))
    assert watch.look() is None
    end(other)
    assert watch.look() is None
    own = started("python", f"--context={{'py': '--note {note}'}}")
    assert watch.look() is None
    end(own)
    assert watch.look() == f"its process ({own.pid}) ended while it started"


def test_noted_process_counts_until_ray_knows_it(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Ray gives a process a name before it knows it, and another when it has become an actor."""
    note = tmp_path / "starts-x-1234"
    watch = watch_of(note)
    for name in ("python", "ray::IDLE"):
        process = started(name)
        note_of(note, process)
        assert watch.look() is None
        assert watch.running is None
        end(process)
        assert watch.look() == f"its process ({process.pid}) ended while it started"
        watch.begin()
    process = started("ray::HostActor")
    note_of(note, process)
    assert watch.look() is None
    assert watch.running == find_process_identity(process.pid)
    end(process)
    assert watch.look() is None
    assert watch.running is None


def test_line_half_written_is_no_process_yet(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Nor does it hide the one that was there before."""
    note = tmp_path / "starts-x-1234"
    watch, process = watch_of(note), started("ray::HostActor")
    note_of(note, process)
    with note.open("a") as file:
        file.write("12")
    assert watch.look() is None
    assert watch.running is not None
    end(process)
    assert watch.look() is None


def test_start_without_a_process_fails(tmp_path: Path) -> None:
    """After the pace's time: each time twice as long, and the longer the more start at once."""
    clock, pace = Clock(), StartTimeout(1.0)
    first, second = (watch_of(tmp_path / f"starts-{name}-5678", clock, pace) for name in ("first", "second"))
    clock.s = 1.9
    assert (first.look(), second.look()) == (None, None)
    clock.s = 2.0
    assert first.look() == "no process of it was seen for 2 s"
    assert pace.limit_s() == 2.0
    assert second.look() == "no process of it was seen for 2 s"
    assert pace.limit_s() == 4.0
    waits = []
    for _ in range(6):
        first.begin()
        waits.append(pace.limit_s())
        clock.s += pace.limit_s()
        assert first.look() is not None
    assert waits == [4.0, 8.0, 16.0, 32.0, MAX_UNSEEN_S, MAX_UNSEEN_S]


def test_one_that_comes_to_something_sets_the_pace(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The first may take longer, when Ray itself has just begun; and who is forgotten holds nobody up."""
    pace = StartTimeout(1.0, 10.0)
    watch = watch_of(tmp_path / "starts-x-1234", pace=pace)
    assert pace.limit_s() == 10.0
    watch_of(tmp_path / "starts-other-5678", pace=pace)
    note_of(tmp_path / "starts-x-1234", started("ray::HostActor"))
    assert watch.look() is None
    assert pace.limit_s() == 1.0


class Told:
    """Notes what a keeper says."""

    def __init__(self) -> None:
        self.again = 0
        self.reasons: list[str] = []
        self.given_up: list[tuple[int, str]] = []
        self.over = threading.Event()

    def asked(self) -> None:
        """Count a start that is asked for."""
        self.again += 1

    def gave_up(self, failures: int, reason: str) -> None:
        """Note the end."""
        self.given_up.append((failures, reason))
        self.over.set()

    def keeper(self, watch: StartMonitor) -> ActorRestarter:
        """Return a keeper that tells it everything."""
        return ActorRestarter(watch, self.asked, self.reasons.append, self.gave_up)


def test_what_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    """Five times in a row; each is reported."""
    told = Told()
    keeper = told.keeper(StartMonitor(tmp_path / "starts-x-1234", None, StartTimeout(0.001)))
    assert told.over.wait(PATIENCE_S)
    keeper.stop()
    assert told.again == MAX_STARTS - 1
    assert len(told.reasons) == MAX_STARTS
    assert told.given_up == [(MAX_STARTS, told.reasons[-1])]


@pytest.mark.slow
def _was_begun(told: Told, times: int) -> bool:
    return told.again >= times


def test_death_is_noticed_within_a_second(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """And started again by Ray, as often as it comes to serve in between."""
    note, told = tmp_path / "starts-x-1234", Told()
    watch = StartMonitor(note, os.getpid(), StartTimeout(PATIENCE_S))
    keeper = told.keeper(watch)
    assert LOOK_S < NOTICED_S
    for round_no in range(MAX_STARTS + 1):
        began = started("python")
        note_of(note, began)
        end(began)
        assert comes_true(partial(_was_begun, told, round_no + 1))
        assert told.again == round_no + 1
        serves = started("ray::SupervisorActor")
        note_of(note, serves)
        assert comes_true(lambda: watch.running is not None)
        end(serves)
    keeper.stop()
    assert told.given_up == []


def test_failures_are_told_in_order_and_in_bounds(tmp_path: Path) -> None:
    """The last ones; one line each; a place that is gone is no error."""
    failed = FailedStarts(tmp_path / "failed")
    assert failed.list_reports() == []
    for number in range(MAX_TOLD + 5):
        failed.add(f"host-{number}", "it\nended")
    assert failed.list_reports() == [f"host-{number}: it ended" for number in range(5, MAX_TOLD + 5)]
    for _ in range(30):
        failed.add("host", "x" * 2_000)
    assert sum(len(str(each)) for each in failed.list_reports()) < 25_000
    FailedStarts(tmp_path / "gone" / "failed").add("host", "it ended")


def test_what_was_started_is_ended_and_nothing_else(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A process that got a noted id later lives on, and a note that is no note is passed over."""
    ours, other = started(), started()
    note_of(tmp_path / "starts-x-1", ours)
    (tmp_path / "starts-x-2").write_text(f"{other.pid} 1\n")
    (tmp_path / "starts-x-3").write_text("no number\n")
    (tmp_path / "other").write_text((tmp_path / "starts-x-1").read_text())
    end_started(tmp_path, PATIENCE_S)
    assert find_process_identity(ours.pid) is None
    assert find_process_identity(other.pid) is not None


async def test_waiters_are_told_that_a_supervisor_never_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed: which process, how often, why, and what to do; nobody starts it again."""
    killed: list[tuple[object, bool]] = []
    monkeypatch.setattr(ray, "kill", lambda actor, *, no_restart=True: killed.append((actor, no_restart)))
    actor = object()
    line = SupervisorClient(actor, "key", lambda: True)
    _give_up(line, actor, 5, "its process (7) ended while it started")
    assert killed == [(actor, True)]
    with pytest.raises(
        EngineLost,
        check=has_cause("start"),
        match=r"supervisor failed to start 5 times in a row.*\(7\).*doctor",
    ):
        await line.supervisor.actors()


def starting() -> list[int]:
    """Return the processes that the private Ray of this program has begun and does not know yet."""
    (raylet,) = (server.pid for server in list_watched_servers() if server.name == RAYLET)
    found = []
    for pid in list_children(raylet):
        with contextlib.suppress(OSError):  # it ended just now
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"default_worker.py") for word in words):
                found.append(pid)
    return found


@pytest.mark.slow
@pytest.mark.long
async def test_starting_processes_are_killed_and_sessions_go_on(tmp_path: Path) -> None:
    """Hosts and supervisor, at any moment of their start: every answer comes, and doctor hears of it."""
    chance = random.Random(3)
    model = ScriptedModel({"main": [f"answer {number}" for number in range(ROUNDS)]})
    (tmp_path / "ground").mkdir()
    async with (
        Runtime(tmp_path / "state", slots=2) as runtime,
        SessionTree(tmp_path / "ground", model=model, runtime=runtime) as tree,
        asyncio.timeout(RAY_PATIENCE_S),
    ):
        for number in range(ROUNDS):
            role = "supervisor" if number % 2 else "acting"
            assert isinstance(runtime.backend, RayBackend)
            for row in await runtime.backend.actors():
                if row.role == role and row.pid:
                    os.kill(row.pid, signal.SIGKILL)
            asked = asyncio.ensure_future(asking(tree))
            await asyncio.to_thread(kill_starting, chance.choice((0.0, 0.2, 0.5, 0.8)), asked.done)
            assert await asked == f"answer {number}"
        async with await ControlClient.connect(tmp_path / "state") as client:
            security = await client.supervisor.security()
    assert security is not None
    told = security["failed_starts"]
    assert isinstance(told, list)
    assert any("ended while it started" in str(each) or "was seen for" in str(each) for each in told)


def kill_starting(after_s: float, is_answered: Callable[[], bool]) -> None:
    """Wait until some process starts, and kill it so much later; a host that is left may answer before."""
    deadline = time.monotonic() + PATIENCE_S
    while not ((found := starting()) or is_answered()) and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    if found:
        threading.Event().wait(after_s)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def asking(tree: SessionTree) -> str:
    """Say something to Main; return its answer."""
    return str(await tree.main.send("go"))
