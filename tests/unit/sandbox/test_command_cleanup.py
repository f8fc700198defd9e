"""The window a command has for its final output once it is asked to end, and what closes it early."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox import Bounds, CommandShell
from sessiontree.sandbox.commands.command_bounds import MIB
from sessiontree.sandbox.process_tree import find_descendants, find_process_identity
from tests.unit.sandbox.command_shell_fakes import CarelessShell, reporting_late

LONG_S = 240.0
"""Longer than anything here takes; a window that is as long is not waited for."""
SHORT_S = 0.3
MOMENTS_S = [0.6, 2.4, 9.6, 38.4]
"""Times to try in turn, for a command that must have begun before it is ended."""
BEGUN = "echo begun\n"
SLEEPING = "while :; do sleep 0.1; done"
"""A shell that is asked right before it begins to wait hears of it when that wait is over."""
TRAPPED = f"trap 'echo bye; exit 3' TERM; {BEGUN} {SLEEPING}"
SCATTERED = f"""speak() {{ trap "echo $1 says bye; exit" TERM; touch $1; {SLEEPING}; }}
(speak orphan &)
export -f speak
setsid bash -c 'speak stranger' &
until test -e orphan -a -e stranger; do sleep 0.01; done
{BEGUN} cat <(sleep 1000)"""
"""The shell itself ends at once, the others say something first."""
DEAF = f"trap '' TERM; exec 3>pipe; (setsid sleep 1000 &) ; {BEGUN} sleep 1000"
"""Nothing of it heeds being asked; all of it holds the pipe."""
Watched = Callable[[], AbstractContextManager[None]]


@dataclass(slots=True)
class Heard:
    """What a command says, and the task that runs it."""

    task: asyncio.Future[Finished] = field(default_factory=asyncio.Future)
    text: str = ""
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, text: str) -> None:
        """Take what it says next."""
        self.text += text
        self.more.set()

    async def until(self, word: str) -> None:
        """Wait until it has said a word."""
        async with asyncio.timeout(LONG_S):
            while word not in self.text:
                self.more.clear()
                await self.more.wait()

    async def cancelled(self) -> str:
        """Wait for the end of what was cancelled; return all it said."""
        done, _ = await asyncio.wait({self.task}, timeout=LONG_S)
        assert done, "the window never closed"
        assert self.task.cancelled()
        return self.text


@asynccontextmanager
async def begun(shell: CommandShell | CarelessShell, command: str) -> AsyncIterator[Heard]:
    """Run a command, and give what it says once it has begun; at the end it is gone."""
    heard = Heard()
    heard.task = asyncio.ensure_future(shell.run(command, timeout_s=10 * LONG_S, on_output=heard.take))
    try:
        await heard.until("begun\n")
        yield heard
    finally:
        while not heard.task.done():
            heard.task.cancel()
            await asyncio.wait({heard.task}, timeout=1.0)


def timed_out(place: Path, command: str, bounds: Bounds | None = None, *, cleanup_s: float) -> Finished:
    """Run a command until its time is up; it has begun by then."""
    shell = CommandShell(place, bounds=bounds, cleanup_s=cleanup_s)

    async def run(timeout_s: float) -> Finished:
        async with asyncio.timeout(timeout_s + LONG_S):
            return await shell.run(command, timeout_s=timeout_s)

    for timeout_s in MOMENTS_S:
        finished = asyncio.run(run(timeout_s))
        assert finished.reason == "timeout"
        if "begun\n" in finished.head:
            return finished
    pytest.fail("the command never began")


@pytest.mark.covers("I23")
@pytest.mark.slow
def test_last_words_at_the_time_out(tmp_path: Path, nothing_left: Watched) -> None:
    """They are kept, and how it ended is reported: here by itself, with a code of its own."""
    with nothing_left():
        finished = timed_out(tmp_path, TRAPPED, cleanup_s=LONG_S)
    assert finished.head.endswith("bye\n")
    assert (finished.exit_code, finished.signal) == (3, None)


async def test_last_words_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    """Who cancels learns what it says until it has ended."""
    async with begun(CommandShell(tmp_path, cleanup_s=LONG_S), TRAPPED) as heard:
        heard.task.cancel()
        assert (await heard.cancelled()).endswith("bye\n")


@pytest.mark.covers("I23")
@pytest.mark.slow
def test_everything_inside_is_asked_and_waited_for(tmp_path: Path, nothing_left: Watched) -> None:
    """Orphans and sessions of their own too, after the command itself is gone of the signal."""
    with nothing_left():
        finished = timed_out(tmp_path, SCATTERED, cleanup_s=LONG_S)
    assert "orphan says bye\n" in finished.head
    assert "stranger says bye\n" in finished.head
    assert (finished.exit_code, finished.signal) == (None, signal.SIGTERM)


@pytest.mark.covers("I23")
@pytest.mark.slow
def test_what_ignores_it_is_killed_when_the_window_is_over(tmp_path: Path, nothing_left: Watched) -> None:
    """Then nothing of it lives; the result says which signal it was."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with nothing_left():
            finished = timed_out(tmp_path, DEAF, cleanup_s=SHORT_S)
        assert os.read(reader, 1) == b"", "or BlockingIOError, where somebody holds it still"
    finally:
        os.close(reader)
    assert (finished.exit_code, finished.signal) == (None, signal.SIGKILL)
    assert finished.elapsed_s >= MOMENTS_S[0] + SHORT_S


@pytest.mark.slow
async def test_window_is_waited_for_by_who_cancels(tmp_path: Path) -> None:
    """Nothing of the command lives when the cancelled call has ended."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        async with begun(CommandShell(tmp_path, cleanup_s=SHORT_S), DEAF) as heard:
            heard.task.cancel()
            await heard.cancelled()
        assert os.read(reader, 1) == b"", "or BlockingIOError, where somebody holds it still"
    finally:
        os.close(reader)


@pytest.mark.parametrize("how", ["cancelled again", "in a hurry"])
async def test_who_can_not_wait_does_not(tmp_path: Path, how: str) -> None:
    """Cancelling again kills at once; so does cancelling where the shell learned that nobody can wait."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    shell = CommandShell(tmp_path, cleanup_s=10 * LONG_S)
    command = f"exec 3>pipe; trap 'echo asked' TERM; {BEGUN} {SLEEPING}"
    try:
        async with begun(shell, command) as heard:
            if how == "in a hurry":
                assert shell.end()
            heard.task.cancel()
            if how == "cancelled again":
                await heard.until("asked\n")
                heard.task.cancel()
            await heard.cancelled()
        assert ("asked" in heard.text) is (how == "cancelled again")
        assert os.read(reader, 1) == b"", "or BlockingIOError, where somebody holds it still"
    finally:
        os.close(reader)


async def test_what_says_something_can_be_asked_to_end(tmp_path: Path) -> None:
    """A command begins only after its launcher can pass on the request and has reported so."""
    shell = CarelessShell(tmp_path, (), source=reporting_late)
    async with begun(shell, f"trap 'echo asked; exit' TERM; {BEGUN} {SLEEPING}") as heard:
        heard.task.cancel()
        assert "asked\n" in await heard.cancelled()


async def test_what_has_not_begun_is_not_waited_for(tmp_path: Path) -> None:
    """Nothing is there yet that could hear it, and what would begin afterwards has not been asked."""
    shell = CommandShell(tmp_path, cleanup_s=10 * LONG_S)
    before = set(find_descendants(os.getpid()))
    heard = Heard()
    heard.task = asyncio.ensure_future(shell.run("sleep 1000", timeout_s=10 * LONG_S))
    while len(set(find_descendants(os.getpid())) - before) < 2:  # noqa: ASYNC110 - a process tells nobody of its start
        await asyncio.sleep(0)
    heard.task.cancel()
    assert await heard.cancelled() == ""


@pytest.mark.slow
def test_excess_is_ended_at_once(tmp_path: Path) -> None:
    """What does harm is not asked first; nor may it use the window for that."""
    bounds = Bounds(output_bytes=MIB)

    async def flood() -> Finished:
        async with asyncio.timeout(LONG_S):
            shell = CommandShell(tmp_path, bounds=bounds, cleanup_s=10 * LONG_S)
            return await shell.run("trap 'echo asked; touch asked' TERM; yes", timeout_s=10 * LONG_S)

    finished = asyncio.run(flood())
    assert (finished.reason, finished.limit, finished.signal) == ("limit", "output_bytes", signal.SIGKILL)
    assert not (tmp_path / "asked").exists()
    finished = timed_out(tmp_path, f"trap yes TERM; {BEGUN} {SLEEPING}", bounds, cleanup_s=10 * LONG_S)
    assert (finished.reason, finished.signal) == ("timeout", signal.SIGKILL)


MANY = f"trap '' TERM; for n in $(seq 60); do (trap '' TERM; sleep 1000 & wait) & done; {BEGUN} sleep 1000"


async def test_what_was_ended_at_once_is_waited_for(tmp_path: Path) -> None:
    """EXE8: killing returns before the processes are gone; `ended` returns after."""
    shell = CommandShell(tmp_path)
    async with begun(shell, MANY):
        killed = shell.end()
        assert len(killed) > 60
        await asyncio.wait_for(shell.ended(), LONG_S)
        assert [each for each in killed if find_process_identity(each.pid) == each] == []
    await asyncio.wait_for(shell.ended(), LONG_S)
