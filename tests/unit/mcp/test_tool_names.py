"""Names of servers' tools: a pure function of both names, short enough, and never those of two tools."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.mcp.tool_names import make_tool_name

NAMES = st.text(st.sampled_from("ab_-.é /1"), min_size=1, max_size=80)


@given(NAMES, NAMES, NAMES, NAMES)
@example("a", "b__c", "a__b", "c")
@example("a_", "b", "a", "_b")
@example("a.b", "c", "a_b", "c")
def test_two_tools_never_have_one_name(server: str, tool: str, other: str, another: str) -> None:
    """Every name is one that providers accept."""
    called = make_tool_name(server, tool)
    assert re.fullmatch(r"mcp__[A-Za-z0-9_-]{1,59}", called)
    assert called == make_tool_name(server, tool)
    if (server, tool) != (other, another):
        assert called != make_tool_name(other, another)


def test_plain_name_stays_readable() -> None:
    """Only a name that could be another's, or is too long, has a hash."""
    assert make_tool_name("git", "git_status") == "mcp__git__git_status"
    assert make_tool_name("git", "x" * 80)[:20] == "mcp__git__" + "x" * 10
    assert len(make_tool_name("git", "x" * 80)) == 64
