"""Cycles: folders that lead to each other, as a look along every way finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.cycles import cycles

Cycles = Callable[[Mapping[str, Iterable[str]]], list[tuple[str, ...]]]

GRAPHS = st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefghi"), max_size=3))


def reached(leads_to: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return everything that can be reached in one step or more."""
    found: set[str] = set()
    waiting = list(leads_to.get(start, ()))
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting.extend(leads_to.get(at, ()))
    return found


def are_those_that_lead_to_each_other(find: Cycles, leads_to: Mapping[str, set[str]]) -> None:
    """Two folders are in one component exactly when each can be reached from the other."""
    ways = {folder: reached(leads_to, folder) for folder in leads_to}
    expected = {
        tuple(sorted({folder, *(other for other in way if folder in ways.get(other, ()))}))
        for folder, way in ways.items()
        if folder in way
    }
    found = find(leads_to)
    assert found == sorted(found, key=lambda one: (-len(one), one))
    assert found == sorted((one for one in expected if len(one) > 1), key=lambda one: (-len(one), one))


@pytest.mark.slow
@given(GRAPHS)
@settings(max_examples=300)
def test_components_are_those_a_naive_look_finds(leads_to: dict[str, set[str]]) -> None:
    """Tarjan's search and a walk from every folder agree."""
    are_those_that_lead_to_each_other(cycles, leads_to)


def pairs_alone(leads_to: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Find folders that import each other directly, and join nothing."""
    pairs = {
        tuple(sorted((a, b)))
        for a, targets in leads_to.items()
        for b in targets
        if a != b and a in leads_to.get(b, ())
    }
    return sorted(pairs)


def one_way(leads_to: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Find what leads to something that has been seen before."""
    found = [
        tuple(sorted({folder, *targets}))
        for folder, targets in leads_to.items()
        if any(one < folder for one in targets)
    ]
    return sorted({one for one in found if len(one) > 1}, key=lambda one: (-len(one), one))


@pytest.mark.parametrize("broken", [pairs_alone, one_way])
def test_a_search_that_misses_ways_is_found_out(broken: Cycles) -> None:
    """The property kills a look at pairs, and one that never goes back."""

    @settings(max_examples=1_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(GRAPHS)
    def planted(leads_to: dict[str, set[str]]) -> None:
        are_those_that_lead_to_each_other(broken, leads_to)

    with pytest.raises(AssertionError):
        planted()


def test_long_ways_need_no_deep_stack() -> None:
    """A circle of fifty thousand folders is one cycle."""
    names = [f"{number:05}" for number in range(50_000)]
    circle = dict(zip(names, ([name] for name in [*names[1:], names[0]]), strict=True))
    assert cycles(circle) == [tuple(names)]
