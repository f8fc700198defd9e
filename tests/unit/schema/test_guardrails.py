"""What schemas had better go without, and the built-in tools that do."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.schema.derive import derive_schema
from sessiontree.schema.dialect import find_schema_warnings
from sessiontree_tools import builtin_tools

TEXT = {"type": "string"}


@pytest.mark.covers("S25", "S26")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"format": TEXT}}, "the root: a property is called 'format'"),
        (
            {"properties": {"a": {"properties": {"format": TEXT}}}},
            "/properties/a: a property is called 'format'",
        ),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "the root: a union (anyOf)"),
        (
            {"properties": {"a/b": {"items": {"oneOf": [TEXT, {}]}}}},
            "/properties/a~1b/items: a union (oneOf)",
        ),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "/properties/a: null as a variant"),
        ({"properties": {"a": {"anyOf": [TEXT, {"type": "null"}]}}}, "/properties/a: null as a variant"),
        ({"properties": {"a": {"enum": ["x", None]}}}, "/properties/a: null as a variant"),
        ({"$defs": {"A": {"anyOf": [TEXT, {}]}}}, "/$defs/A: a union (anyOf)"),
        ({"properties": {"über": TEXT}}, "the parameter 'über' has a name some providers refuse"),
    ],
)
def test_slip_is_found_where_it_stands(schema: dict[str, Any], said: str) -> None:
    """In each place a schema may stand in; what to do instead is said."""
    found = find_schema_warnings(schema)
    assert any(each.startswith(said) for each in found), found
    assert all(";" in each for each in found)


def test_values_and_keywords_called_so_are_no_slip() -> None:
    """Only a property may be called ``format``; a format, a default or an enum value are something else."""
    schema: dict[str, Any] = {
        "properties": {"a": {"type": "string", "format": "date", "enum": ["format"], "default": None}},
        "default": {"format": None, "anyOf": [1, 2]},
        "anyOf": [{"required": ["a"]}],
    }
    assert find_schema_warnings(schema) == ()


def test_no_built_in_tool_has_a_slip() -> None:
    """A tree could not be made with one."""
    for tool in builtin_tools():
        assert find_schema_warnings(derive_schema(tool)) == (), tool.name
