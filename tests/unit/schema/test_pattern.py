"""Patterns of schemas: what they mean, and that no text and no schema of a model holds a check up."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.checker import Checker
from sessiontree.schema.result import MAX_SCHEMA_DEPTH, check_model_schema, compile_result

LOOKS_BACK = "(?<!b)(a|aa)+$"
LONG = 60_000
PATIENCE_S = 3.0
"""What backtracks takes a minute over the texts below; what is bounded takes a moment, on any machine."""


def spent_s(schema: dict[str, Any], value: JsonValue) -> float:
    """Return the processor time of a check that refuses a value."""
    checker = Checker(schema)
    began = time.process_time()
    with pytest.raises(ValidationError):
        checker.check(value)
    assert not checker.fits(value)
    return time.process_time() - began


@pytest.mark.covers("TYP5")
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (LOOKS_BACK, "a" * LONG + "!"),
        ("^(a+)+$", "a" * LONG + "!"),
        ("(a|a)*(a|a)*b", "a" * LONG),
        (r"(.*)\1x", "a" * 900),
        (r"^(?:(?=.*x).)*$", "a" * LONG),
        (r"^(?!\s*$).+", " " * LONG),
        (r"(?=a*b)a", "a" * 999),
    ],
)
def test_no_text_holds_a_check_up(pattern: str, text: str) -> None:
    """Alone, and many times in one value."""
    assert spent_s({"type": "string", "pattern": pattern}, text) < PATIENCE_S
    assert spent_s({"items": {"pattern": pattern}}, [text[-900:]] * 1_000) < PATIENCE_S


def test_schema_that_refers_to_itself_is_checked_at_once() -> None:
    """Its faults are not listed along every way through it."""
    way: dict[str, Any] = {"properties": {"a": {"$ref": "#/$defs/n"}}}
    union = {"anyOf": [{**way, "required": ["b"]}, {**way, "required": ["c"]}]}
    value: JsonValue = {"b": 1}
    for _ in range(100):
        value = {"a": value}
    assert spent_s({"$defs": {"n": union}, "$ref": "#/$defs/n"}, value) < PATIENCE_S


LOOKING_AHEAD = [
    r"^(?!\s*$).+",
    r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{3,}$",
    r"^(?!-)[a-z-]+(?<!-)$",
    r"^(?!.*\.\.)[a-z.|()]+$",
    r"^(?=[)|])[)|a]+",
    r"^(?!a)b|c$",
    r"^(?=(?:a|b))a?[b]$",
    r"(a|b)\1",
]


@given(pattern=st.sampled_from(LOOKING_AHEAD), text=st.text(st.sampled_from("abcA1-. )|("), max_size=6))
def test_looking_around_means_what_it_means_elsewhere(pattern: str, text: str) -> None:
    """The same answer as an engine that backtracks."""
    assert Checker({"pattern": pattern}).fits(text) == (re.search(pattern, text) is not None)


def test_pattern_that_is_too_long_to_try_says_so() -> None:
    """The reason is the text's length, not its form."""
    with pytest.raises(ValidationError, match="tried on 1000 characters"):
        Checker({"pattern": LOOKS_BACK}).check("a" * 1_001)
    Checker({"pattern": LOOKS_BACK}).check("a" * 1_000)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "text"}, '/type: "text" is not a type; use one of array'),
        ({"properties": {"a": {"type": ["text"]}}}, '/properties/a/type: ["text"] is not a type'),
        ({"pattern": "("}, '/pattern: "(" is not a regular expression'),
        ({"patternProperties": {"(?!a)b": {}}}, "linear time"),
        ({"required": "a"}, '/required: the value is not of type "array" (got "a")'),
    ],
)
def test_wrong_schema_is_told_by_its_own_words(schema: dict[str, Any], words: str) -> None:
    """The place, what is there and what may be; never a rule of the meta-schema."""
    with pytest.raises(ConfigError) as error:
        Checker(schema)
    assert words in str(error.value)
    assert "anyOf" not in str(error.value)


def deep(levels: int) -> dict[str, JsonValue]:
    """Return a schema of nested lists."""
    schema: dict[str, JsonValue] = {"type": "integer"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


DOUBLING: dict[str, JsonValue] = {
    f"d{at}": {"properties": {"a": {"$ref": f"#/$defs/d{at + 1}"}, "b": {"$ref": f"#/$defs/d{at + 1}"}}}
    for at in range(11)
}


@pytest.mark.covers("TYP5")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": list(range(1_000_000))}, "listed values"),
        ({"enum": ["x" * 70_000]}, "characters"),
        ({"description": "x" * 70_000}, "characters"),
        (deep(MAX_SCHEMA_DEPTH + 1), "levels deep"),
        (deep(5_000), "levels deep"),
        ({"properties": {f"p{at}": {} for at in range(2_001)}}, "members"),
        ({"$defs": {**DOUBLING, "d11": {}}, "$ref": "#/$defs/d0"}, "written out"),
        ({"pattern": LOOKS_BACK}, "look around or refer back"),
        (
            {"$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "pattern": LOOKS_BACK}}, "$ref": "#/$defs/n"},
            "look around",
        ),
        ({"patternProperties": {"(a)\\1": {}}}, "refer back"),
        ({"pattern": "^(a|b)*a(a|b){2000}c$"}, "counted repetitions"),
        ({"anyOf": [{"pattern": f"a{at}"} for at in range(17)]}, "17 of 16"),
        ({"type": "text"}, "is not a type"),
    ],
)
def test_schema_of_a_model_is_bounded(schema: dict[str, JsonValue], words: str) -> None:
    """In size, values, depth and patterns; the bound is named."""
    began = time.process_time()
    with pytest.raises(ConfigError, match="result schema: ") as error:
        check_model_schema(schema)
    assert words in str(error.value)
    assert time.process_time() - began < PATIENCE_S


def test_ordinary_schema_of_a_model_is_taken() -> None:
    """Dates, words, lists and a tree of itself."""
    node: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
    }
    schemas: list[dict[str, JsonValue]] = [
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        {"type": "string", "pattern": r"^\w{1,64}$", "enum": [str(at) for at in range(1_000)]},
        node,
        deep(MAX_SCHEMA_DEPTH - 1),
    ]
    for schema in schemas:
        check_model_schema(schema)


def test_long_result_is_not_tried_on_patterns() -> None:
    """The model is informed how long it may be."""
    result = compile_result({"type": "string", "pattern": "a"})
    with pytest.raises(ValidationError, match=r"400,001 characters.*tried on 400,000"):
        result.validate_text("a" * 400_001)
    assert result.validate_text("a" * 400_000)
    assert compile_result({"type": "string"}).validate_text("a" * 400_001)
