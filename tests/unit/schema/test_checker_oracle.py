"""The checker agrees with a second validator, written by others, on any schema and any value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.checker import Checker
from sessiontree.schema.definitions import write_out
from sessiontree.schema.keywords import rewrite
from tests.example_fixtures import examples
from tests.unit.schema.schema_strategies import VALUES, fitting, roots

Make: TypeAlias = Callable[[dict[str, Any]], Checker]


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    """Draw a schema that a tool may have, and values that mostly fit it."""
    schema = draw(roots())
    try:
        write_out(schema)
    except ConfigError:
        assume(False)
    return schema, [fitting(schema, schema, draw) for _ in range(3)] + [draw(VALUES)]


def agrees(make: Make, *, tried: int) -> None:
    """Both ways to ask say what the other validator says."""

    @settings(max_examples=tried, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(cases())
    def holds(case: tuple[dict[str, Any], list[Any]]) -> None:
        schema, values = case
        checker, other = make(schema), Draft202012Validator(schema)
        for value in values:
            expected = other.is_valid(value)
            assert checker.fits(value) == expected, (schema, value)
            assert passes(checker, value) == expected, (schema, value)

    holds()


def passes(checker: Checker, value: JsonValue) -> bool:
    """Whether a value passes without a word."""
    try:
        checker.check(value)
    except ValidationError as error:
        assert error.message
        return False
    return True


@pytest.mark.covers("REL-P22")
@pytest.mark.slow
def test_any_schema_is_read_as_others_read_it() -> None:
    """Every keyword, in every place, with definitions that contain each other."""
    agrees(Checker, tried=examples(80))


class Deaf(Checker):
    """Planted: says nothing of what it finds."""

    def check(self, value: JsonValue) -> None:
        """Let everything pass."""


def without(keyword: str) -> Make:
    """Planted: return a checker that does not know a keyword."""
    return lambda schema: Checker(
        rewrite(schema, lambda part: {key: part[key] for key in part if key != keyword})
    )


@pytest.mark.covers("REL-P22")
@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [Deaf, without("type"), without("anyOf")],
    ids=["deaf", "type", "anyOf"],
)
def test_planted_reading_is_found(planted: Make) -> None:
    """One keyword that is not known, or a fault that is kept quiet, fails the property."""
    with pytest.raises(AssertionError):
        agrees(planted, tried=400)
