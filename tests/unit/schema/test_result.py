"""Results: a schema of the type asked for, a value of the last text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.values.jsonable import dump_json, dump_readable
from sessiontree.schema.result import compile_result, convert_result, derive_result_schema


class Verdict(BaseModel):
    """What a comparison came to."""

    winner: Literal["a", "b"]
    score: float = Field(ge=0, le=1)
    notes: str | None = None

    @field_validator("notes")
    @classmethod
    def not_rude(cls, value: str | None) -> str | None:
        if value == "rude":
            raise ValueError("be kind")
        if value == "broken":
            raise KeyError("broken")
        return value


@dataclass
class Point:
    """A place on a plane."""

    x: int
    y: int = 0


class Row(TypedDict):
    """A line of a table."""

    name: str
    values: list[float]


VERDICT = compile_result(derive_result_schema(Verdict))


def refused(text: str, schema: Any = None) -> ValidationError:
    """Return the error that this text ends in."""
    with pytest.raises(ValidationError) as caught:
        (VERDICT if schema is None else compile_result(schema)).validate_text(text)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        '{"winner": "a", "score": 0.5}',
        ' \n{"winner": "a", "score": 0.5}\n',
        '```json\n{"winner": "a", "score": 0.5}\n```',
        'Here it is:\n\n```JSON\n{"winner": "a",\n "score": 0.5}\n```\nDone.',
        '```\r\n{"winner": "a", "score": 0.5}\r\n```',
        'First\n```python\nprint("```")\n```\nthen\n```json\n{"winner": "a", "score": 0.5}\n```',
        '```\nnotes\n```\n```json\n{"winner": "a", "score": 0.5}\n```',
    ],
)
def test_result_is_json_bare_or_in_its_fence(text: str) -> None:
    """Words around the one block marked json, and blocks of other languages, do not matter."""
    assert VERDICT.validate_text(text) == {"winner": "a", "score": 0.5}


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("", None, "must be JSON"),
        ("a won", None, "must be JSON"),
        ('{"winner": "a", "score": NaN}', None, "NaN"),
        ('{"winner": "a", "score": 7}', "/score", "greater than the maximum"),
        ('{"winner": "a"}', "/score", "score required"),
        ('```json\n{"winner": "a"}\n```', "/score", "score required"),
        ("```json\n{\n```", None, "must be JSON"),
        ("```json\n{}\n```\n```json\n{}\n```", None, "2 fenced blocks"),
        ("```python\n{}\n```", None, "must be JSON"),
        ("```json\n{}", None, "must be JSON"),
        ("[" * 100_000, None, "must be JSON"),
        ("9" * 10_000, None, "must be JSON"),
        ('{"winner": "a", "score": 1e999}', "/score", "is inf"),
        ('{"winner": "\\ud800", "score": 1}', "/winner", "surrogate"),
        ("[" * 300 + "]" * 300, "/0" * 128, "levels deep"),
    ],
)
def test_text_that_holds_no_result_is_refused(text: str, field: str | None, said: str) -> None:
    """Always a ValidationError; the session gets its three attempts."""
    error = refused(text)
    assert error.field == field
    assert said in str(error)


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string"}, "Plain words.\n", "Plain words.\n"),
        ({"type": "string"}, "42", "42"),
        ({"type": "string"}, '"quoted"', "quoted"),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string"}, "```json\n{}\n```", "```json\n{}\n```"),
        ({"type": "string", "enum": ["yes", "no"]}, " yes\n", "yes"),
        ({"type": "string", "enum": ["yes", "no"]}, '"no"', "no"),
    ],
)
def test_string_result_is_the_text_itself(schema: Any, text: str, expected: str) -> None:
    """A JSON string is read as one; margins go only where the text would not fit with them."""
    assert compile_result(schema).validate_text(text) == expected


def test_string_result_that_does_not_fit_is_refused() -> None:
    """Enums and lengths hold, and a text is not taken for JSON of another type."""
    assert "maybe" in str(refused("maybe", {"type": "string", "enum": ["yes", "no"]}))
    assert refused("\ud800", {"type": "string"}).field is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"$ref": "https://example.invalid/a"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"const": b"x"},
        [],
        None,
    ],
)
def test_invalid_schema_is_refused_at_once(schema: Any) -> None:
    """ConfigError, before a child is spawned for it."""
    with pytest.raises(ConfigError, match="result schema"):
        compile_result(schema)


def test_schema_is_compiled_once_and_kept_as_it_was() -> None:
    """Ten thousand sessions that owe the same type share one compiled schema."""
    schema: Any = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}}
    compiled = compile_result(schema)
    assert compile_result({**schema}) is compiled
    assert schema == {"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}}
    assert compiled.schema == {"type": "integer"}
    assert compiled.digest == compile_result({"type": "integer"}).digest


@pytest.mark.covers("A40")
@pytest.mark.parametrize(
    ("result_type", "text", "expected"),
    [
        (Verdict, '{"winner": "b", "score": 1, "notes": null}', Verdict(winner="b", score=1.0)),
        (Point, '{"x": 3}', Point(3)),
        (Row, '{"name": "n", "values": [1, 2.5]}', {"name": "n", "values": [1.0, 2.5]}),
        (list[Point], '[{"x": 1, "y": 2}]', [Point(1, 2)]),
        (int, "7", 7),
        (str, "words", "words"),
        (int | None, "null", None),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (set[str], '["a"]', {"a"}),
        (Annotated[list[int], ["unhashable"]], "[1]", [1]),
        (bool, "true", True),
    ],
)
def test_every_kind_of_type_makes_the_round_trip(result_type: Any, text: str, expected: Any) -> None:
    """From type to schema, from text to JSON, from JSON to the type."""
    value = compile_result(derive_result_schema(result_type)).validate_text(text)
    assert convert_result(result_type, value) == expected


def test_result_schema_has_no_titles_or_definitions_and_keeps_null() -> None:
    """Nobody drops nulls from a result, so its schema must take them."""
    schema: Any = derive_result_schema(list[Verdict])
    assert "title" not in str(schema)
    assert "$defs" not in schema
    assert schema["items"]["properties"]["notes"]["anyOf"] == [{"type": "string"}, {"type": "null"}]


@pytest.mark.parametrize("result_type", [object(), 5, type("Plain", (), {}), "Nowhere"])
def test_type_nobody_knows_is_refused(result_type: Any) -> None:
    """ConfigError names the type."""
    with pytest.raises(ConfigError):
        derive_result_schema(result_type)


def test_types_own_checks_refuse_in_the_same_words() -> None:
    """Field checks point at the field; whatever else they raise is reported as well."""
    with pytest.raises(ValidationError, match="notes: be kind") as caught:
        convert_result(Verdict, {"winner": "a", "score": 1, "notes": "rude"})
    assert caught.value.field == "/notes"
    with pytest.raises(ValidationError, match="KeyError"):
        convert_result(Verdict, {"winner": "a", "score": 1, "notes": "broken"})
    with pytest.raises(ValidationError, match="is nan"):
        convert_result(float, float("nan"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans(), st.booleans())
def test_any_json_survives_any_spelling(value: Any, readable: bool, fenced: bool) -> None:
    """Line breaks and fences inside strings are escaped, so they cannot end the block."""
    text = dump_readable(value) if readable else dump_json(value)
    text = f"So:\n```json\n{text}\n```\n" if fenced else text
    assert repr(compile_result({}).validate_text(text)) == repr(value)
