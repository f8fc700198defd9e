"""Slips of type put right, and everything else left alone."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.schema.coercion import Coercer
from sessiontree.schema.keywords import Schema

STRINGS: Schema = {"type": "array", "items": {"type": "string"}}
TRIMMED: Schema = {"type": "string", "x-trimmed": True}
ROOT: Schema = {
    "type": "object",
    "properties": {"next": {"$ref": "#"}, "name": TRIMMED, "note": {"type": "string"}},
    "required": ["note"],
    "$defs": {
        "Age": {"type": "integer"},
        "Tree": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "integer"}]}},
    },
}


CAT: Schema = {"properties": {"is": {"const": "cat"}, "age": {"$ref": "#/$defs/Age"}}, "required": ["is"]}
DOG: Schema = {
    "properties": {"is": {"enum": ["dog", "hound"]}, "age": {"type": "string"}},
    "required": ["is"],
}
PET: Schema = {"type": "object", "properties": {"legs": {"type": "integer"}}, "oneOf": [CAT, DOG]}


def coerced(value: Any, schema: Any) -> str:
    """Return the coerced value by its spelling, so that 1, 1.0 and True differ."""
    return repr(Coercer(ROOT).coerce(value, schema))


@pytest.mark.covers("S31")
@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("42", {"type": "integer"}, 42),
        ("-0", {"type": "integer"}, 0),
        ("4.0", {"type": "integer"}, 4),
        ("1e3", {"type": "integer"}, 1000),
        ("4.5", {"type": "number"}, 4.5),
        ("7", {"type": "number"}, 7),
        (3.0, {"type": "integer"}, 3),
        ("true", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        (5, {"type": "string"}, "5"),
        (0.5, {"type": "string"}, "0.5"),
        ("a", STRINGS, ["a"]),
        ('["a", "b"]', STRINGS, ["a", "b"]),
        ("(a)", STRINGS, ["(a)"]),
        ("['a', 'b',]", STRINGS, ["a", "b"]),
        (' {"k": "1"}', {"type": "object", "additionalProperties": {"type": "integer"}}, {"k": 1}),
        ('[{"a": "2"}]', {"type": "array", "items": {"properties": {"a": {"type": "integer"}}}}, [{"a": 2}]),
        (" a ", TRIMMED, "a"),
        (" a ", {"type": "array", "items": TRIMMED}, ["a"]),
        ([" a "], {"anyOf": [{"type": "array", "items": TRIMMED}, {"type": "null"}]}, ["a"]),
        (" a ", {"anyOf": [TRIMMED, {"type": "null"}]}, "a"),
        ("3", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3),
        ("3", {"type": ["integer", "null"]}, 3),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"const": 2}, 2),
        (
            ["1", "2"],
            {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
            [1, "2"],
        ),
        (["1", 2], {"items": [{"type": "integer"}], "additionalItems": {"type": "string"}}, [1, "2"]),
        ({"next": {"name": " a "}}, ROOT, {"next": {"name": "a"}}),
        ({"is": "cat", "age": "3", "legs": "4"}, PET, {"is": "cat", "age": 3, "legs": 4}),
        ({"is": "hound", "age": 3, "legs": "4"}, PET, {"is": "hound", "age": "3", "legs": 4}),
        ('{"is":"cat","age":"3"}', {"anyOf": [PET, {"type": "null"}]}, {"is": "cat", "age": 3}),
        (
            {"to": "3"},
            {"anyOf": [{**CAT, "type": "object"}, {"properties": {"to": {"type": "integer"}}}]},
            {"to": 3},
        ),
        ({"type": "text", "text": " a\n"}, {"type": "string"}, " a\n"),
        ([{"type": "text", "text": "a"}, {"text": "b"}], {"type": "string"}, "ab"),
        ([{"kind": "text", "value": "a"}], {"type": "string"}, "a"),
        ([{"content": [{"value": "a"}, {"parts": {"text": "b"}}]}], {"type": "string"}, "ab"),
        ([{"text": " a "}], TRIMMED, "a"),
        ([{"text": "a"}], STRINGS, ["a"]),
        ({"note": [{"text": ""}]}, ROOT, {"note": ""}),
        ([["1"]], {"$ref": "#/$defs/Tree"}, [[1]]),
    ],
)
def test_one_possible_reading_is_taken(value: Any, schema: Any, expected: Any) -> None:
    """Numbers, booleans, single strings, spelled-out structures and blocks of text become what is wanted."""
    assert coerced(value, schema) == repr(expected)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("4.5", {"type": "integer"}),
        ("04", {"type": "integer"}),
        (" 4", {"type": "integer"}),
        ("٤", {"type": "integer"}),
        ("1e999", {"type": "number"}),
        ("9" * 1000, {"type": "integer"}),
        ("NaN", {"type": "number"}),
        ("True", {"type": "boolean"}),
        ("yes", {"type": "boolean"}),
        (1, {"type": "boolean"}),
        (True, {"type": "integer"}),
        (True, {"type": "string"}),
        (1.0, {"type": "string"}),
        ("", STRINGS),
        ("a", {"type": "array", "items": {"type": "integer"}}),
        ("5", {"anyOf": [{"type": "integer"}, STRINGS]}),
        ("[1", {"type": "array", "items": {"type": "integer"}}),
        ("[a", STRINGS),
        ('"a"', STRINGS),
        ("[" * 5000, {"type": "array"}),
        ({"a": 1}, {"type": "string"}),
        ({"text": "a", "id": "b"}, {"type": "string"}),
        ({"text": 1}, {"type": "string"}),
        ({"type": "image", "text": "a"}, {"type": "string"}),
        ([{"text": "a"}, "b"], {"type": "string"}),
        ([], {"type": "string"}),
        ({}, {"type": "string"}),
        ([{"text": "a"}], {"type": ["string", "array"]}),
        ({"text": "a"}, {"type": ["string", "object"]}),
        ({"text": "a"}, {}),
        (None, {"type": "string"}),
        ("5", {"type": ["integer", "string"]}),
        ("5", {}),
        ("5", True),
        ("5", {"anyOf": [{"type": "integer"}, {}]}),
        ({"is": "cow", "age": "3"}, PET),
        ({"age": "3"}, PET),
        ({"is": "cat", "age": "3"}, {"anyOf": [CAT, {**CAT, "properties": {}}]}),
        (" a ", {"type": "string"}),
        (3.0, {"type": "number"}),
        (
            [{"a": "1"}],
            {"items": {"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"type": "object"}]}},
        ),
    ],
)
def test_what_fits_or_may_mean_two_things_is_left_alone(value: Any, schema: Any) -> None:
    """The very same object comes back: a model shall say which it means."""
    assert Coercer(ROOT).coerce(value, schema) is value


@pytest.mark.covers("U6")
def test_null_for_an_optional_member_is_absence_at_every_level() -> None:
    """Required members keep theirs, to be reported; unknown ones are not ours to drop."""
    value: Any = {"name": None, "note": None, "other": None, "next": {"name": None, "note": "x"}}
    assert Coercer(ROOT).coerce(value, ROOT) == {"note": None, "other": None, "next": {"note": "x"}}
    assert value["next"]["name"] is None


def test_null_that_the_schema_takes_is_kept() -> None:
    """There it is a value like any other."""
    schema: Schema = {"properties": {"limit": {"type": ["integer", "null"]}}}
    value: Any = {"limit": None}
    assert Coercer(schema).coerce(value, schema) is value


@pytest.mark.parametrize(
    ("schema", "settled"),
    [
        ({"type": "string"}, True),
        ({"type": "number"}, True),
        ({}, True),
        (False, True),
        (STRINGS, True),
        ({"type": "integer"}, False),
        (TRIMMED, False),
        ({"anyOf": [TRIMMED, {"type": "null"}]}, False),
        ({"type": "array", "items": {"properties": {"a": {"type": "integer"}}}}, False),
        ({"$ref": "#/$defs/Tree"}, False),
    ],
)
def test_schema_is_settled_where_nothing_that_fits_changes(schema: Any, settled: bool) -> None:
    """Only trimming and ``3.0`` for ``3`` change what fits already."""
    assert Coercer(ROOT).is_settled(schema) is settled
