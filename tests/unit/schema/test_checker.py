"""Faults reported in words a model can act on."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.schema.checker import MAX_MESSAGE_CHARS, MAX_TOLD, MAX_VALUE_CHARS, Checker, shorten_json


def told(schema: Any, value: Any) -> tuple[str, str | None]:
    """Return message and field of the refusal."""
    with pytest.raises(ValidationError) as caught:
        Checker(schema).check(value)
    return caught.value.message, caught.value.field


def test_value_that_fits_passes() -> None:
    """Both ways to ask agree."""
    checker = Checker({"type": "integer"})
    assert checker.fits(1)
    checker.check(1)
    assert not checker.fits("1")


@pytest.mark.parametrize(
    ("schema", "value", "message", "field"),
    [
        ({"type": "string"}, 1, 'the value is not of type "string" (got 1)', None),
        ({"required": ["a"]}, {}, "a required", "/a"),
        ({"properties": {"a": {"required": ["b/c"]}}}, {"a": {}}, "a/b~1c required", "/a/b~1c"),
        ({"properties": {}, "additionalProperties": False}, {"x": 1}, "x is not a known property", "/x"),
        ({"properties": {"a": False}}, {"a": 1}, "a: nothing may be given here (got 1)", "/a"),
        (
            {"items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            [None],
            (
                '0: fits no variant: the value is not of type "string" / '
                'the value is not of type "integer" (got null)'
            ),
            "/0",
        ),
    ],
)
def test_fault_names_its_field(schema: Any, value: Any, message: str, field: str | None) -> None:
    """Of a missing or unknown property that property, else the value refused."""
    assert told(schema, value) == (message, field)


def test_faults_come_in_the_order_of_the_value() -> None:
    """Indexes sort as numbers, members as they were given."""
    schema = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "items": {"type": "null"}}
    assert told(schema, {"b": 1, "a": 1})[1] == "/b"
    message, field = told(schema, [None, None, 1, *[None] * 8, 1])
    assert field == "/2"
    assert message.index("2:") < message.index("11:")


def test_message_stays_short() -> None:
    """However many faults, long values and long lists of choices there are."""
    schema = {"items": {"enum": ["choice" * 20] * 1 + [f"{n}" * 50 for n in range(50)]}}
    message, _ = told(schema, ["x" * 1000] * 1000)
    assert len(message) <= MAX_TOLD * (MAX_MESSAGE_CHARS + 2)


def test_value_is_shown_by_its_beginning() -> None:
    """In JSON, every script readable."""
    assert shorten_json({"ї": None}) == '{"ї":null}'
    assert len(shorten_json("x" * 1000)) == MAX_VALUE_CHARS
    assert shorten_json("x" * 1000).endswith("x…")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"$ref": "https://example.invalid/a"},
        {"$ref": "#/$defs/none"},
        {"$schema": "https://example.invalid/draft"},
        {"const": "\ud800"},
    ],
)
def test_schema_that_cannot_be_used_is_refused(schema: Any) -> None:
    """Nothing is fetched to find out."""
    with pytest.raises(ConfigError, match="not a valid JSON Schema"):
        Checker(schema)
