"""The list of functions of the tool ``program``: short, bounded, and the same for the same tools."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.tools.tool import Tool
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.programs import tool_list
from sessiontree.programs.tool_list import (
    IN_SCHEMAS,
    MAX_DESCRIPTION_CHARS,
    NOTE,
    describe_program,
    shorten_signature,
)
from sessiontree.runtime.runner.model_requests import ToolOffer
from sessiontree_tools import builtin_tools
from sessiontree_tools.sessions.program import RunProgram

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,40}", fullmatch=True)
TYPES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "array", "items": {"type": "string"}},
        {"enum": ["one", "two"]},
        {"enum": [f"value {number}" for number in range(30)]},
        {},
    ]
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return the schema of some parameters."""
    properties = draw(st.dictionaries(NAMES, TYPES, max_size=6))
    needed = [name for name in properties if draw(st.booleans())]
    return {"type": "object", "properties": properties, "required": needed}


TOOLS = st.dictionaries(NAMES, schemas(), max_size=60)


def check_list(tools: dict[str, Any], own: str) -> None:
    """Property: what fits is listed in its order, the rest is counted, and nothing else is named."""
    text = describe_program(own, tools.items(), "sessions_spawn", IN_SCHEMAS)
    assert len(text) <= MAX_DESCRIPTION_CHARS
    head, found, listed = text.partition(NOTE)
    assert head.startswith(own)
    left = re.search(rf"(?:^|; )and (\d+) more: {IN_SCHEMAS}\.$", listed)
    shown = (listed[: left.start()] if left else listed.removesuffix(".")).split("; ") if found else []
    wanted = [shorten_signature(name, schema) for name, schema in tools.items() if name != "sessions_spawn"]
    assert set(shown) <= set(wanted)
    places = [wanted.index(each) for each in shown]
    assert places == sorted(places)
    if found:
        assert len(shown) + (int(left[1]) if left else 0) == len(wanted)
    assert ("spawn(kind" in head) == ("sessions_spawn" in tools)


@given(tools=TOOLS, own=st.sampled_from(["Run it.", "x" * 700, "x" * 1_100]))
def test_list_has_what_fits_and_counts_the_rest(tools: dict[str, Any], own: str) -> None:
    """At most 1,200 characters, with whatever tools."""
    check_list(tools, own)
    check_list({**tools, "sessions_spawn": {}}, own)


@pytest.mark.parametrize("bug", ["the note is not counted", "what does not fit is forgotten"])
def test_planted_fault_of_the_list_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property fails for lists that are too long or silent."""

    def left_out(count: int, rest: str) -> str:
        if bug == "what does not fit is forgotten":
            return ""
        return "" if count == len(tools) else f"; and {count} more: {rest}."

    tools: dict[str, Any] = {
        f"tool_{number}": {"properties": {f"p{at}": {} for at in range(number % 7)}} for number in range(99)
    }
    monkeypatch.setattr(tool_list, "_format_rest", left_out)
    with pytest.raises(AssertionError):
        for length in range(700, 760):
            check_list(tools, "x" * length)


def described(tools: list[Tool[Any]]) -> str:
    """Return the description of ``program`` in a session that holds these tools."""
    specs = ToolOffer(ToolTable(tools), "all").show("scripted")
    return next(each.description for each in specs if each.name == "program")


def test_files_and_commands_are_first_and_the_order_of_tools_is_nothing() -> None:
    """The same tools give the same text, whatever order they were given in; children are functions."""
    text = described(list(builtin_tools()))
    assert text == described([*reversed(builtin_tools())])
    listed = text.partition(NOTE)[2]
    firsts = [each.partition("(")[0] for each in listed.split("; ")[:6]]
    assert firsts == ["read", "write", "edit", "find", "grep", "exec"]
    assert listed.endswith(f"more: {IN_SCHEMAS}.")
    assert "sessions_spawn" not in text
    assert "map(kind, tasks" in text
    assert described([RunProgram()]) == RunProgram.description
