"""Cleaning by example: what each dialect makes of the shapes that providers refuse."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.contracts.errors import ConfigError
from sessiontree.schema.dialect import DIALECTS, GEMINI_STRIPPED, PLAIN, choose_dialect, find_dialect
from sessiontree.schema.provider_schema import clean


def cleaned(schema: dict[str, Any], dialect: str) -> dict[str, Any]:
    """Return the cleaned schema."""
    return clean(schema, DIALECTS[dialect]).schema


def effects(schema: dict[str, Any], dialect: str) -> list[tuple[str, str, str]]:
    """Return pointer, keyword and effect of every loss."""
    return [(loss.pointer, loss.keyword, loss.effect) for loss in clean(schema, DIALECTS[dialect]).losses]


def parameter(schema: dict[str, Any], dialect: str) -> Any:
    """Return what becomes of a required parameter's schema."""
    whole = cleaned({"type": "object", "properties": {"x": schema}, "required": ["x"]}, dialect)
    return whole["properties"]["x"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("anthropic:claude-sonnet-5", "anthropic"),
        ("openrouter/anthropic/claude-sonnet-5", "anthropic"),
        ("bedrock:anthropic.claude-sonnet-5", "anthropic"),
        ("openai:gpt-5", "openai"),
        ("openai-responses:gpt-5", "openai"),
        ("OpenAI/gpt-5", "openai"),
        ("gpt-5", "openai"),
        ("openai-strict:gpt-5", "openai-strict"),
        ("google-gla:gemini-3-pro", "gemini"),
        ("gemini-openapi:gemini-2.0-flash", "gemini-openapi"),
        ("openrouter/google/gemini-3-pro", "gemini"),
        ("mistral:mistral-large-latest", "mistral"),
        ("groq:mixtral-8x7b", "mistral"),
        ("scripted", "plain"),
        ("plain:gpt-5", "plain"),
        ("groq:llama-4", "plain"),
        ("", "plain"),
    ],
)
def test_models_name_chooses_the_dialect(model: str, name: str) -> None:
    """A dialect's or provider's name decides; else the family the model's own name begins with."""
    assert choose_dialect(model).name == name


def test_unknown_dialect_is_refused_with_the_known_ones() -> None:
    """The message lists what there is."""
    assert find_dialect("gemini") is DIALECTS["gemini"]
    with pytest.raises(
        ConfigError,
        match="'gemma' is not a schema dialect; choose one of anthropic, constrained, gemini,",
    ):
        find_dialect("gemma")


@pytest.mark.covers("S28")
def test_seeds_twenty_keywords_go_and_properties_called_so_stay() -> None:
    """Each of the twenty, as a keyword with a value it may have, and as a property's name."""
    values: dict[str, Any] = dict.fromkeys(GEMINI_STRIPPED, 1) | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/tool",
        "$defs": {},
        "definitions": {},
        "examples": [],
        "additionalProperties": False,
        "patternProperties": {},
        "pattern": "^x",
        "format": "date",
        "uniqueItems": True,
    }
    del values["$ref"]
    assert len(values) == 19
    properties = {name: {"type": "string"} for name in GEMINI_STRIPPED}
    schema = {"type": "object", "properties": properties, **values}
    assert cleaned(schema, "gemini-openapi") == {"type": "object", "properties": properties}


@pytest.mark.covers("S29")
def test_union_of_literals_becomes_one_enum() -> None:
    """Values in the order met; null goes where it is missing, and is apart where it is not listed."""
    union = {"description": "K.", "anyOf": [{"const": "b"}, {"enum": ["a", "b"]}, {"type": "null"}]}
    listed = {"type": "string", "enum": ["b", "a"]}
    assert parameter(union, "gemini-openapi") == {**listed, "description": "K."}
    assert parameter(union, "gemini") == {"description": "K.", "anyOf": [listed, {"type": "null"}]}
    assert parameter({"oneOf": union["anyOf"]}, "openai-strict") == {"anyOf": [listed, {"type": "null"}]}
    assert parameter(union, "openai") == union


def test_null_is_stripped_from_types_unions_and_enums() -> None:
    """The older Gemini field has no null; each place is stated."""
    for nullable in (
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "string"}]},
    ):
        assert parameter(nullable, "gemini-openapi") == {"type": "string"}
        schema = {"properties": {"x": nullable}}
        assert "narrower" in {effect for _, _, effect in effects(schema, "gemini-openapi")}
    assert parameter({"enum": ["a", None]}, "gemini-openapi") == {"type": "string", "enum": ["a"]}
    assert parameter({"type": "null"}, "gemini-openapi") == {"type": "null"}


ACTIONS: dict[str, Any] = {
    "type": "object",
    "description": "A canvas.",
    "properties": {"action": {"type": "string", "description": "What to do."}, "node": {"type": "string"}},
    "required": ["action"],
    "anyOf": [
        {"properties": {"action": {"const": "present"}, "html": {"type": "string"}}, "required": ["html"]},
        {"properties": {"action": {"enum": ["hide", "show"]}}},
    ],
}


@pytest.mark.covers("U5")
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "gemini-openapi", "mistral", "openai"])
@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_root_union_becomes_one_object_and_keeps_what_stands_beside_it(dialect: str, union: str) -> None:
    """Base properties, all variants' properties, their enums together; required is what all require."""
    schema = {keyword: value for keyword, value in ACTIONS.items() if keyword != "anyOf"}
    assert cleaned({**schema, union: ACTIONS["anyOf"]}, dialect) == {
        "type": "object",
        "description": "A canvas.",
        "properties": {
            "action": {
                "type": "string",
                "description": "What to do.",
                "enum": ["present", "hide", "show"],
            },
            "node": {"type": "string"},
            "html": {"type": "string"},
        },
        "required": ["action"],
    }


def test_closed_variants_make_a_closed_object() -> None:
    """What no variant allows stays forbidden; what all require stays required."""
    variants = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, kind: {"type": "string"}},
            "required": ["kind", kind],
            "additionalProperties": False,
        }
        for kind in ("file", "url")
    ]
    schema = {"oneOf": variants}
    assert cleaned(schema, "anthropic") == {
        "type": "object",
        "properties": {
            "kind": {"enum": ["file", "url"]},
            "file": {"type": "string"},
            "url": {"type": "string"},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }
    assert effects(schema, "anthropic") == [("", "oneOf", "wider")]


def test_property_only_some_open_variants_name_is_stated() -> None:
    """Another variant takes anything there; the model is shown what the naming ones say."""
    assert ("/properties/html", "anyOf", "narrower") in effects(ACTIONS, "anthropic")


TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {
            "type": "object",
            "description": "One node.",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
        }
    },
}


@pytest.mark.covers("S29", "REL-P29")
def test_cycle_is_cut_where_references_are_unknown() -> None:
    """It is shown once with its members; what is shown where it returns says the type and what it is."""
    cut = {"type": "object", "description": "One node."}
    assert cleaned(TREE, "gemini-openapi")["properties"]["root"] == {
        **cut,
        "properties": {"name": {"type": "string"}, "next": cut},
    }
    assert ("/properties/root", "$ref", "same") in effects(TREE, "gemini-openapi")
    assert ("/properties/root/properties/next", "$ref", "wider") in effects(TREE, "gemini-openapi")


def test_definitions_that_all_name_each_other_stay_small() -> None:
    """Each path without a repetition would be written out, and there are millions."""
    names = {f"p{at}": {"$ref": f"#/$defs/d{at}"} for at in range(12)}
    schema: dict[str, Any] = {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "required": ["a"],
        "$defs": {
            f"d{at}": {"type": "object", "properties": names, "required": list(names)} for at in range(12)
        },
    }
    for dialect in ("gemini", "gemini-openapi"):
        assert len(str(cleaned(schema, dialect))) < 50_000


def test_cycle_stays_where_it_may() -> None:
    """Gemini takes one beneath what may be left out; OpenAI's strict mode anywhere, as a variant."""
    assert cleaned(TREE, "gemini") == TREE
    assert cleaned(TREE, "openai") == TREE
    required = {**TREE, "required": ["root"]}
    root = cleaned(required, "gemini")["properties"]["root"]
    assert root["properties"] == {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}
    strict = cleaned(TREE, "openai-strict")
    assert strict["properties"]["root"] == {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}
    assert strict["$defs"]["Node"]["required"] == ["name", "next"]


def test_root_variant_that_contains_itself_is_merged_once() -> None:
    """Following a reference at the root ends; further down the reference stays or is cut."""
    node = {"properties": {"name": {"type": "string"}, "child": {"$ref": "#/$defs/Node"}}, "type": "object"}
    schema: dict[str, Any] = {"anyOf": [{"$ref": "#/$defs/Node"}], "$defs": {"Node": node}}
    for dialect in DIALECTS:
        shown = clean(schema, DIALECTS[dialect]).schema
        assert dialect == "plain" or set(shown["properties"]) == {"name", "child"}  # type: ignore[arg-type]


def test_patterns_of_names_go_with_what_is_said_of_all_other_names() -> None:
    """Else names that fit a pattern would be refused."""
    schema = {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}
    assert cleaned(schema, "gemini") == {"type": "object", "properties": {}}
    assert effects(schema, "gemini") == [
        ("", "patternProperties", "wider"),
        ("", "additionalProperties", "wider"),
    ]


def test_tuple_becomes_a_list_of_any_of_its_items() -> None:
    """Where ``prefixItems`` is unknown; what comes after the tuple counts only where it can come."""
    pair = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "maxItems": 2}
    items = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert parameter(pair, "gemini-openapi") == {"type": "array", "items": items}
    assert parameter({**pair, "maxItems": 3}, "gemini-openapi") == {"type": "array", "items": {}}
    assert parameter({"type": "array"}, "gemini-openapi") == {"type": "array", "items": {}}


def test_older_drafts_are_put_into_todays_words() -> None:
    """Tuples, their rest, dependencies and exclusive bounds mean the same; no draft is named any more."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
            "size": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "more": {"type": "number", "maximum": 9, "exclusiveMaximum": False},
        },
        "dependencies": {"size": ["pair"], "more": {"required": ["size"]}},
    }
    assert cleaned(schema, "anthropic") == {
        "type": "object",
        "properties": {
            "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
            "size": {"type": "number", "exclusiveMinimum": 0},
            "more": {"type": "number", "maximum": 9},
        },
        "dependentRequired": {"size": ["pair"]},
        "dependentSchemas": {"more": {"required": ["size"]}},
    }


@pytest.mark.covers("U7")
def test_strict_mode_closes_every_object_and_requires_every_property() -> None:
    """Nested objects, lists of objects and enums; what has no type gets the plain ones."""
    place = {"type": "object", "properties": {"line": {"type": "integer"}}}
    assert parameter(place, "openai-strict") == {
        "type": "object",
        "properties": {"line": {"type": ["integer", "null"]}},
        "required": ["line"],
        "additionalProperties": False,
    }
    assert parameter({"type": "array", "items": place}, "openai-strict")["items"]["required"] == ["line"]
    assert parameter({}, "openai-strict") == {"type": ["string", "number", "boolean", "null"]}
    assert parameter({"type": "string", "pattern": "^(?!x)"}, "openai-strict") == {"type": "string"}
    assert parameter({"type": "string", "format": "uri"}, "openai-strict") == {"type": "string"}
    optional = cleaned({"properties": {"kind": {"enum": ["a"]}, "any": {"$ref": "#"}}}, "openai-strict")
    assert optional["properties"] == {
        "kind": {"type": ["string", "null"], "enum": ["a", None]},
        "any": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    }


def test_enums_of_other_types_become_their_types() -> None:
    """The older Gemini field lists text only, today's text and numbers."""
    assert parameter({"enum": [1, 2]}, "gemini-openapi") == {"type": "integer"}
    assert parameter({"enum": [1, 2]}, "gemini") == {"type": "integer", "enum": [1, 2]}
    assert parameter({"const": True}, "gemini") == {"type": "boolean"}
    assert parameter({"enum": ["a", 1]}, "gemini") == {"type": ["string", "integer"], "enum": ["a", 1]}


def test_list_of_types_becomes_variants_where_types_stand_alone() -> None:
    """Each keeps what is asked of its own type."""
    either = {
        "type": ["object", "array"],
        "properties": {"a": {"type": "string"}},
        "items": {"type": "string"},
    }
    assert parameter(either, "gemini-openapi") == {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "array", "items": {"type": "string"}},
        ]
    }


def test_required_names_that_are_no_properties_are_left_out() -> None:
    """Providers refuse them."""
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a", "b"]}
    assert cleaned(schema, "gemini")["required"] == ["a"]
    assert effects(schema, "gemini") == [("", "required", "wider")]


def test_plain_changes_nothing() -> None:
    """Not even a root union."""
    assert clean(ACTIONS, PLAIN).schema == ACTIONS
    assert clean(ACTIONS, PLAIN).losses == ()


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": ["object", "null"]}])
def test_root_that_is_no_object_is_refused(schema: dict[str, Any]) -> None:
    """Arguments are always an object."""
    with pytest.raises(ConfigError, match="must be an object"):
        clean(schema, PLAIN)


def test_schema_that_grows_too_large_is_refused() -> None:
    """Variants of lists of variants of lists: each level asks what all levels above ask."""
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(14):
        inner = {"type": ["array", "object", "string"], "items": inner}
    schema: dict[str, Any] = {"properties": {"x": inner}}
    assert clean(schema, DIALECTS["gemini-openapi"]).schema["type"] == "object"
    doubling: dict[str, Any] = {"type": "string"}
    for _ in range(14):
        doubling = {"items": doubling, "anyOf": [{"minItems": 1}, {"maxItems": 3}]}
    with pytest.raises(ConfigError, match="makes more than"):
        clean({"properties": {"x": doubling}}, DIALECTS["gemini"])


D7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize(
    "variants",
    [
        [{"type": "string", "enum": ["x"]}, {"type": "integer", "enum": [1]}, {"type": "boolean"}],
        [{"type": "null", "enum": [None]}, {"enum": [1, 10]}, {"enum": ["", ""]}],
        [{"const": 0.5}, {"enum": [0]}, {"type": "array"}],
        [{"enum": ["b", True]}, {"type": "number"}, {"type": "integer", "enum": [2]}],
        [{"enum": [0, "abc"]}, {"type": "integer", "enum": [2]}, {"enum": [None]}],
        [False, False],
        [False, {"const": 1}],
        [{"type": "number", "enum": [0.5]}, {"const": 0.5}],
    ],
)
@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
def test_values_listed_in_variants_are_cleaned_once(dialect: str, variants: list[Any], union: str) -> None:
    """Of several types, of one, of none: a second pass changes nothing, and no variant lacks a type."""
    others: list[dict[str, Any]] = [{}, {"type": "integer"}, {"description": "U"}]
    for beside in others:
        schema: dict[str, Any] = {"type": "object", "properties": {"v": {union: variants, **beside}}}
        once = clean(schema, DIALECTS[dialect])
        assert clean(once.schema, DIALECTS[dialect]).schema == once.schema
        shown: Any = once.schema["properties"]
        if dialect == "openai-strict":
            assert all("type" in variant for variant in shown["v"].get("anyOf", [shown["v"]]))


@pytest.mark.parametrize(
    ("part", "keyword", "dialects"),
    [
        ({"anyOf": [False, False]}, "anyOf", ["gemini", "gemini-openapi", "openai-strict"]),
        ({"type": "array", "prefixItems": [{"type": "string"}, False]}, "prefixItems", ["gemini"]),
        ({"type": "integer", "enum": [0.5, 1]}, "", []),
        ({"type": "integer", "enum": [0.5]}, "enum", ["gemini", "openai-strict"]),
    ],
)
def test_what_nothing_fits_is_not_lost_without_a_word(
    part: dict[str, Any], keyword: str, dialects: list[str]
) -> None:
    """A schema that takes nothing becomes one that takes anything, and the report says so."""
    schema: dict[str, Any] = {"type": "object", "properties": {"v": part}}
    for name in dialects:
        losses = clean(schema, DIALECTS[name]).losses
        assert (keyword, "wider") in {(loss.keyword, loss.effect) for loss in losses}, name
    for name in ("gemini", "openai-strict"):
        shown: Any = clean(schema, DIALECTS[name]).schema["properties"]
        assert 0.5 not in shown["v"].get("enum", [])


@pytest.mark.parametrize("keyword", ["contentEncoding", "contentMediaType", "format"])
@pytest.mark.parametrize("dialect", ["anthropic", "openai", "mistral"])
def test_what_an_older_draft_asks_and_today_s_only_notes_is_said(keyword: str, dialect: str) -> None:
    """The checker asks it by the draft that was named; what is shown is read as 2020-12."""
    value = {"contentEncoding": "base64", "contentMediaType": "application/json", "format": "date"}[keyword]
    part = {"type": "string", keyword: value}
    asked: dict[str, Any] = {"$schema": D7, "type": "object", "properties": {"v": part}}
    assert ("/properties/v", keyword, "wider") in {
        (loss.pointer, loss.keyword, loss.effect) for loss in clean(asked, DIALECTS[dialect]).losses
    }
    negated: dict[str, Any] = {"$schema": D7, "type": "object", "properties": {"v": {"not": part}}}
    assert "narrower" in {loss.effect for loss in clean(negated, DIALECTS[dialect]).losses}
    today: dict[str, Any] = {"type": "object", "properties": {"v": part}}
    assert clean(today, DIALECTS[dialect]).losses == ()


def test_lone_variant_that_closes_the_object_is_said_to_change_it() -> None:
    """Merged with what is next to it, it would be asked about other names."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {}},
        "oneOf": [{"additionalProperties": False}],
    }
    cleaned = clean(schema, DIALECTS["openai"])
    assert ("oneOf", "wider") in {(loss.keyword, loss.effect) for loss in cleaned.losses}


def test_strict_schema_of_another_type_has_no_keywords_of_objects() -> None:
    """A definition that refers to an object and says another type would else keep its properties."""
    both = {"type": "string", "$ref": "#/$defs/A"}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"description": "Mine.", "$ref": "#/$defs/B"}},
        "required": ["a"],
        "$defs": {"A": {"type": "object", "properties": {}, "required": []}, "B": both},
    }
    cleaned = clean(schema, find_dialect("openai-strict"))
    assert cleaned.schema["properties"] == {"a": {"type": "string", "description": "Mine."}}
