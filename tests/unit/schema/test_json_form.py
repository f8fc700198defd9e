"""Values copied as pure JSON, or refused with the place."""

from __future__ import annotations

import json
import math
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.schema.json_form import LARGEST_NUMBER, MAX_DEPTH, NotJson, to_json_form

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Word(StrEnum):
    """A text of its own kind."""

    A = "a"


class Number(IntEnum):
    """A number of its own kind."""

    ONE = 1


def nested(levels: int) -> Any:
    """Return lists in lists."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(JSON)
def test_json_is_copied_as_it_is(value: Any) -> None:
    """The copy is equal, of the same types, and shares no container."""
    copy = to_json_form(value)
    assert repr(copy) == repr(value)
    if isinstance(value, dict | list):
        assert copy is not value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, ("a",)), [1, ["a"]]),
        (MappingProxyType({"a": Word.A}), {"a": "a"}),
        ({Word.A: Number.ONE}, {"a": 1}),
        (LARGEST_NUMBER, LARGEST_NUMBER),
        (2**53 + 1, 2**53 + 1),
    ],
)
def test_what_json_can_say_becomes_plain(value: Any, expected: Any) -> None:
    """Tuples, read-only mappings and named values lose their kind; whole numbers stay exact."""
    copy = to_json_form(value)
    assert repr(copy) == repr(expected)
    assert json.loads(json.dumps(copy)) == expected


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"a": [0, b"x"]}, ["a", 1], "a bytes"),
        ({"a": {1: 2}}, ["a"], "has a key that is an int"),
        ([math.nan], [0], "is nan"),
        ([0.5, -math.inf], [1], "is -inf"),
        ({"n": LARGEST_NUMBER + 1}, ["n"], "too large"),
        ({"n": 10**5000}, ["n"], "too large"),
        (["ok", "\ud800"], [1], "half of a surrogate pair"),
        ({"\udfff": 1}, [], "half of a surrogate pair"),
        ({"a": {1, 2}}, ["a"], "a set"),
        ([object()], [0], "an object"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_place(value: Any, path: list[Any], reason: str) -> None:
    """The path leads to the culprit, so a model learns which field."""
    with pytest.raises(NotJson) as caught:
        to_json_form(value)
    assert caught.value.path[::-1] == path
    assert reason in caught.value.reason


def test_nesting_is_taken_to_its_limit_and_no_further() -> None:
    """128 levels pass, 129 do not; ten thousand and a list in itself end the same way."""
    assert to_json_form(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    endless: list[Any] = []
    endless.append(endless)
    for value in (nested(MAX_DEPTH + 1), nested(10_000), endless):
        with pytest.raises(NotJson, match="levels deep"):
            to_json_form(value)
