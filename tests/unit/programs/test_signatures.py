"""How a program sees tools: declarations that the type checker reads, and names that Python can spell."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from sessiontree.programs.signatures import build_face, derive_type, format_signature, make_function_name

SCHEMAS = [
    ({"type": "string"}, "str"),
    ({"type": "integer"}, "int"),
    ({"type": "number"}, "float"),
    ({"type": "boolean"}, "bool"),
    ({"type": "object"}, "dict[str, Any]"),
    ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
    ({"enum": ["a", "b"]}, "Literal['a', 'b']"),
    ({"const": 3}, "Literal[3]"),
    ({"enum": [1.5]}, "Any"),
    ({"enum": []}, "Any"),
    ({"enum": [f"v{number}" for number in range(41)]}, "Any"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
    ({"anyOf": [{"type": "string"}, {}]}, "Any"),
    ({"type": ["string", "null"]}, "str | None"),
    ({"$ref": "#/$defs/Thing"}, "Any"),
    (True, "Any"),
    ({"type": "unknown"}, "Any"),
]


@pytest.mark.parametrize(("schema", "wanted"), SCHEMAS)
def test_schema_is_the_narrowest_type(schema: object, wanted: str) -> None:
    """What has no type as narrow is Any: a call is checked again by its tool."""
    assert derive_type(schema) == wanted


def test_required_arguments_come_first_and_may_not_be_missing() -> None:
    """Arguments have names; those that need not be given may also be None."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer"},
            "path": {"type": "string"},
            "not-a-name": {},
            "class": {},
        },
        "required": ["path"],
    }
    assert format_signature("read", schema) == (
        "async def read(*, path: str, limit: int | None = ..., timeout_s: float = ...) -> Any: ...\n"
    )
    assert format_signature("now", {}) == "async def now(*, timeout_s: float = ...) -> Any: ...\n"


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [("read", "read"), ("mcp__files__read-it", "mcp__files__read_it"), ("import", "import_")],
)
def test_function_has_the_tool_s_name_as_python_spells_it(tool: str, wanted: str) -> None:
    """Whatever the tool is called."""
    assert make_function_name(tool) == wanted


def test_face_is_python_and_leads_each_function_to_its_tool() -> None:
    """A built-in name is bound before the program; the tool that starts children is seen as functions."""
    tools = {name: {"type": "object"} for name in ("exec", "read", "sessions_spawn")}
    face = build_face(tools, "sessions_spawn")
    ast.parse(face.stubs)
    ast.parse(face.prelude)
    assert face.tools == {"tool_exec": "exec", "read": "read", "spawn_child": "sessions_spawn"}
    assert "exec = tool_exec" in face.prelude
    assert not face.with_own_timeout
    alone = build_face({"read": {"type": "object"}}, "sessions_spawn")
    assert "spawn" not in alone.stubs + alone.prelude


def test_time_bound_is_the_tool_s_own_if_it_has_one() -> None:
    """Otherwise it bounds how long the program waits."""
    timed: dict[str, Any] = {"type": "object", "properties": {"timeout_s": {"type": "number"}}}
    assert format_signature("ask", timed) == "async def ask(*, timeout_s: float | None = ...) -> Any: ...\n"
    assert "ask" in build_face({"ask": timed, "read": {}}, "").with_own_timeout
