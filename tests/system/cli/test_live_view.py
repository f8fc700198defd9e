"""A live view draws seldom, yields the terminal, and leaves it as it was."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessiontree.cli.live_view import REFRESH_EVERY_S, is_live_terminal
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.reports.events import ToolExecutionStart
from sessiontree.runtime.transport.progress import ProgressHub, ProgressReader
from tests.system.cli.screen_fakes import Glass
from tests.unit.view.live_strategies import ended, record, records, spawned

XTERM = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def glass(self) -> Glass:
        """What is on it now."""
        return Glass(self.getvalue())

    @property
    def pictures(self) -> int:
        """How often a picture was drawn."""
        return self.getvalue().count(" ended · ")


class Ticks:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._ticks: asyncio.Queue[None] = asyncio.Queue()

    async def wait(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._ticks.get()

    async def tick(self) -> None:
        """Let one wait end, and whoever waited go on."""
        self._ticks.put_nowait(None)
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
def tty() -> Tty:
    """A terminal of 80 columns and 24 lines."""
    return Tty()


@pytest.fixture
def ticks() -> Ticks:
    """Time, standing still."""
    return Ticks()


@pytest.fixture
async def screen(tty: Tty, ticks: Ticks) -> AsyncIterator[RichScreen]:
    """A screen on that terminal."""
    yield RichScreen(tty, XTERM, wait=ticks.wait)


async def test_facts_are_drawn_by_time_and_not_by_number(screen: RichScreen, tty: Tty, ticks: Ticks) -> None:
    """Two thousand facts draw nothing; the next tick draws all of them once; a tick without news nothing."""
    async with screen.live() as view:
        assert view is not None
        assert tty.pictures == 1
        for one in records([spawned("main"), *(spawned(f"main/w{n}", "main") for n in range(2_000))]):
            view.take(one)
            await asyncio.sleep(0)
        assert tty.pictures == 1
        await ticks.tick()
        assert tty.pictures == 2
        assert tty.glass.seen[-1].startswith("2,001 live, 0 ended · ")
        assert len(tty.glass.seen) <= 23
        await ticks.tick()
        assert tty.pictures == 2
    assert set(ticks.asked) == {REFRESH_EVERY_S}
    assert REFRESH_EVERY_S >= 1 / 8


async def test_terminal_is_left_with_the_last_picture(screen: RichScreen, tty: Tty) -> None:
    """What was drawn before is gone, the cursor is there, and writing goes on below the last picture."""
    async with screen.live() as view:
        assert view is not None
        assert not tty.glass.is_cursor_shown
        for one in records([spawned("main"), spawned("main/w1", "main"), ended("main/w1")]):
            view.take(one)
        screen.line("a word\x1b[2J on the way")
    screen.line("afterwards")
    glass = tty.glass
    assert glass.is_cursor_shown
    assert glass.seen[0] == "a word\\u{1b}[2J on the way"
    assert [line.split()[0] for line in glass.seen[1:]] == ["session", "main", "…", "1", "afterwards"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, ValueError])
async def test_terminal_is_left_the_same_when_something_fails(
    screen: RichScreen, tty: Tty, error: type[BaseException]
) -> None:
    """Ctrl-C, or an error, restores the terminal too, and goes on as it was."""
    with pytest.raises(error):
        async with screen.live():
            raise error
    assert tty.glass.is_cursor_shown
    screen.line("afterwards")
    assert tty.glass.seen[-1] == "afterwards"


class Person:
    """A channel whose question stays on the terminal until the test answers it."""

    def __init__(self, writes: io.StringIO) -> None:
        self._writes = writes
        self.answered = asyncio.Event()

    async def send(self, text: str) -> None:
        self._writes.write(f"{text}\n")

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self._writes.write("allow? ")
        await self.answered.wait()
        self._writes.write("y\n")
        return ApprovalAnswer(approve=True)


REQUEST = ApprovalRequest("r1", "main", "deploy", {}, "digest", "Elevated", 0, "main")


async def test_question_has_the_terminal_for_itself(screen: RichScreen, tty: Tty, ticks: Ticks) -> None:
    """While a person is asked no picture is shown or drawn and no line is said; then all of it comes."""
    person = Person(tty)
    channel = screen.share_with(person)
    async with screen.live() as view:
        assert view is not None
        view.take(record(1, spawned("main")))
        await ticks.tick()
        await channel.send("a message")
        assert tty.glass.seen[0] == "a message"
        assert tty.glass.seen[-1].startswith("1 live")
        asking = asyncio.create_task(channel.ask(REQUEST))
        await asyncio.sleep(0)
        assert tty.glass.seen == ["a message", "allow?"]
        assert tty.glass.is_cursor_shown
        view.take(record(2, spawned("main/w1", "main")))
        screen.line("something happened")
        await ticks.tick()
        assert tty.glass.seen == ["a message", "allow?"]
        person.answered.set()
        assert await asking == ApprovalAnswer(approve=True)
        assert tty.glass.seen[:3] == ["a message", "allow? y", "something happened"]
        assert tty.glass.seen[-1].startswith("2 live")
    assert tty.glass.seen[:3] == ["a message", "allow? y", "something happened"]


async def test_picture_comes_back_after_the_last_of_several_questions(
    screen: RichScreen, tty: Tty, ticks: Ticks
) -> None:
    """Two questions at once: the first answer does not bring the picture back under the second."""
    first, second = Person(tty), Person(tty)
    async with screen.live(), asyncio.TaskGroup() as group:
        one = group.create_task(screen.share_with(first).ask(REQUEST))
        other = group.create_task(screen.share_with(second).ask(REQUEST))
        await asyncio.sleep(0)
        pictures = tty.pictures
        first.answered.set()
        await one
        await ticks.tick()
        assert tty.pictures == pictures
        second.answered.set()
        await other
        assert tty.pictures == pictures + 1


async def test_view_closed_under_a_question_stays_away(screen: RichScreen, tty: Tty) -> None:
    """Ctrl-C at a question: the view is over, and the end of the question draws nothing."""
    person = Person(tty)
    async with screen.live():
        asking = asyncio.create_task(screen.share_with(person).ask(REQUEST))
        await asyncio.sleep(0)
    seen = tty.glass.seen
    person.answered.set()
    await asking
    assert tty.glass.seen == [*seen[:-1], "allow? y"]
    assert tty.glass.is_cursor_shown


async def test_view_opened_under_a_question_waits_for_its_end(screen: RichScreen, tty: Tty) -> None:
    """A question of a tree taken up again comes before the view: it is not drawn over."""
    person = Person(tty)
    asking = asyncio.create_task(screen.share_with(person).ask(REQUEST))
    await asyncio.sleep(0)
    async with screen.live():
        assert tty.glass.seen == ["allow?"]
        person.answered.set()
        await asking
        assert tty.pictures == 1


async def test_events_are_watched_while_the_view_is_open(screen: RichScreen, tty: Tty, ticks: Ticks) -> None:
    """A call that runs is shown though no fact tells of it; nobody watches afterwards."""
    hub = ProgressHub()
    async with screen.live(lambda: ProgressReader(hub.watch("t1"))) as view:
        assert view is not None
        view.take(record(1, spawned("main")))
        hub.emit("t1", "main", ToolExecutionStart("c1", "read", {"path": "notes"}))
        await ticks.tick()
        assert any(line.endswith('read {"path":"notes"}') for line in tty.glass.seen)
        assert hub.get_readers("t1")
    assert not hub.get_readers("t1")


class Broken(Tty):
    """A terminal that goes away."""

    is_gone = False

    def write(self, text: str) -> int:
        if self.is_gone:
            raise OSError("the terminal is gone")
        return super().write(text)


async def test_terminal_that_goes_away_is_no_secret(ticks: Ticks) -> None:
    """What keeps a picture from being drawn is raised where the view is closed."""
    tty = Broken()
    with pytest.raises(OSError, match="the terminal is gone"):
        async with RichScreen(tty, XTERM, wait=ticks.wait).live() as view:
            assert view is not None
            view.take(record(1, spawned("main")))
            tty.is_gone = True
            await ticks.tick()


@pytest.mark.parametrize(
    ("writes", "environment", "is_live"),
    [
        (Tty(), XTERM, True),
        (Tty(), {**XTERM, "NO_COLOR": "", "CI": ""}, True),
        (io.StringIO(), XTERM, False),
        (Tty(), {}, False),
        (Tty(), {"TERM": "dumb"}, False),
        (Tty(), {**XTERM, "NO_COLOR": "1"}, False),
        (Tty(), {**XTERM, "CI": "true"}, False),
    ],
)
async def test_only_a_terminal_that_wants_it_is_drawn_on(
    writes: io.StringIO, environment: dict[str, str], is_live: bool
) -> None:
    """Pipes, CI, dumb terminals and people who want none get lines, and their channel as it is."""
    assert is_live_terminal(writes, environment) == is_live
    screen = RichScreen(writes, environment)
    channel: Any = Person(io.StringIO())
    assert (screen.share_with(channel) is channel) == (not is_live)
    async with screen.live() as view:
        assert (view is not None) == is_live
        if not is_live:
            screen.line("a line\x00")
            assert writes.getvalue() == "a line\\u{0}\n"
