"""Properties of cleaning a schema for a provider, over generated schemas and values that mostly fit them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sessiontree.contracts.errors import ConfigError
from sessiontree.schema.definitions import write_out
from sessiontree.schema.dialect import DIALECTS, GEMINI_STRIPPED, Cleaned, Dialect, Loss
from sessiontree.schema.keywords import list_subschemas
from sessiontree.schema.provider_schema import clean
from tests.example_fixtures import examples
from tests.unit.schema.schema_strategies import fitting, roots

Clean = Callable[[Mapping[str, Any], Dialect], Cleaned]

STRICT = DIALECTS["openai-strict"]
OLDER_GEMINI = DIALECTS["gemini-openapi"]


@dataclass(frozen=True)
class Case:
    """A schema that can be written out, a dialect, and objects that may fit."""

    schema: dict[str, Any]
    dialect: Dialect
    values: list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn, dialects: tuple[str, ...] = tuple(DIALECTS), *, refs: bool = True) -> Case:
    """Draw a case; half of its values are drawn to fit the tool's schema, half to fit the model's."""
    schema = draw(roots(refs=refs))
    dialect = DIALECTS[draw(st.sampled_from(dialects))]
    values = [fitting(schema, schema, draw) for _ in range(2)]
    try:
        shown = clean(schema, dialect).schema
    except ConfigError:
        return Case({"type": "object"}, dialect, [])
    values += [fitting(shown, shown, draw) for _ in range(2)]
    return Case(schema, dialect, [value for value in values if isinstance(value, dict)])


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value fits in the eyes of an independent validator."""
    return Draft202012Validator(schema).is_valid(value)


def everywhere(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it, definitions too."""
    yield schema
    for inner in (*list_subschemas(schema), *schema.get("$defs", {}).values()):
        yield from everywhere(inner)


def cleaning_twice_is_once(cleaning: Clean, case: Case) -> None:
    """A second pass changes nothing and finds nothing more to lose (REL-P27)."""
    once = cleaning(case.schema, case.dialect)
    twice = cleaning(once.schema, case.dialect)
    assert twice.schema == once.schema
    assert [loss for loss in twice.losses if loss.effect != "same"] == []


def what_changes_is_said(cleaning: Clean, case: Case) -> None:
    """The model may ask for all the tool takes, and for nothing else, but where a loss says so (REL-P28)."""
    cleaned = cleaning(case.schema, case.dialect)
    effects = {loss.effect for loss in cleaned.losses}
    for value in case.values:
        taken, shown = fits(case.schema, value), fits(cleaned.schema, value)
        assert shown or not taken or "narrower" in effects, value
        assert taken or not shown or "wider" in effects, value


def only_known_keywords_are_left(cleaning: Clean, case: Case) -> None:
    """No keyword the dialect goes without, an object at the root, a schema by the meta-schema (REL-P29)."""
    cleaned = cleaning(case.schema, case.dialect).schema
    Draft202012Validator.check_schema(cleaned)
    assert cleaned["type"] == "object"
    assert not cleaned.keys() & case.dialect.root_refused
    if case.dialect.keywords is not None:
        for inner in everywhere(cleaned):
            assert inner.keys() <= case.dialect.keywords, inner
    if case.dialect is OLDER_GEMINI:
        assert not any(GEMINI_STRIPPED & inner.keys() for inner in everywhere(cleaned))
    if case.dialect is STRICT:
        for inner in everywhere(cleaned):
            if "properties" in inner:
                assert inner["additionalProperties"] is False
                assert list(inner["properties"]) == inner["required"]


def the_input_stays(cleaning: Clean, case: Case) -> None:
    """Cleaning reads, and what it returns shares nothing with what it read (REL-P30)."""
    before = copy.deepcopy(case.schema)
    cleaned = cleaning(case.schema, case.dialect).schema
    for inner in list(everywhere(cleaned)):
        assert isinstance(inner, dict)
        inner.clear()
    assert case.schema == before


def names_survive(cleaning: Clean, case: Case) -> None:
    """A property keeps its name whatever it is called, also where a union is next to it (REL-P31)."""
    written = write_out(case.schema)
    properties: Any = written.get("properties", {})
    left: Any = cleaning(case.schema, case.dialect).schema.get("properties", {})
    assert {name for name, inner in properties.items() if inner is not False} <= set(left)


PROPERTIES = (
    cleaning_twice_is_once,
    what_changes_is_said,
    only_known_keywords_are_left,
    the_input_stays,
    names_survive,
)


@pytest.mark.covers("REL-P27", "REL-P28", "REL-P29", "REL-P30", "REL-P31")
@given(cases())
@settings(max_examples=examples(60))
@pytest.mark.parametrize("holds", PROPERTIES)
@pytest.mark.slow
def test_cleaning(holds: Callable[[Clean, Case], None], case: Case) -> None:
    """REL-P27 to REL-P31 hold for every dialect."""
    holds(clean, case)


@given(cases(("anthropic", "gemini", "mistral", "openai", "plain"), refs=False))
@settings(max_examples=examples(60))
@pytest.mark.slow
def test_these_dialects_take_away_only_in_unions(case: Case) -> None:
    """Where nothing forces it, what a tool takes can be asked for: only merged unions take away."""
    narrower = [loss for loss in clean(case.schema, case.dialect).losses if loss.effect == "narrower"]
    assert [loss for loss in narrower if loss.keyword != "anyOf"] == []


def with_nulls(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value with null for each property that is not there."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [with_nulls(schema["items"], item) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    return {
        name: with_nulls(inner, value[name]) if name in value else None
        for name, inner in schema["properties"].items()
    }


def test_null_stands_for_left_out_in_strict_mode() -> None:
    """Nested and in lists: what fits, with null for what is absent, can be said in strict mode."""
    place = {
        "type": "object",
        "properties": {"line": {"type": "integer"}, "kind": {"enum": ["a", "b"]}},
        "required": ["line"],
        "additionalProperties": False,
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"at": place, "all": {"type": "array", "items": place}, "size": {"const": 3}},
        "additionalProperties": False,
    }
    shown = clean(schema, STRICT).schema
    for value in ({}, {"at": {"line": 1}}, {"all": [{"line": 1}, {"line": 2, "kind": "a"}], "size": 3}):
        assert fits(schema, value)
        assert fits(shown, with_nulls(shown, value))
    assert not fits(shown, {})


def mutating(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: edits what it was given."""
    cleaned = clean(schema, dialect)
    if isinstance(schema, dict):
        schema.pop("additionalProperties", None)
    return cleaned


def by_name(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: takes a property that is called like a keyword for the keyword."""

    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: strip(item) for name, item in value.items() if name not in {"format", "pattern"}}

    cleaned = clean(schema, dialect)
    return Cleaned(strip(cleaned.schema), cleaned.losses)


def first_variant(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: a union becomes its first variant."""

    def first(value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("anyOf"), list):
            return first(
                {**{key: item for key, item in value.items() if key != "anyOf"}, **value["anyOf"][0]}
            )
        return {key: first(item) for key, item in value.items()} if isinstance(value, dict) else value

    cleaned = clean(schema, dialect)
    return Cleaned(first(cleaned.schema), cleaned.losses)


def without_base(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: properties next to a root union are lost."""
    if "anyOf" in schema:
        schema = {keyword: value for keyword, value in schema.items() if keyword != "properties"}
    return clean(schema, dialect)


def half_cleaned(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: one keyword is forgotten."""
    cleaned = clean(schema, dialect)
    if "maxProperties" not in schema:
        return cleaned
    return Cleaned({**cleaned.schema, "maxProperties": schema["maxProperties"]}, cleaned.losses)


def silent(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: says nothing of what it lost."""
    return Cleaned(clean(schema, dialect).schema, ())


def noting(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: each pass adds to the description."""
    cleaned = clean(schema, dialect)
    return Cleaned({**cleaned.schema, "description": f"{cleaned.schema.get('description')}!"}, cleaned.losses)


def stays_open_to_patterns(schema: Mapping[str, Any], dialect: Dialect) -> Cleaned:
    """Plant: patterns go, but all other names stay forbidden, and so those that fit the patterns too."""
    cleaned = clean(schema, dialect)
    if "patternProperties" not in schema or schema.get("additionalProperties") is not False:
        return cleaned
    losses = tuple(loss for loss in cleaned.losses if loss.effect != "narrower")
    return Cleaned({**cleaned.schema, "additionalProperties": False}, losses)


UNION: dict[str, Any] = {
    "type": "object",
    "properties": {"format": {"type": "string"}, "x": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
    "anyOf": [{"required": ["x"]}, {"required": ["format"]}],
}
OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "string", "pattern": "^a"}},
    "patternProperties": {"^b": {"type": "integer"}},
    "additionalProperties": False,
    "maxProperties": 2,
}
PLANTED: list[tuple[Clean, Callable[[Clean, Case], None], str, dict[str, Any]]] = [
    (mutating, the_input_stays, "gemini-openapi", OPEN),
    (by_name, names_survive, "gemini-openapi", UNION),
    (first_variant, what_changes_is_said, "gemini", UNION),
    (without_base, names_survive, "openai", UNION),
    (half_cleaned, only_known_keywords_are_left, "gemini", OPEN),
    (silent, what_changes_is_said, "gemini-openapi", OPEN),
    (noting, cleaning_twice_is_once, "anthropic", UNION),
    (stays_open_to_patterns, what_changes_is_said, "gemini", OPEN),
]
VALUES: list[dict[str, Any]] = [{"x": "a"}, {"x": 1}, {"x": "b"}, {"b": 1}, {"b": "b"}]


@pytest.mark.short(4)
@pytest.mark.covers("REL-P27", "REL-P28", "REL-P29", "REL-P30", "REL-P31")
@pytest.mark.parametrize(
    ("planted", "holds", "dialect", "schema"), PLANTED, ids=[planted.__name__ for planted, *_ in PLANTED]
)
def test_planted_bug_is_caught(
    planted: Clean, holds: Callable[[Clean, Case], None], dialect: str, schema: dict[str, Any]
) -> None:
    """Each property holds for a case as it is, and fails on it for a cleaning with a fault."""
    case = Case(copy.deepcopy(schema), DIALECTS[dialect], VALUES)
    holds(clean, case)
    with pytest.raises(AssertionError):
        holds(planted, case)


def test_losses_are_sorted_out_by_what_they_do() -> None:
    """A loss is data: pointer, keyword, effect, and what was done."""
    schema: dict[str, Any] = {"properties": {"a/b": {"type": "string", "pattern": "^x", "default": "x"}}}
    cleaned = clean(schema, DIALECTS["gemini"])
    assert cleaned.losses == (
        Loss("/properties/a~1b", "default", "same", "left out"),
        Loss("/properties/a~1b", "pattern", "wider", "left out"),
    )
    assert cleaned.is_lossy
    assert not clean(cleaned.schema, DIALECTS["gemini"]).is_lossy
    assert cleaned.losses[1].to_wire() == {
        "pointer": "/properties/a~1b",
        "keyword": "pattern",
        "effect": "wider",
        "done": "left out",
    }
