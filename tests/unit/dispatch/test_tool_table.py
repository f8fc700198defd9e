"""Tables of tools: trees with the same entries share one, and none has the tools of another tree."""

from __future__ import annotations

from sessiontree import tool
from sessiontree.dispatch.tool_table import ToolTable, make_tool_table
from sessiontree_tools import builtin_tools


@tool
def mine(text: str) -> str:
    """Repeat the text."""
    return text


def test_trees_with_the_same_entries_share_a_table() -> None:
    """A tool of one tree's own is in no other table, and other entries make another table."""
    entries = list(ToolTable(builtin_tools()))
    usual = make_tool_table((), {}, entries)
    own = make_tool_table((mine,), {"mine": "radio"}, entries)
    assert make_tool_table((), {}, tuple(entries)) is usual
    assert [entry.name for entry in usual] == [entry.name for entry in entries]
    assert [entry.name for entry in own] == sorted(["mine", *(entry.name for entry in entries)])
    assert (own.plugins, usual.plugins) == ({"mine": "radio"}, {})
    assert usual.get("mine") is None
    fewer = make_tool_table((), {}, entries[1:])
    assert [entry.name for entry in fewer] == [entry.name for entry in entries[1:]]
