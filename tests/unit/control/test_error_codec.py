"""Refusals: every typed error arrives at the other end as itself, and nothing else can be made of words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import (
    AnswerTooLate,
    ConfigError,
    LimitExceeded,
    PermissionDenied,
    SessionTreeError,
)
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.control.protocol import ERRORS, decode_error, encode_error
from sessiontree.testing.strategies import json_values
from tests.system.house.error_fixtures import sample_of

CLASSES = sorted(set(ERRORS.values()), key=lambda cls: cls.__name__)


def crosses_whole(to_wire: Callable[[BaseException], dict[str, Any]], error: SessionTreeError) -> None:
    """Type, fields and text are the same after a journey as JSON text."""
    arrived = decode_error(json.loads(dump_json(to_wire(error))))
    assert type(arrived) is type(error)
    assert arrived.args == error.args
    assert list(map(type, arrived.args)) == list(map(type, error.args))
    assert str(arrived) == str(error)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_crosses_whole(cls: type[SessionTreeError]) -> None:
    """Errors are raised again as what they were, field by field."""
    crosses_whole(encode_error, sample_of(cls))


def _as_text(error: BaseException) -> dict[str, Any]:
    return {"type": type(error).__name__, "fields": [str(error)]}


def _as_root(error: BaseException) -> dict[str, Any]:
    return {"type": "SessionTreeError", "fields": list(error.args)}


@pytest.mark.parametrize("bug", [_as_text, _as_root])
def test_error_that_loses_something_is_found(bug: Callable[[BaseException], dict[str, Any]]) -> None:
    """The property fails where fields or the type are lost."""
    with pytest.raises(AssertionError):
        crosses_whole(bug, AnswerTooLate("approval", "r1", "approved"))


class Private(ConfigError):
    """An error of somebody else's."""


@pytest.mark.parametrize(
    "error", [Private("x"), ValueError("x"), KeyError("x"), LimitExceeded("main", "tokens", float("inf"), 1)]
)
def test_what_is_unknown_or_has_no_json_form_travels_as_its_words(error: BaseException) -> None:
    """An error that cannot be made again is a plain one that says what it was."""
    arrived = decode_error(json.loads(dump_json(encode_error(error))))
    assert type(arrived) is SessionTreeError
    assert type(error).__name__ in str(arrived)


WIRES = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"type": st.sampled_from([*ERRORS, "Exception", "os.system"]), "fields": json_values}
    ),
    st.fixed_dictionaries({"type": st.sampled_from([*ERRORS]), "fields": st.lists(json_values, max_size=4)}),
)


@given(WIRES)
def test_any_words_make_a_typed_error_and_nothing_else(wire: Any) -> None:
    """Whatever the other end says is its error, an error of this library comes of it and can be shown."""
    error = decode_error(wire)
    assert isinstance(error, SessionTreeError)
    assert type(error) in CLASSES
    assert isinstance(str(error), str)


def test_tier_is_a_tier_again() -> None:
    """A field that is no plain value is made again."""
    denied = PermissionDenied(PermissionTier.ELEVATED, "no")
    arrived = decode_error(json.loads(dump_json(encode_error(denied))))
    assert isinstance(arrived, PermissionDenied)
    assert arrived.tier is PermissionTier.ELEVATED
