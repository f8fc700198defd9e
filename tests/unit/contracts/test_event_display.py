"""Progress as it is kept and shown: JSON, short, a copy of its own, whatever a tool reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.short_values import SHOWN_CHARS, shorten_progress

Shorten = Callable[[object, int], JsonValue]

SLACK = 60 * 40
"""What markers of what was left out may come to, one for each level."""
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 20_000).map(lambda bits: 1 << bits)
    | st.floats()
    | st.text(max_size=40)
    | st.integers(0, 3_000).map(lambda count: "é" * count)
    | st.binary(max_size=9)
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=6)
        | st.sets(st.integers(), max_size=5)
    ),
    max_leaves=30,
)


def weight(value: JsonValue) -> int:
    """Return how many characters of text and how many digits a value holds."""
    if isinstance(value, dict):
        return sum(len(key) + weight(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(weight, value))
    return len(value) if isinstance(value, str) else len(dump_json(value))


def is_short(shorten: Shorten, progress: object, most: int) -> None:
    """Property: what is kept is JSON, weighs no more than it may, and is what it was where that is little."""
    kept = shorten(progress, most)
    text = dump_json(kept)
    assert json.loads(text) == kept
    assert weight(kept) <= most + SLACK


@given(ANYTHING, st.integers(0, 2_000))
def test_whatever_is_reported_is_kept_short(progress: object, most: int) -> None:
    """Numbers of any size, bytes, objects and texts."""
    is_short(shorten_progress, progress, most)


@given(
    st.recursive(st.none() | st.booleans() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3))
)
def test_what_is_little_stays_as_it_is(progress: Any) -> None:
    """And is a copy: what a tool does with its own list later changes nothing."""
    kept = shorten_progress(progress)
    assert kept == progress
    assert not isinstance(kept, list) or kept is not progress


def test_lot_costs_no_more_than_what_is_kept() -> None:
    """A list of ten million and a text of a hundred million are looked at as far as they are kept."""
    looked = 0

    class Endless(list[int]):
        def __iter__(self) -> Any:
            nonlocal looked
            while True:
                looked += 1
                yield looked

        def __len__(self) -> int:
            return 10**7

    kept = shorten_progress({"rows": Endless(), "text": "x" * 10**8})
    assert isinstance(kept, dict)
    rows = kept["rows"]
    assert isinstance(rows, list)
    assert looked <= SHOWN_CHARS
    assert rows[-1] == f"… {10**7 - len(rows) + 1} more"
    assert kept["…"] == "1 more"
    assert len(str(shorten_progress("x" * 10**8))) <= SHOWN_CHARS


def test_what_holds_itself_ends() -> None:
    """Some fifty levels down."""
    circle: list[Any] = []
    circle.append(circle)
    assert dump_json(shorten_progress(circle)).count("[") < 60


@pytest.mark.parametrize(
    "planted",
    [
        lambda progress, most: progress,
        lambda progress, most: shorten_progress(progress),
        lambda progress, most: repr(progress),
    ],
)
def test_planted_ways_to_keep_it_are_found(planted: Shorten) -> None:
    """One that keeps all, one that knows no limit, one that writes it out."""
    with pytest.raises((AssertionError, TypeError, ValueError)):
        is_short(planted, ["é" * 9_000, 1 << 99_999], 100)
