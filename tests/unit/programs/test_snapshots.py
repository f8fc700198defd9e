"""Snapshots of programs that wait: a cache, so whatever becomes of one, the program's facts decide."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.programs import snapshots
from sessiontree.programs.snapshots import SNAPSHOTS, ProgramSnapshot, SnapshotCache, digest_of_answers
from tests.unit.programs.program_world_fakes import Run, World, interpreters

BOUND = 100


def answer(key: str, text: str) -> CallResolved:
    """Return an answer to a call."""
    return CallResolved(key, "ok", ToolResultMessage("c", "look", (TextContent(text),), None, False, 1))


def snapshot(size: int = 1) -> ProgramSnapshot:
    """Return a snapshot of so many bytes."""
    return ProgramSnapshot("1.4.0", 0, digest_of_answers([]), bytes(size), {})


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, BOUND + 10)), max_size=40))
def test_cache_keeps_the_newest_up_to_its_bound(puts: list[tuple[str, int]]) -> None:
    """A program has one snapshot at most; one that is too long replaces none by itself, and is not kept."""
    cache = SnapshotCache(BOUND)
    newest: dict[str, int] = {}
    for program, chars in puts:
        cache.put(program, snapshot(chars))
        newest.pop(program, None)
        if chars <= BOUND:
            newest[program] = chars
        while sum(newest.values()) > BOUND:
            del newest[next(iter(newest))]
    for program in "abcdef":
        found = cache.take(program)
        assert (None if found is None else len(found.state)) == newest.get(program)
        assert cache.take(program) is None


def test_snapshot_fits_its_own_answers_in_their_order_alone() -> None:
    """Also not those of another release, and not fewer than it was given."""
    one, two = answer("1.0/0", "1"), answer("1.0/1", "2")
    kept = ProgramSnapshot("1.4.0", 2, digest_of_answers([one, two]), b"", {})
    assert kept.fits("1.4.0", [one, two])
    assert kept.fits("1.4.0", [one, two, answer("1.0/2", "3")])
    assert not kept.fits("1.4.1", [one, two])
    assert not kept.fits("1.4.0", [two, one])
    assert not kept.fits("1.4.0", [one])
    assert not kept.fits("1.4.0", [one, answer("1.0/1", "3")])


TWO_AT_ONCE = """
import asyncio
order = []
async def noted(n):
    await look(n=n)
    order.append(n)
await asyncio.gather(noted(0), noted(1))
await look(n=2)
order
"""


LATE = TWO_AT_ONCE.replace("noted(0), noted(1)", "noted(0), noted(1), noted(2)").replace("n=2", "n=3")


async def run_once(code: str, *, rests: bool) -> tuple[Run, int]:
    """Return what comes of a program, and how often an interpreter went on from a snapshot."""
    async with interpreters() as pool:
        world = World(pool, code, Random(1), lambda: False, rests=lambda: rests)
        run = await world.go()
        return run, world.restored


async def test_program_that_rested_goes_on_from_its_snapshot() -> None:
    """It does not run from its text again, and comes to the same."""
    undisturbed, _ = await run_once(TWO_AT_ONCE, rests=False)
    rested, restored = await run_once(TWO_AT_ONCE, rests=True)
    assert (rested.result, rested.effects, rested.asked) == (
        undisturbed.result,
        undisturbed.effects,
        undisturbed.asked,
    )
    assert restored == 3


class InTurn(Random):
    """Answers open calls in a given order of their numbers."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers = list(numbers)

    def choice(self, keys: Any) -> Any:
        return f"1.0/{self._numbers.pop(0)}" if self._numbers else keys[0]


async def test_answers_that_never_became_facts_are_not_in_a_programs_result() -> None:
    """A host gave them to its interpreter, and was lost; the journal has them in another order."""
    async with interpreters() as pool:
        before = iter([False, False, True, False])
        rests = iter([False, False, True, False])
        world = World(
            pool, LATE, InTurn(0, 1, 2, 1), lambda: next(before, False), rests=lambda: next(rests, False)
        )
        world.forgets_answer = lambda: True
        run = await world.go()
        assert run.result == "[0,2,1]"
        assert run.kills == 1


SPOILED = [b"", b"AAAA", bytes(1000)]


@pytest.mark.parametrize("state", SPOILED)
async def test_spoiled_snapshot_costs_nothing(state: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs from its text, with all its answers."""
    put = SNAPSHOTS.put

    def spoiled(program: str, kept: ProgramSnapshot) -> None:
        put(program, ProgramSnapshot(kept.version, kept.given, kept.digest, state, kept.kept))

    monkeypatch.setattr(SnapshotCache, "put", lambda self, program, kept: spoiled(program, kept))
    undisturbed, _ = await run_once(TWO_AT_ONCE, rests=False)
    run, _ = await run_once(TWO_AT_ONCE, rests=True)
    assert run.result == undisturbed.result
    assert run.effects == undisturbed.effects


async def test_another_release_runs_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshots are another release's, and it reads none of them."""
    monkeypatch.setattr(snapshots.ProgramSnapshot, "fits", lambda self, version, answers: False)
    run, restored = await run_once(TWO_AT_ONCE, rests=True)
    assert run.result in {"[0,1]", "[1,0]"}
    assert restored == 0
