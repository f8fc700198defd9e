"""Whatever a program does, and whenever its host is lost: it comes to the end of an undisturbed run."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.runtime.runner.calls import program_runs
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.state import SessionState
from tests.unit.programs.program_world_fakes import Run, World, interpreters

CASES = 40
SHORT_CASES = 10


def call_text(random: Random) -> str:
    """Return a call of a tool."""
    return f"{random.choice(['look', 'look', 'note', 'fail'])}(n={random.randrange(100)})"


def fan_out_text(random: Random, kind: int) -> str:
    """Return a child, several, or a race; a child fails if its task is odd."""
    tasks = [str(random.randrange(100)) for _ in range(random.randint(1, 4))]
    if kind == 5:
        return f"spawn('worker', {tasks[0]!r})"
    how = f"concurrency={random.randint(1, 3)}, on_error={random.choice(['raise', 'return'])!r}"
    if kind == 6:
        return f"race('worker', {tasks}, first={random.randint(1, len(tasks))}, {how})"
    return f"map('worker', {tasks}, stop_after={random.choice([None, 1, 2])}, {how})"


def statements(random: Random, depth: int, indent: str) -> list[str]:
    """Return statements that add what their calls return to ``got``."""
    lines: list[str] = []
    for _ in range(random.randint(1, 3)):
        kind = random.randrange(8) if depth else random.choice([0, 1, 2, 5, 6, 7])
        if kind == 0:
            lines.append(f"{indent}got.append(await safely({call_text(random)}))")
        elif kind == 1:
            several = ", ".join(f"safely({call_text(random)})" for _ in range(random.randint(2, 5)))
            lines.append(f"{indent}got.extend(await asyncio.gather({several}))")
        elif kind == 2:
            lines.append(f"{indent}try:")
            lines.append(f"{indent}    got.append(await {call_text(random)})")
            lines.append(f"{indent}except RuntimeError as error:")
            lines.append(f"{indent}    got.append(str(error))")
        elif kind == 3:
            lines.append(f"{indent}for turn in range({random.randint(1, 3)}):")
            lines += statements(random, depth - 1, indent + "    ")
        elif kind >= 5:
            lines.append(f"{indent}got.append(await safely({fan_out_text(random, kind)}))")
        else:
            lines.append(f"{indent}if len(got) % 2 == {random.randrange(2)}:")
            lines += statements(random, depth - 1, indent + "    ")
    return lines


def generated(seed: int) -> str:
    """Return a program; one may also end by an exception."""
    random = Random(seed)
    body = statements(random, 2, "")
    if random.randrange(5) == 0:
        body.append(f"await {call_text(random)}")
    return "\n".join(
        [
            "import asyncio",
            "import random",
            "got = []",
            "async def safely(call):",
            "    try:",
            "        found = await call",
            "        arrived.append(str(found))",
            "        return found",
            "    except RuntimeError as error:",
            "        arrived.append(str(error))",
            "        return str(error)",
            "arrived = []",
            *body,
            "phase('end')",
            "[got, arrived, random.random()]",
        ]
    )


async def both(pool: Any, seed: int, rules: Any = react) -> tuple[Run, Run]:
    """Run a program undisturbed, and once more with losses; both answer open calls in the same order."""
    code = generated(seed)
    undisturbed = await World(pool, code, Random(seed), lambda: False).go()
    chance, left = Random(seed), [8]

    def kill() -> bool:
        is_now = left[0] > 0 and chance.random() < 0.4
        left[0] -= is_now
        return is_now

    def rests() -> bool:
        return chance.random() < 0.2

    return undisturbed, await World(pool, code, Random(seed), kill, rules, rests).go()


def check_equal(undisturbed: Run, disturbed: Run) -> None:
    """Result, effects and everything that was asked for are the same."""
    assert disturbed.result == undisturbed.result
    assert disturbed.is_error == undisturbed.is_error
    assert sorted(disturbed.effects) == sorted(undisturbed.effects)
    assert disturbed.asked == undisturbed.asked


async def _all_equal(cases: range) -> None:
    kills = 0
    async with interpreters() as pool:
        for seed in cases:
            undisturbed, disturbed = await both(pool, seed)
            check_equal(undisturbed, disturbed)
            kills += disturbed.kills
    assert kills > len(cases)


async def test_lost_host_changes_nothing_of_a_program() -> None:
    """Result, effects, calls and notes are those of an undisturbed run, in any order of answers."""
    await _all_equal(range(SHORT_CASES))


@pytest.mark.long
async def test_lost_host_changes_nothing_of_many_programs() -> None:
    """As above, with more programs."""
    await _all_equal(range(SHORT_CASES, SHORT_CASES + 20 * CASES))


def forgets_calls(state: SessionState, stimulus: Stimulus) -> tuple[list[Any], list[Any]]:
    """Planted: an answered call is asked for again."""
    facts, told = react(state, stimulus)
    for call in state.calls.values():
        if call.program is not None and len(call.program.answers) > 1:
            call.program.asked.clear()
    return facts, told


def answers_by_number(state: SessionState, stimulus: Stimulus) -> tuple[list[Any], list[Any]]:
    """Planted: a replay gives answers in the order of the calls."""
    facts, told = react(state, stimulus)
    for call in state.calls.values():
        if call.program is not None:
            call.program.answers.sort(key=lambda each: int(each.key.rpartition("/")[2]))
    return facts, told


def swallows_failures(state: SessionState, stimulus: Stimulus) -> tuple[list[Any], list[Any]]:
    """Planted: a failed call returns nothing after a loss."""
    facts, told = react(state, stimulus)
    if type(stimulus).__name__ == "Recovered":
        for call in state.calls.values():
            if call.program is not None:
                kept = [each for each in call.program.answers if not each.message.is_error]
                call.program.answers[:] = kept
    return facts, told


def starts_children_again(state: SessionState, stimulus: Stimulus) -> tuple[list[Any], list[Any]]:
    """Planted: a call whose child runs is run again after a loss."""
    facts, told = react(state, stimulus)
    if type(stimulus).__name__ == "Recovered":
        for call in [each for each in state.calls.values() if each.phase == "child"]:
            again = CheckedCall(call.key, call.call.name, call.call.arguments, "", 1, True)
            told.append(todo.ExecuteCall(call.call.id, again))
    return facts, told


def keeps_withdrawn_children(state: SessionState, stimulus: Stimulus) -> tuple[list[Any], list[Any]]:
    """Planted: a child that its program gave up goes on, and its report comes late."""
    facts, told = react(state, stimulus)
    return facts, [each for each in told if not isinstance(each, todo.ToTree)]


PLANTED = (
    *(forgets_calls, answers_by_number, swallows_failures),
    *(starts_children_again, keeps_withdrawn_children),
)


@pytest.mark.parametrize("planted", PLANTED)
async def test_planted_fault_is_found(planted: Any) -> None:
    """Each makes some program differ, or not end."""

    async def search() -> None:
        async with interpreters() as pool:
            for seed in range(SHORT_CASES):
                check_equal(*await both(pool, seed, planted))

    with pytest.raises(AssertionError):
        await asyncio.wait_for(search(), 60)


def test_idle_time_is_longer_than_a_test() -> None:
    """No interpreter of these tests is ended for being idle, so that losses are those that were drawn."""
    assert program_runs.IDLE_S >= 1
