"""Values at the edge: what fits is taken as it is, and what does not is one error in the house's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from sessiontree import ConfigError
from sessiontree.contracts.settings.given_values import (
    TEXT,
    Choice,
    Give,
    Instance,
    Lifetime,
    Natural,
    Parts,
    Positive,
    Text,
    Toggle,
    check_fields,
    check_options,
    take_settings,
)
from sessiontree.contracts.settings.settings import Budget

HALF = "\ud800"


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Number(int):
    """A number of another class."""


class Hidden:
    """Can't be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("planted")


class Options(TypedDict, total=False):
    """One of each kind."""

    ttl_s: Lifetime
    size: Natural
    most: Positive
    name: Text
    wide: Toggle
    budget: Annotated[Budget | None, Instance("a Budget, or None")]
    names: Annotated[Sequence[Text] | None, Parts("a list of names, or None")]
    places: Annotated[Mapping[str, Annotated[Budget, Instance("a Budget")]], Parts("budgets by name")]
    mode: Annotated[Literal["auto", "never"] | None, Choice()]
    colour: Annotated[Colour, Choice()]
    free: int


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ttl_s", float("nan"), "ttl_s is nan; give seconds above 0, or None for the default"),
        ("ttl_s", float("inf"), "ttl_s is inf; give seconds"),
        ("ttl_s", True, "ttl_s is True; give seconds"),
        ("ttl_s", "5", "ttl_s is '5'; give seconds"),
        ("ttl_s", -0.0, "ttl_s is -0.0; give seconds"),
        ("ttl_s", 10**400, "ttl_s is 10{59}…; give seconds"),
        ("size", -1, "size is -1; give a whole number, at least 0"),
        ("size", True, "size is True; give a whole number"),
        ("size", 2.0, "size is 2.0; give a whole number"),
        ("most", 0, "most is 0; give a whole number, at least 1"),
        ("most", None, "most is None; give a whole number, at least 1"),
        ("name", "", "name is ''; give text with something in it"),
        ("name", " \n", r"name is ' \\n'; give text"),
        ("name", b"bytes", "name is b'bytes'; give text"),
        ("name", Hidden(), "name is <Hidden that can't be shown>; give text"),
        ("wide", 1, "wide is 1; give True or False"),
        ("budget", {"tokens": 5}, "budget is {'tokens': 5}; give a Budget, or None"),
        ("budget", Budget, "budget is <class .*Budget'>; give a Budget"),
        ("names", "one", "names is 'one'; give a list of names, or None"),
        ("names", b"one", "names is b'one'; give a list of names"),
        ("names", ["a", ""], r"names\.1 is ''; give text with something in it"),
        ("names", {"a": 1}, "names is {'a': 1}; give a list of names"),
        ("places", [Budget()], r"places is \[Budget.*…; give budgets by name"),
        ("places", {"x": 3}, r"places\.x is 3; give a Budget"),
        ("mode", "autp", "mode 'autp' is not one of auto, never, None; did you mean 'auto'"),
        ("mode", ["auto"], r"mode \['auto'\] is not one of auto, never, None"),
        ("colour", "rde", "colour 'rde' is not one of red, blue"),
        ("agent", 3, "call takes no option 'agent'; choose one of: "),
        ("nmae", "x", "call takes no option 'nmae'; did you mean 'name'"),
    ],
)
def test_what_does_not_fit_is_named_with_what_to_give(name: str, value: object, words: str) -> None:
    """Which value, what was given, and what to give."""
    with pytest.raises(ConfigError, match=f"^{words}"):
        check_options({name: value}, Options, "call")


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("ttl_s", 5, 5.0),
        ("ttl_s", None, None),
        ("size", 10**30, 10**30),
        ("size", Number(4), 4),
        ("name", HALF, HALF),
        ("names", ("a", HALF), ("a", HALF)),
        ("names", {"a"}, ("a",)),
        ("names", None, None),
        ("mode", None, None),
        ("colour", Colour.RED, Colour.RED),
        ("colour", "blue", "blue"),
    ],
)
def test_what_fits_is_taken_as_it_is(name: str, value: object, taken: object) -> None:
    """Half of a character too: who stores a text decides about it."""
    assert check_options({name: value}, Options, "call") == {name: taken}


def test_option_without_a_mark_is_passed_over() -> None:
    """Its owner looks at it."""
    assert check_options({"free": object()}, Options, "call") == {}


def test_one_value_is_checked_by_itself() -> None:
    """It is named by its caller."""
    assert TEXT.take("x", "task") == "x"
    with pytest.raises(ConfigError, match=r"^task is 5; give text with something in it$") as caught:
        TEXT.take(5, "task")
    assert caught.value.__suppress_context__


@dataclass(frozen=True)
class Pause:
    """Has a field with a mark."""

    seconds: Annotated[float, Give("seconds")]
    note: Any = None

    def __post_init__(self) -> None:
        check_fields(self, "Pause: ")


def test_fields_of_a_dataclass_are_checked() -> None:
    """And kept as they fit."""
    assert type(Pause(5).seconds) is float
    with pytest.raises(ConfigError, match=r"^Pause: seconds is '5'; give seconds$"):
        Pause("5")  # type: ignore[arg-type]


class File(BaseModel):
    """A file's content."""

    name: Annotated[str, Give("a name")]
    key: int


def test_settings_of_a_file_show_no_value() -> None:
    """They may be secret."""
    assert take_settings(lambda: File.model_validate({"name": "a", "key": 1}), "f: ").key == 1
    with pytest.raises(ConfigError) as caught:
        take_settings(lambda: File.model_validate({"name": 5, "key": "secret"}), "file 'x': ")
    assert str(caught.value).startswith("file 'x': name: give a name; key: ")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
