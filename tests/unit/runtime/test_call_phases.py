"""The phases of calls on a host: whatever happens, each call moves as the table says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ToolCall
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.runtime.runner.calls.call_book import ALLOWED, CallBook, CallEntry, CallPhase
from sessiontree.runtime.runner.session_runner import SessionRunner
from sessiontree.session.instructions import ExecuteCall
from tests.unit.runtime.runner_world_fakes import (
    NAMES,
    Move,
    Recorded,
    RecordedRunner,
    RunnerWorld,
    make_answer,
    make_reply,
)

Step = tuple[str, int]


def make_call(number: int, name: object) -> ToolCall:
    """Return a call; its number says of which tool, and whether it asks a person for input."""
    place = number % len(NAMES)
    arguments = {"n": "many"} if place == len(NAMES) - 1 else {"n": number // len(NAMES)}
    return ToolCall(f"c{name}", NAMES[place], arguments)


def reply(world: RunnerWorld, number: int) -> None:
    """Let the model reply, if it is asked: with up to three calls."""
    if world.asked is not None:
        calls = [make_call(number + at, f"{world.asked}.{at}") for at in range(number % 4)]
        turn, world.asked = world.asked, None
        world.feed(
            make_reply(turn, [ToolCall(f"{turn}-{each.id}", each.name, each.arguments) for each in calls])
        )


def call(world: RunnerWorld, number: int) -> None:
    """Let the program call."""
    made = make_call(number, world._said)
    world.feed(stimuli.CallAsked(5, made.id, made.name, made.arguments))


def speak(world: RunnerWorld, number: int) -> None:
    """Let somebody say something; some of it steers."""
    mode: SendMode = "steer" if number % 3 == 0 else "follow_up"
    world.feed(stimuli.Incoming(5, f"m{world._said}", "go on", mode, "user"))


def commit(world: RunnerWorld, number: int) -> None:
    """Let intents be durable; some of it is said twice."""
    if world.commits:
        keys = world.commits[0] if number % 3 == 0 else world.commits.pop(0)
        world.feed(stimuli.IntentsCommitted(5, keys))


def approve(world: RunnerWorld, number: int) -> None:
    """Let somebody decide on a request."""
    if world.approvals:
        decision = "denied" if number % 3 == 0 else "approved"
        request_id = world.approvals.pop(0)
        world.feed(stimuli.ApprovalAnswered(5, request_id, decision, "ada", ""))


def answer(world: RunnerWorld, number: int) -> None:
    """Let the program or a person answer; some of it twice."""
    if world.clients:
        client_id = world.clients[0] if number % 3 == 0 else world.clients.pop(0)
        world.feed(make_answer(client_id, world._said))


def interrupt(world: RunnerWorld, number: int) -> None:
    """Interrupt what runs."""
    world.feed(stimuli.WorkInterrupted(5, f"i{world._said}", "enough"))


def cancel(world: RunnerWorld, number: int) -> None:
    """Cancel the session, in a few scripts."""
    if number % 5 == 0:
        world.feed(stimuli.CancelAsked(5, "enough", "cancelled"))


def harden(world: RunnerWorld, number: int) -> None:
    """Let what begins from now on ignore its cancellation, or not."""
    world.gates.stubborn = bool(number % 2)


def deny(world: RunnerWorld, number: int) -> None:
    """Let no call be made from now on, or let them."""
    world.gates.denied = bool(number % 2)


ACTIONS: Mapping[str, Callable[[RunnerWorld, int], None]] = {
    "reply": reply,
    "call": call,
    "speak": speak,
    "commit": commit,
    "approve": approve,
    "answer": answer,
    "pass": lambda world, number: world.let_pass(number),
    "interrupt": interrupt,
    "give up": lambda world, number: world.give_up(),
    "lose": lambda world, number: world.lose(),
    "cancel": cancel,
    "harden": harden,
    "deny": deny,
}
OFTEN = ("reply", "reply", "call", "call", "speak", "commit", "commit", "approve", "answer", "pass", "pass")
KINDS = (*OFTEN, *ACTIONS)
scripts = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 41)), min_size=10, max_size=40)


def draw_script(seed: int) -> list[Step]:
    """Return a script; the loop's own timing is not in it, so that it may take another way each time."""
    draw = Random(seed)
    return [(draw.choice(KINDS), draw.randrange(42)) for _ in range(40)]


async def play(script: list[Step], runner: type[SessionRunner], *, has_hooks: bool) -> list[Move]:
    """Play a script to its end, and return how the calls moved."""
    world = RunnerWorld(runner, has_hooks=has_hooks)
    try:
        await world.rest()
        for kind, number in script:
            ACTIONS[kind](world, number)
            if number % 2:
                await world.rest()
                world.check()
        await world.close()
    finally:
        world.gates.open_all()  # what ignores its cancellation would keep the loop for ever
    return world.moves


def run(script: list[Step], runner: type[SessionRunner] = RecordedRunner, *, has_hooks: bool) -> list[Move]:
    """Play a script on a loop of its own, within reason; what fails outside a task fails here."""
    problems: list[object] = []

    async def watched() -> list[Move]:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        return await play(script, runner, has_hooks=has_hooks)

    moves = asyncio.run(asyncio.wait_for(watched(), 60))
    assert not problems, problems
    return moves


@given(scripts, st.booleans())
def test_calls_move_as_the_table_says(script: list[Step], has_hooks: bool) -> None:
    """Whoever calls, answers, interrupts or is lost, at any moment; and in the end all is done."""
    run(script, has_hooks=has_hooks)


DENIED_ELSEWHERE: tuple[Step, ...] = (("pass", 1), ("deny", 1), ("lose", 1))
"""A call is prepared and intended; its host is lost, and the next one may not make it."""


def test_no_row_of_the_table_is_for_nothing() -> None:
    """Each move that is allowed happens: what is not needed is not allowed."""
    seen: set[Move] = set()
    for number in (NAMES.index("mark"), NAMES.index("ask") + len(NAMES)):
        seen.update(run([("reply", 0), ("call", number), *DENIED_ELSEWHERE], has_hooks=True))
    for seed in range(150):
        seen.update(run(draw_script(seed), has_hooks=bool(seed % 2)))
    assert seen == {(before, after) for before, allowed in ALLOWED.items() for after in allowed}


class Eager(Recorded):
    """Planted: a call that is owed twice begins twice."""

    def can_begin(self, key: str) -> bool:
        return True


class Forgetful(Recorded):
    """Planted: what is no longer needed is kept."""

    def resolve(self, key: str) -> None:
        pass


class Hasty(Recorded):
    """Planted: a call whose outcome is being settled counts as done."""

    def has_phase(self, key: str, phase: CallPhase) -> bool:
        return False

    def enter(self, key: str, phase: CallPhase) -> CallEntry:
        call = super().enter(key, phase)
        if phase is CallPhase.SETTLING:
            self.move(call, CallPhase.ABSENT)
        return call


class Lenient(Recorded):
    """Planted: a call that was prepared runs from where it is, in no phase."""

    def start(self, execute: ExecuteCall) -> None:
        call = self.find(execute.call.key)
        if call is None or call.phase is CallPhase.ABSENT:
            super().start(execute)
            return
        self.move(call, CallPhase.RUNNING)
        self.move(call, CallPhase.ABSENT)
        super().start(execute)


@pytest.mark.parametrize("planted", [Eager, Forgetful, Hasty, Lenient])
def test_planted_move_is_found(planted: type[Recorded]) -> None:
    """Each of them breaks the property."""

    class Planted(SessionRunner):
        """A runner with that book."""

        make_book: ClassVar[type[CallBook]] = planted

    def breaks(seed: int) -> bool:
        try:
            run(draw_script(seed), Planted, has_hooks=bool(seed % 2))
        except AssertionError:
            return True
        return False

    assert any(breaks(seed) for seed in range(400))
