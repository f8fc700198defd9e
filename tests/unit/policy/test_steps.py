"""REL-P1 to P6: steps only remove, deny wins, order changes nothing but the reason, empty is empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.policy.catalog import CatalogRow
from sessiontree.policy.compiled import ToolDecision, apply_steps
from sessiontree.policy.steps import Step
from sessiontree.policy.vocabulary import Vocabulary
from tests.unit.policy.policy_strategies import ENTRIES, ROW_SETS, ROWS, STEP_LISTS, STEPS

Sift: TypeAlias = Callable[[Iterable[Step], Vocabulary], ToolDecision]
SEARCH = settings(max_examples=120, derandomize=True, database=None, phases=[Phase.generate])


def left(sift_: Sift, steps: Sequence[Step], rows: Sequence[CatalogRow]) -> frozenset[str]:
    """Return the names a sift lets stay."""
    return sift_(steps, Vocabulary(rows)).kept


def only_removes(sift_: Sift) -> None:
    """REL-P1: what is left was there."""

    @SEARCH
    @given(steps=STEP_LISTS, rows=ROW_SETS)
    def check(steps: list[Step], rows: tuple[CatalogRow, ...]) -> None:
        assert left(sift_, steps, rows) <= {row.name for row in rows}

    check()


def never_adds(sift_: Sift) -> None:
    """REL-P2: one more step, one more deny entry or one allow entry less never adds a tool."""

    @SEARCH
    @given(steps=STEP_LISTS, rows=ROW_SETS, more=STEPS, at=st.integers(0, 6), entry=ENTRIES, data=st.data())
    def check(
        steps: list[Step],
        rows: tuple[CatalogRow, ...],
        more: Step,
        at: int,
        entry: str,
        data: st.DataObject,
    ) -> None:
        before = left(sift_, steps, rows)
        assert left(sift_, [*steps[:at], more, *steps[at:]], rows) <= before
        if not steps:
            return
        place = data.draw(st.integers(0, len(steps) - 1))
        step = steps[place]
        denied = replace(step, deny=(*step.deny, entry))
        assert left(sift_, [*steps[:place], denied, *steps[place + 1 :]], rows) <= before
        if step.allow:
            shrunk = replace(step, allow=step.allow[1:])
            assert left(sift_, [*steps[:place], shrunk, *steps[place + 1 :]], rows) <= before

    check()


def deny_wins(sift_: Sift) -> None:
    """REL-P3: what any step denies is gone, wherever it is and whatever else allows it."""

    @SEARCH
    @given(steps=STEP_LISTS, at=st.integers(0, 6), row=st.sampled_from(ROWS), step=STEPS)
    def check(steps: list[Step], at: int, row: CatalogRow, step: Step) -> None:
        denies = replace(step, deny=(row.name,), allow=("*", row.name), profile="", plugin="")
        assert row.name not in left(sift_, [*steps[:at], denies, *steps[at:]], ROWS)

    check()


def order_is_no_matter(sift_: Sift) -> None:
    """REL-P4: the same steps in another order leave the same."""

    @SEARCH
    @given(steps=STEP_LISTS, rows=ROW_SETS, data=st.data())
    def check(steps: list[Step], rows: tuple[CatalogRow, ...], data: st.DataObject) -> None:
        other = data.draw(st.permutations(steps))
        assert left(sift_, other, rows) == left(sift_, steps, rows)

    check()


def twice_is_once(sift_: Sift) -> None:
    """REL-P5: applied to what they left, the steps leave it all."""

    @SEARCH
    @given(steps=STEP_LISTS, rows=ROW_SETS)
    def check(steps: list[Step], rows: tuple[CatalogRow, ...]) -> None:
        once = left(sift_, steps, rows)
        assert left(sift_, steps, [row for row in rows if row.name in once]) == once
        assert left(sift_, [*steps, *steps], rows) == once

    check()


def empty_is_empty(sift_: Sift) -> None:
    """REL-P6: an empty allow list removes all, no list removes nothing, an unknown entry widens nothing."""
    names = frozenset(row.name for row in ROWS)
    assert left(sift_, [Step("a", 3, allow=())], ROWS) == frozenset()
    assert left(sift_, [Step("a", 3)], ROWS) == names
    assert left(sift_, [], ROWS) == names

    @SEARCH
    @given(steps=STEP_LISTS, step=STEPS, unknown=st.sampled_from(("nothing", "group:nothing", "no_*_such")))
    def check(steps: list[Step], step: Step, unknown: str) -> None:
        listed = replace(step, allow=step.allow or ())
        more = replace(listed, allow=(*(listed.allow or ()), unknown), deny=(*listed.deny, unknown))
        assert left(sift_, [*steps, more], ROWS) == left(sift_, [*steps, listed], ROWS)

    check()


PROPERTIES = [only_removes, never_adds, deny_wins, order_is_no_matter, twice_is_once, empty_is_empty]


@pytest.mark.covers("S41", "REL-P1", "REL-P2", "REL-P3", "REL-P4", "REL-P5", "REL-P6", "S42", "POL1")
@pytest.mark.slow
@pytest.mark.parametrize("holds", PROPERTIES)
def test_steps_keep_their_promises(holds: Callable[[Sift], None]) -> None:
    """REL-P1 to P6 hold for what decides."""
    holds(apply_steps)


def _masks(steps: Iterable[Step], words: Vocabulary) -> list[tuple[Step, int]]:
    return [(step, step.keeps(words)) for step in steps]


def _made(words: Vocabulary, mask: int) -> ToolDecision:
    return ToolDecision(frozenset(words.list_names(mask)), ())


def adds_a_ghost(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Planted: a name nobody gave."""
    return ToolDecision(apply_steps(steps, words).kept | {"ghost"}, ())


def allow_lists_bring_back(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Planted: a later allow list brings back what an earlier step removed."""
    mask = words.all
    for step, keeps in _masks(steps, words):
        mask = mask | keeps if step.allow else mask & keeps
    return _made(words, mask)


def allow_beats_deny(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Planted: what a list names on both sides stays."""
    mask = words.all
    for step, keeps in _masks(steps, words):
        for entry in step.allow or ():
            keeps |= words.allowed(entry)
        mask &= keeps
    return _made(words, mask)


def last_word_wins(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Planted: only the last step counts."""
    mask = words.all
    for _, keeps in _masks(steps, words):
        mask = keeps
    return _made(words, mask)


def removes_by_turns(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Planted: what two steps remove is there again."""
    mask = words.all
    for _, keeps in _masks(steps, words):
        mask ^= words.all & ~keeps
    return _made(words, mask)


def empty_allows_all(steps: Iterable[Step], words: Vocabulary) -> ToolDecision:
    """Planted: an empty allow list is taken for none, as in the specification's source system."""
    return apply_steps([replace(step, allow=step.allow or None) for step in steps], words)


PLANTED = [
    (only_removes, adds_a_ghost),
    (never_adds, allow_lists_bring_back),
    (deny_wins, allow_beats_deny),
    (order_is_no_matter, last_word_wins),
    (twice_is_once, removes_by_turns),
    (empty_is_empty, empty_allows_all),
]


@pytest.mark.covers("REL-P1", "REL-P2", "REL-P3", "REL-P5")
@pytest.mark.parametrize(("holds", "planted"), PLANTED)
def test_planted_fault_breaks_its_promise(holds: Callable[[Sift], None], planted: Sift) -> None:
    """Each promise finds the fault it is against."""
    with pytest.raises(AssertionError):
        holds(planted)
