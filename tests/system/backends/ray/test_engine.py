"""A private Ray is private, shared within one process, and ends with its program, however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.backends.ray.engine import engine_home
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.engine_settings import SYSTEM_CONFIG
from sessiontree.contracts.errors import SessionTreeError

START_S = 180.0
"""A start takes 2 to 4 s; on a machine where everybody starts one at once, longer."""
GONE_S = 60.0
"""After this no process of a program may be left; where nobody else is at work, 10 s are enough."""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for the names of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)
        engine_home.end_processes(Path(path), grace_s=0.0)


@contextlib.asynccontextmanager
async def program(*mode: str, **variables: str) -> AsyncIterator[Process]:
    """Run a program in a process group of its own, as a shell does; it never outlives the test."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.system.backends.ray.engine_program",
        *mode,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
        env={**os.environ, **variables},
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def line(of: Process) -> dict[str, Any]:
    """Return the next line a program prints."""
    assert of.stdout is not None
    text = await asyncio.wait_for(of.stdout.readline(), START_S)
    assert text, await errors(of)
    words: dict[str, Any] = json.loads(text)
    return words


async def errors(of: Process) -> str:
    """Return what a program said on its standard error, once it has ended."""
    assert of.stderr is not None
    return (await asyncio.wait_for(of.stderr.read(), START_S)).decode()


def tree_of(pid: int) -> set[engine_home.Process]:
    """Return a process and all its descendants."""
    root = engine_home.find_process(pid)
    assert root is not None
    return engine_home.add_descendants({root}, lambda _: False)


async def gone(processes: set[engine_home.Process], home: Path) -> list[str]:
    """Return what is left of a program after the time it has."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GONE_S
    while left := _left(processes, home):
        if loop.time() > deadline:
            break
        await asyncio.sleep(0.05)
    return left


def _left(processes: set[engine_home.Process], home: Path) -> list[str]:
    left = [process for process in processes if engine_home.find_process(process.pid) == process]
    names = [Path(f"/proc/{process.pid}/cmdline").read_bytes().decode("utf-8", "replace") for process in left]
    return [*names, str(home)] if home.exists() else names


def interrupt(pid: int) -> None:
    """Do what a terminal does on Ctrl-C: tell the whole group."""
    os.killpg(pid, signal.SIGINT)


def kill(pid: int) -> None:
    """End one process without a word."""
    os.kill(pid, signal.SIGKILL)


def nothing(pid: int) -> None:
    """Let it end by itself."""


LAST_WORDS: dict[tuple[str, Callable[[int], None]], list[str]] = {
    ("wait", interrupt): ["KeyboardInterrupt"],
    ("raise", nothing): ["RuntimeError: as asked"],
}


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "end", "code"),
    [
        pytest.param("wait", interrupt, 1, id="Ctrl-C"),
        pytest.param("raise", nothing, 1, id="an exception", marks=pytest.mark.long),
        pytest.param("exit", nothing, 0, id="exit without close"),
        pytest.param("linger", nothing, 0, id="exit with a worker that takes long", marks=pytest.mark.long),
        pytest.param("wait", kill, -signal.SIGKILL, id="SIGKILL"),
    ],
)
async def test_nothing_is_left_of_a_program_however_it_ends(
    mode: str, end: Callable[[int], None], code: int
) -> None:
    """I35: within 10 s every process is gone, those that tools started too, and so is the directory."""
    async with program(mode) as running:
        ready = await line(running)
        processes = tree_of(running.pid) if mode == "wait" else set()
        processes |= {process for pid in ready["children"] if (process := engine_home.find_process(pid))}
        if mode == "wait":
            assert len(processes) >= 9
        end(running.pid)
        assert await asyncio.wait_for(running.wait(), START_S) == code
        assert await gone(processes, Path(ready["home"])) == []
        last_words = (await errors(running)).splitlines()[-1:]
        assert last_words == LAST_WORDS.get((mode, end), [])


@pytest.mark.slow
async def test_what_a_killed_watcher_left_is_swept_by_the_next_start() -> None:
    """Program and watcher killed at once: what stays is swept by the next; what lives is not."""
    async with program("wait") as running:
        ready = await line(running)
        home = Path(ready["home"])
        processes = tree_of(running.pid)
        assert home not in engine_home.sweep()
        watchers = [process for process in processes if is_watcher(process)]
        assert len(watchers) == 1
        kill(watchers[0].pid)
        kill(running.pid)
        await running.wait()
        assert home in engine_home.sweep()
        assert await gone(processes, home) == []


def is_watcher(process: engine_home.Process) -> bool:
    """Whether a process is the one that clears up."""
    return b"engine_home" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.mark.slow
@pytest.mark.long
async def test_stopped_program_goes_on_where_it_was() -> None:
    """SIGSTOP of every process, SIGCONT later: calls go on, and no actor was started again."""
    async with program("wait") as running:
        await line(running)
        processes = tree_of(running.pid)
        assert await ask(running) == {"count": 1}
        for process in processes:
            os.kill(process.pid, signal.SIGSTOP)
        await asyncio.sleep(3)  # several of Ray's periods; longer stops are measured by hand
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)
        assert await ask(running) == {"count": 2}
        interrupt(running.pid)
        await running.wait()


async def ask(running: Process) -> dict[str, Any]:
    """Have a waiting program call its actor."""
    assert running.stdin is not None
    running.stdin.write(b"call\n")
    await running.stdin.drain()
    while True:
        with contextlib.suppress(json.JSONDecodeError):  # Ray has something to say about a lost node
            return await line(running)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failures", "count"),
    [
        pytest.param(SYSTEM_CONFIG["health_check_failure_threshold"], 2, id="as the engine starts it"),
        pytest.param(5, None, id="as Ray starts it by itself"),
    ],
)
@pytest.mark.long
async def test_raylet_that_is_silent_for_long_is_not_given_up(
    failures: int, count: int | None, tmp_path: Path, short_path: Path
) -> None:
    """Stopped alone for three times what Ray allows, all scaled down: the engine's number is enough."""
    async with program(
        "frozen",
        str(failures),
        HOME=str(tmp_path),
        OWN_RAY=str(short_path / engine_home.RAY_FOLDER),
        RAY_AUTH_MODE="token",
    ) as running:
        assert await line(running) == {"count": 1}
        raylets = [process for process in tree_of(running.pid) if name_of(process) == "raylet"]
        assert len(raylets) == 1
        os.kill(raylets[0].pid, signal.SIGSTOP)
        await asyncio.sleep(4)
        os.kill(raylets[0].pid, signal.SIGCONT)
        assert (await ask(running))["count"] == count


def name_of(process: engine_home.Process) -> str:
    """Return a process's name."""
    return Path(f"/proc/{process.pid}/comm").read_text().strip()


@pytest.mark.slow
async def test_engines_of_a_process_share_a_ray_that_no_other_process_meets() -> None:
    """Two programs at once: one Ray each, private, led astray by nothing, ended with its last engine."""
    astray = {"RAY_ADDRESS": "192.0.2.1:6379", "RAY_AUTH_TOKEN": "somebody else's", "PYTHONBREAKPOINT": "0"}
    async with program("share", **astray) as one, program("wait", **astray) as other:
        told, neighbour = await line(one), await line(other)
        assert await errors(one) == ""
        assert await one.wait() == 0
        assert await ask(other) == {"count": 1}, "the end of one Ray is nothing to the other"
        interrupt(other.pid)
        await other.wait()
    assert len(told["nodes"]) == 1
    assert told["cores"] == [1, 1, 1], "what Ray counts, not what the machine has"
    assert told["changed"] == []
    assert told["worker_umask"] == told["umask"]
    assert told["worker_niceness"] == told["niceness"]
    assert told["logs_inside"]
    assert told["count_after_two_closed"] == 1
    assert told["left"] == []
    assert told["count_after_restart"] == 1
    assert told["new_home"]
    assert "num_cpus=7" in told["refused"]
    assert told["security"] == {
        "ray_version": told["security"]["ray_version"],
        "private": True,
        "auth_mode": "token",
        "token_path": None,
        "token_mode": None,
        "key_variables": [],
        "directory": told["home"],
        "directory_mode": "0700",
        "dashboard": "off",
        "nodes": 1,
        "listening": [],
    }
    assert told["home"] != neighbour["home"]
    assert told["nodes"] != neighbour["nodes"]


@pytest.mark.covers("C14")
@pytest.mark.slow
async def test_ray_of_the_programs_own_is_joined_and_left_as_it_was(tmp_path: Path, short_path: Path) -> None:
    """Never a second ``ray.init``; closing ends nothing; later a private one works, and the own one again."""
    async with program(
        "join", HOME=str(tmp_path), OWN_RAY=str(short_path / engine_home.RAY_FOLDER)
    ) as running:
        told = await line(running)
        assert await running.wait() == 0
    assert told == {
        "private": False,
        "node_fits": True,
        "cores": 1,
        "token": str(tmp_path / ".ray" / "auth_token"),
        "open": True,
        "refused": told["refused"],
        "count_after_close": 1,
        "namespace": "mine",
        "changed": [],
        "private_then": True,
        "count_in_own_again": 1,
    }
    assert ["num_cpus" in told["refused"][0], "192.0.2.1:6379" in told["refused"][1]] == [True, True]


@pytest.mark.slow
async def test_address_where_nobody_answers_is_refused_and_leaves_the_process_free() -> None:
    """Named with what to do next, at once; asking again gives the same answer, not a stuck start."""
    async with program("nobody") as running:
        told = await line(running)
        assert await running.wait() == 0
    assert len(told["refused"]) == 2
    assert all("no Ray answers at address '127.0.0.1:9'" in refusal for refusal in told["refused"])


def test_engine_that_is_not_started_says_so() -> None:
    """Its node is asked for too early: a typed error names the next step."""
    with pytest.raises(SessionTreeError, match=r"await engine\.start\(\) first"):
        _ = RayConnection().node_id


async def test_closing_an_engine_that_never_started_is_nothing() -> None:
    """Close is idempotent and may come first."""
    engine = RayConnection()
    await engine.close()
    await engine.close()
