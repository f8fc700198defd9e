"""Turns of commands: never too many at a time, everybody in order, and no session waits behind another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree.sandbox import CommandShell, SessionTurns
from sessiontree.sandbox.resources.command_turns import Turns
from tests.example_fixtures import examples

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "come", "come", "done", "gone"]), st.integers(0, 9)), max_size=30
)
OF_ALL, OF_ONE, SESSIONS = 3, 2, 3
PATIENCE_S = 60.0


async def settled() -> None:
    """Let everybody go as far as they come."""
    for _ in range(6):
        await asyncio.sleep(0)


class Hall:
    """Sessions whose commands come, run until they are let go, and leave."""

    def __init__(self, turns: Turns) -> None:
        self.turns = [turns.make_session_turns(OF_ONE) for _ in range(SESSIONS)]
        self.inside: list[tuple[int, int]] = []
        self.entered: list[list[int]] = [[] for _ in range(SESSIONS)]
        self.let_go: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, session: int) -> None:
        """Let one more command of a session come."""
        self.let_go.append(asyncio.Event())
        self.tasks.append(asyncio.create_task(self._visit(session, len(self.tasks))))

    async def _visit(self, session: int, number: int) -> None:
        turns = self.turns[session]
        if not turns.enter_at_once():
            await turns.enter()
        self.inside.append((session, number))
        self.entered[session].append(number)
        try:
            await self.let_go[number].wait()
        finally:
            self.inside.remove((session, number))
            turns.leave()

    def check(self) -> None:
        """Judge who is inside, and that nobody waits for room that is there."""
        counts = [sum(each == session for each, _ in self.inside) for session in range(SESSIONS)]
        assert len(self.inside) <= OF_ALL, "too many in the process"
        assert max(counts) <= OF_ONE, "too many in a session"
        waiting = [session for session in range(SESSIONS) if self.turns[session].waiting]
        if len(self.inside) < OF_ALL:
            assert all(counts[session] == OF_ONE for session in waiting), "somebody waits for free room"


async def walk(make: Callable[[int], Turns], steps: list[Step]) -> None:
    """The property, over everything that may happen."""
    hall, gone = Hall(make(OF_ALL)), set()
    for kind, number in steps:
        there = [index for index, task in enumerate(hall.tasks) if not task.done()]
        if kind == "come":
            hall.come(number % SESSIONS)
        elif there:
            chosen = there[number % len(there)]
            if kind == "done":
                hall.let_go[chosen].set()
            else:
                hall.tasks[chosen].cancel()
                gone.add(chosen)
        if number % 2:
            await settled()
            hall.check()
    await settled()
    while unfinished := [index for index, task in enumerate(hall.tasks) if not task.done()]:
        hall.check()
        running = [number for _, number in hall.inside]
        assert running, f"{unfinished} wait before an empty hall"
        hall.let_go[running[0]].set()
        await settled()
    for entered in hall.entered:
        assert entered == sorted(entered), "somebody was overtaken"
    came = {number for entered in hall.entered for number in entered}
    assert came | gone == set(range(len(hall.tasks)))


@settings(max_examples=examples(100), database=None)
@given(STEPS)
@example([*[("come", 0)] * 5, ("come", 1), ("done", 0), ("come", 1), ("done", 1), ("done", 0), ("gone", 4)])
@example([*[("come", 1)] * 3, ("gone", 4), ("gone", 0), ("come", 1)])
def test_turns_are_kept(steps: list[Step]) -> None:
    """Whoever comes, ends or is cancelled, at any moment."""
    asyncio.run(asyncio.wait_for(walk(Turns, steps), PATIENCE_S))


class Generous(Turns):
    """Planted: there is always room."""

    def has_room(self) -> bool:
        return True


class Forgetful(Turns):
    """Planted: nobody who waits is ever called."""

    def admit(self) -> None:
        return


@pytest.mark.parametrize("make", [Generous, Forgetful])
def test_planted_turns_are_found(make: Callable[[int], Turns]) -> None:
    """Five come, of three sessions; two have ended."""
    steps = [("come", session) for session in (1, 1, 3, 5, 5)] + [("done", 1), ("done", 1)]
    with pytest.raises(AssertionError, match=r"too many in the process|wait before an empty hall|free room"):
        asyncio.run(asyncio.wait_for(walk(make, steps), PATIENCE_S))


def test_sessions_take_turns() -> None:
    """A session with one command does not wait behind another's hundred."""

    async def order() -> list[int]:
        turns, entered = Turns(1), []
        busy, quiet = (turns.make_session_turns(9) for _ in range(2))

        async def one(session: SessionTurns, number: int) -> None:
            if not session.enter_at_once():
                await session.enter()
            entered.append(number)
            await asyncio.sleep(0)
            session.leave()

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(one(busy, number))
            await asyncio.sleep(0)
            group.create_task(one(quiet, 1000))
        return entered

    assert asyncio.run(order()).index(1000) < 5


@pytest.mark.slow
def test_one_call_does_not_start_more_than_its_session_may(tmp_path: Path) -> None:
    """A tool that starts ten commands together waits as ten calls would."""
    (tmp_path / "running").mkdir()

    async def ten() -> list[int]:
        shell = CommandShell(tmp_path, turns=Turns(9).make_session_turns(2))
        async with asyncio.TaskGroup() as group:
            runs = [
                group.create_task(
                    shell.run(
                        f"touch running/{number}; ls running | wc -l; rm running/{number}",
                        timeout_s=PATIENCE_S,
                    )
                )
                for number in range(10)
            ]
        return [int(run.result().head) for run in runs]

    assert set(asyncio.run(ten())) <= {1, 2}


@pytest.mark.slow
def test_command_that_waits_does_not_start_after_its_session_left(tmp_path: Path) -> None:
    """It is an error that says so."""

    async def left() -> None:
        shell = CommandShell(tmp_path, turns=Turns(1).make_session_turns(1))
        begun = asyncio.Event()
        first = asyncio.create_task(
            shell.run("echo; sleep 100", timeout_s=PATIENCE_S, on_output=lambda _: begun.set())
        )
        await begun.wait()
        second = asyncio.create_task(shell.run("touch ran", timeout_s=PATIENCE_S))
        await asyncio.sleep(0)
        shell.end()
        with pytest.raises(ExecutionError, match="its session has left"):
            await second
        with pytest.raises(ExecutionError, match="how the command ended is unknown"):
            await first

    asyncio.run(left())
    assert not (tmp_path / "ran").exists()
