"""Definitions written out where they are used."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sessiontree.contracts.errors import ConfigError
from sessiontree.schema.definitions import MAX_SCHEMAS, set_object_root, write_out


def test_definition_is_written_where_it_is_used() -> None:
    """Annotations next to a reference win over the definition's."""
    schema = write_out(
        {
            "properties": {"a": {"$ref": "#/$defs/A", "description": "Mine."}, "b": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "string", "description": "Any."}},
        }
    )
    assert schema == {
        "properties": {
            "a": {"type": "string", "description": "Mine."},
            "b": {"type": "string", "description": "Any."},
        }
    }


def test_condition_beside_a_reference_is_joined_not_lost() -> None:
    """Both the definition's minimum and the one next to it hold."""
    schema = write_out(
        {"items": {"$ref": "#/$defs/A", "minimum": 5}, "$defs": {"A": {"type": "integer", "minimum": 1}}}
    )
    assert schema == {"items": {"allOf": [{"type": "integer", "minimum": 1}], "minimum": 5}}


BESIDE: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    ({"additionalProperties": False}, {"type": "object", "properties": {"x": {}}}, {"x": 1}),
    ({"patternProperties": {"^b": {}}}, {"properties": {"x": {}}, "additionalProperties": False}, {"b1": 1}),
    ({"properties": {"y": {}}}, {"unevaluatedProperties": False}, {"y": 1}),
    ({"properties": {"y": {}}}, {"additionalProperties": False}, {"y": 1}),
    ({"unevaluatedProperties": False}, {"properties": {"x": {}}}, {"x": 1}),
    ({"then": {"minimum": 10}}, {"if": {"type": "integer"}}, 1),
    ({"else": {"minimum": 10}}, {"if": {"type": "string"}, "then": {}}, 1),
    ({"prefixItems": [{}]}, {"items": {"type": "integer"}}, [None]),
    ({"items": False}, {"prefixItems": [{}]}, [1]),
    ({"unevaluatedItems": False}, {"contains": {"type": "integer"}}, [1]),
    ({"minContains": 0}, {"contains": {"type": "integer"}}, [None]),
    ({"maxContains": 1}, {"contains": {"type": "integer"}}, [1, 1]),
    ({"allOf": [{"minimum": 5}]}, {"allOf": [{"maximum": 9}]}, 10),
    ({"allOf": [{"minimum": 5}], "type": "integer"}, {"type": "number"}, 1),
    ({"anyOf": [{"properties": {"y": {}}}]}, {"unevaluatedProperties": False}, {"y": 1}),
    ({"dependentSchemas": {"y": {"properties": {"y": {}}}}}, {"unevaluatedProperties": False}, {"y": 1}),
]


@pytest.mark.parametrize(("beside", "definition", "value"), BESIDE)
def test_what_stands_beside_a_reference_never_looks_into_it(
    beside: dict[str, Any], definition: dict[str, Any], value: Any
) -> None:
    """Written out it takes what its author's schema takes: at the root, further down, through two of them."""
    chained: dict[str, Any] = {"A": {"$ref": "#/$defs/B", "description": "A."}, "B": definition}
    places: list[dict[str, Any]] = [
        {"$ref": "#/$defs/A", **beside, "$defs": {"A": definition}},
        {"$ref": "#/$defs/A", **beside, "$defs": chained},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B", **beside}, "B": definition}},
        {"allOf": [{"$ref": "#/$defs/A", **beside}], "$defs": chained},
    ]
    for root in places:
        expected = Draft202012Validator(root).is_valid(value)
        assert Draft202012Validator(write_out(root)).is_valid(value) == expected, root


def test_what_means_the_same_beside_anything_is_written_beside_it() -> None:
    """A title, a bound, a list of names: no ``allOf`` that a model would have to read."""
    definition: dict[str, Any] = {
        "type": "object",
        "properties": {"x": {}},
        "unevaluatedProperties": False,
    }
    schema = write_out(
        {"items": {"$ref": "#/$defs/A", "title": "T", "required": ["x"]}, "$defs": {"A": definition}}
    )
    assert schema == {"items": {**definition, "title": "T", "required": ["x"]}}


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("#/$defs/List%5Bint%5D", "List[int]"),
        ("#/$defs/foo%22bar", 'foo"bar'),
        ("#/$defs/percent%25field", "percent%field"),
        ("#/$defs/a%20b", "a b"),
        ("#/$defs/%C3%A9", "é"),
        ("#/$defs/a%7E1b", "a/b"),
        ("#/$defs/tilde~0field", "tilde~field"),
        ("#/%24defs/A", "A"),
        ("#/$defs/100%", "100%"),
        ("#/$defs/List[int]", "List[int]"),
    ],
)
def test_reference_is_a_uri(ref: str, name: str) -> None:
    """Names are percent-encoded in it; one that was left as it is, is found too."""
    definition: dict[str, Any] = {"type": "integer"}
    assert write_out({"items": {"$ref": ref}, "$defs": {name: definition}}) == {"items": definition}
    recursive: dict[str, Any] = {"properties": {"next": {"$ref": ref}}}
    kept = write_out({"items": {"$ref": ref}, "$defs": {name: recursive}})
    assert len(kept["$defs"]) == 1  # type: ignore[arg-type]


def test_encoded_sign_is_that_sign_first() -> None:
    """Where both are there, as of two definitions made by a generator."""
    definitions: dict[str, Any] = {"a%b": {"type": "string"}, "a%25b": {"type": "integer"}}
    schema = write_out({"items": {"$ref": "#/$defs/a%25b"}, "$defs": definitions})
    assert schema == {"items": {"type": "string"}}


def test_root_reference_keeps_its_draft() -> None:
    """What ``$schema`` says holds for what is written out too."""
    draft = "http://json-schema.org/draft-07/schema#"
    schema = write_out(
        {"$schema": draft, "$ref": "#/definitions/A", "definitions": {"A": {"items": [{"type": "null"}]}}}
    )
    assert schema == {"$schema": draft, "items": [{"type": "null"}]}


@pytest.mark.parametrize(
    ("root", "value"),
    [
        ({"properties": {"foo": {"$ref": "#"}}, "additionalProperties": False}, {"foo": False}),
        ({"properties": {"foo": {"$ref": "#"}}, "additionalProperties": False}, {"foo": {"bar": 1}}),
        (
            {
                "properties": {"foo": {"items": {"$ref": "#"}}},
                "$defs": {"root": {"items": {"$ref": "#/$defs/root"}}},
            },
            {"foo": [1]},
        ),
        (
            {"properties": {"foo": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"items": {"$ref": "#"}}}},
            {"foo": [1, []]},
        ),
        ({"type": "object", "properties": {"foo": {"$ref": "#"}}}, {"foo": False}),
    ],
)
def test_root_is_an_object_and_what_refers_to_it_need_not_be(root: dict[str, Any], value: Any) -> None:
    """The type that a tool's parameters need is not asked further down, unless the author asks it."""
    typed = set_object_root(write_out(root))
    assert typed["type"] == "object"
    assert Draft202012Validator(typed).is_valid(value) == Draft202012Validator(root).is_valid(value)
    assert not Draft202012Validator(typed).is_valid(5)


def test_in_old_drafts_what_stands_beside_a_reference_asks_nothing() -> None:
    """Up to draft 7 only annotations count there."""
    schema = write_out(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "items": {"$ref": "#/definitions/A", "minimum": 5, "description": "D."},
            "definitions": {"A": {"type": "integer"}},
        }
    )
    assert schema["items"] == {"type": "integer", "description": "D."}


def test_definitions_that_use_each_other_stay_under_their_names_sorted() -> None:
    """Only the cycle stays; what is used once on the way is written out."""
    schema = write_out(
        {
            "properties": {"b": {"$ref": "#/$defs/B"}},
            "$defs": {
                "B": {"items": {"$ref": "#/$defs/A"}},
                "A": {"items": {"$ref": "#/$defs/B"}, "not": {"$ref": "#/$defs/C"}},
                "C": {"type": "null"},
            },
        }
    )
    assert schema == {
        "properties": {"b": {"$ref": "#/$defs/B"}},
        "$defs": {
            "A": {"items": {"$ref": "#/$defs/B"}, "not": {"type": "null"}},
            "B": {"items": {"$ref": "#/$defs/A"}},
        },
    }


def test_reference_to_any_place_is_followed() -> None:
    """Pointers through properties, lists, escapes and boolean schemas resolve; recursive ones get a name."""
    schema = write_out(
        {
            "properties": {
                "a/b": {"anyOf": [{"type": "string"}, True]},
                "first": {"$ref": "#/properties/a~1b/anyOf/0"},
                "any": {"$ref": "#/properties/a~1b/anyOf/1"},
                "tree": {"items": {"$ref": "#/properties/tree"}},
                "self": {"$ref": "#"},
            }
        }
    )
    properties: Any = schema["properties"]
    assert properties["first"] == {"type": "string"}
    assert properties["any"] == {}
    assert properties["tree"] == {"items": {"$ref": "#/$defs/properties.tree"}}
    assert properties["self"] == {"$ref": "#"}
    assert schema["$defs"] == {"properties.tree": {"items": {"$ref": "#/$defs/properties.tree"}}}


def test_two_definitions_of_one_name_both_stay() -> None:
    """``$defs`` and ``definitions`` may hold the same name."""
    schema = write_out(
        {
            "prefixItems": [{"$ref": "#/$defs/A"}, {"$ref": "#/definitions/A"}],
            "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}},
            "definitions": {"A": {"contains": {"$ref": "#/definitions/A"}}},
        }
    )
    assert schema["$defs"] == {
        "A": {"items": {"$ref": "#/$defs/A"}},
        "A_2": {"contains": {"$ref": "#/$defs/A_2"}},
    }


@pytest.mark.parametrize(
    "definition",
    [
        {"$ref": "#/$defs/A"},
        {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/A"}]},
        {"allOf": [{"not": {"$ref": "#/$defs/A"}}]},
    ],
)
def test_reference_to_itself_for_the_same_value_is_refused(definition: Any) -> None:
    """Following it would never end."""
    with pytest.raises(ConfigError, match="refers to itself"):
        write_out({"items": {"$ref": "#/$defs/A"}, "$defs": {"A": definition}})


def test_definitions_that_double_each_other_are_refused() -> None:
    """Thirty short lines would make a thousand million schemas."""
    doubling: dict[str, Any] = {
        f"D{level}": {"prefixItems": [{"$ref": f"#/$defs/D{level + 1}"}] * 2} for level in range(30)
    }
    with pytest.raises(ConfigError, match=f"more than {MAX_SCHEMAS}"):
        write_out({"items": {"$ref": "#/$defs/D0"}, "$defs": {**doubling, "D30": {}}})


def test_definitions_nested_too_deep_are_refused() -> None:
    """A chain of definitions is as deep as it is long."""
    chain: dict[str, Any] = {
        f"D{level}": {"items": {"$ref": f"#/$defs/D{level + 1}"}} for level in range(400)
    }
    with pytest.raises(ConfigError, match="nested more than"):
        write_out({"items": {"$ref": "#/$defs/D0"}, "$defs": {**chain, "D400": {}}})


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$recursiveRef"])
def test_references_that_depend_on_the_caller_are_refused(keyword: str) -> None:
    """They cannot be written out."""
    with pytest.raises(ConfigError, match="is not understood"):
        write_out({"items": {keyword: "#node"}})


def test_address_inside_is_refused_and_the_roots_is_dropped() -> None:
    """An ``$id`` changes what references mean; the root's changes nothing here."""
    assert write_out({"$id": "https://example.invalid/a", "type": "object"}) == {"type": "object"}
    with pytest.raises(ConfigError, match=r"\$id inside"):
        write_out({"items": {"$id": "https://example.invalid/a"}})


def test_reference_to_what_is_no_schema_is_refused() -> None:
    """A pointer may hit a text or a list."""
    with pytest.raises(ConfigError, match="does not lead to a schema"):
        write_out({"items": {"$ref": "#/type"}, "type": "array"})


def test_definition_that_only_refers_to_another_leads_there() -> None:
    """What it leads to stays too, though nothing else refers to it."""
    schema = write_out(
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"properties": {"a": {"$ref": "#/$defs/A"}}}},
        }
    )
    assert schema == {
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"properties": {"a": {"$ref": "#/$defs/A"}}}},
    }
