"""Values that are made quickly are the same values, made from the same arguments."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.values.fast_init import add_fast_init


@dataclass(frozen=True, slots=True)
class Plain:
    """As ``dataclass`` makes it."""

    key: str
    at_ms: int = 0
    note: str | None = None


@add_fast_init
@dataclass(frozen=True, slots=True)
class Quick:
    """The same fields."""

    key: str
    at_ms: int = 0
    note: str | None = None


@add_fast_init
@dataclass(frozen=True, slots=True)
class One:
    """One field."""

    values: tuple[int, ...]


@add_fast_init
@dataclass(frozen=True, slots=True)
class Empty:
    """Without fields."""


@dataclass(frozen=True, slots=True)
class Further(Quick):
    """A field more, as ``dataclass`` makes it."""

    more: int = 0


ARGUMENTS = st.lists(st.one_of(st.text(), st.integers(), st.none()), max_size=4)
NAMED = st.dictionaries(st.sampled_from(["key", "at_ms", "note", "other"]), st.integers(), max_size=3)


def made(cls: type[Any], given: list[Any], named: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the fields of a value, None where the arguments make none."""
    try:
        value = cls(*given, **named)
    except TypeError:
        return None
    return value.key, value.at_ms, value.note


@given(ARGUMENTS, NAMED)
def test_same_arguments_make_the_same_value(given: list[Any], named: dict[str, Any]) -> None:
    """Positions, names, defaults, and what is refused: one argument too many, too few, unknown or twice."""
    assert made(Quick, given, named) == made(Plain, given, named)


def test_it_stays_the_value_it_was() -> None:
    """Frozen, hashable, equal by fields; copied, replaced and pickled; its signature says the same."""
    value = Quick("a", note="b")
    assert value == Quick("a", 0, "b")
    assert hash(value) == hash(Quick("a", 0, "b"))
    assert repr(value) == "Quick(key='a', at_ms=0, note='b')"
    for same in (copy.copy(value), replace(value), pickle.loads(pickle.dumps(value))):
        assert same == value
    assert replace(value, at_ms=2) == Quick("a", 2, "b")
    with pytest.raises(FrozenInstanceError):
        value.key = "c"  # type: ignore[misc]
    assert str(inspect.signature(Quick)) == str(inspect.signature(Plain))


@pytest.mark.parametrize(
    "value", [Quick("a", 1), One((1, 2)), One(()), Empty(), Further("a", 1, "b", 2), (Quick("a"), One((3,)))]
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_values_come_back_as_they_were(value: object, protocol: int) -> None:
    """With any number of fields; a subclass keeps the fields that it adds."""
    back = pickle.loads(pickle.dumps(value, protocol))
    assert (type(back), back) == (type(value), value)
    assert copy.deepcopy(value) == value


def test_values_are_pickled_without_looking_up_their_fields() -> None:
    """The pickle holds the values and no state to be set field by field."""
    assert len(pickle.dumps(Quick("a", 1, "b"))) < len(pickle.dumps(Plain("a", 1, "b")))


def test_class_that_does_more_is_left_as_it_is() -> None:
    """Factories, checks, keyword-only fields and classes without slots keep their own way."""

    @dataclass(frozen=True, slots=True)
    class Filled:
        names: list[str] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Checked:
        name: str

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("a name is needed")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: str

    @dataclass(frozen=True)
    class Open:
        name: str

    for cls in (Filled, Checked, Named, Open):
        own = cls.__init__
        assert add_fast_init(cls) is cls
        assert cls.__init__ is own
