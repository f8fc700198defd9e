"""Walks through schemas follow keywords, never names."""

from __future__ import annotations

import pytest

from sessiontree.schema.keywords import Schema, list_subschemas, order_keywords, replace_inside, rewrite

SCHEMA: Schema = {
    "$defs": {"D": {"const": 0}},
    "properties": {"items": {"const": 1}, "$ref": {"not": {"const": 2}}, "never": False},
    "default": {"properties": {"x": {"const": "no schema"}}},
    "enum": [{"not": {"const": "no schema"}}],
    "anyOf": [{"const": 3}, True],
    "items": [{"const": 4}],
    "dependencies": {"a": ["b"], "c": {"const": 5}},
    "additionalProperties": {"const": 6},
}


def test_subschemas_are_found_by_keyword_and_definitions_left_out() -> None:
    """Values, names and boolean schemas are no schemas to look into."""
    assert list(list_subschemas(SCHEMA)) == [
        {"const": 1},
        {"not": {"const": 2}},
        {"const": 3},
        {"const": 4},
        {"const": 5},
        {"const": 6},
    ]
    assert list(list_subschemas(SCHEMA, frozenset({"anyOf"}))) == [{"const": 3}]


@pytest.mark.covers("U6")
def test_rewriting_reaches_every_schema_innermost_first_and_copies() -> None:
    """Definitions too; the input stays as it was."""
    seen: list[object] = []

    def mark(schema: Schema) -> Schema:
        seen.append(schema.get("const", "other"))
        return {**schema, "seen": True}

    rewritten = rewrite(SCHEMA, mark)
    assert seen == [0, 1, 2, "other", 3, 4, 5, 6, "other"]
    assert rewritten["default"] == SCHEMA["default"]
    assert rewritten["properties"] == {
        "items": {"const": 1, "seen": True},
        "$ref": {"not": {"const": 2, "seen": True}, "seen": True},
        "never": False,
    }
    assert "seen" not in str(SCHEMA)


def test_replacing_inside_stops_at_the_first_level() -> None:
    """What the change returns is not looked into."""
    assert replace_inside({"not": {"not": {}}}, lambda inner: {"was": inner}) == {"not": {"was": {"not": {}}}}


def test_keywords_are_ordered_definitions_last_and_names_kept() -> None:
    """A reader meets type and description first."""
    schema: Schema = {"$defs": {}, "minimum": 1, "b": 2, "properties": {"z": {}, "a": {}}, "type": "object"}
    assert list(order_keywords(schema)) == ["type", "properties", "b", "minimum", "$defs"]
    assert list(order_keywords(schema)["properties"]) == ["z", "a"]  # type: ignore[arg-type]
