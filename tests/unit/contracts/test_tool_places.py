"""Where a tool of a program belongs: its label, its group and its profiles, as ``@tool`` declares them."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree import ConfigError, PermissionTier, SessionKind, schema_tool, tool
from sessiontree.contracts.tools.tool import Tool
from sessiontree.policy.catalog import CATALOG, build_row
from sessiontree.policy.compiled import CompiledPolicy
from sessiontree.policy.settings import PolicyConfig, ToolPolicy
from sessiontree.policy.steps import Standing

MAIN = Standing(SessionKind.MAIN, is_owner=True)


@tool(tier=PermissionTier.READ_ONLY, label="Look up a word", section="words", profiles={"coding"})
def define(word: str) -> str:
    """Say what a word means."""
    return word


@schema_tool({"type": "object"}, label="Count words", section="words", profiles="minimal")
def count(params: dict[str, Any]) -> int:
    """Count words."""
    return len(params)


@tool
def bare(word: str) -> str:
    """Say a word."""
    return word


@pytest.mark.covers("S1")
def test_tool_says_where_it_belongs() -> None:
    """Its row has label, section and profiles; without them the name, ``user`` and none."""
    rows = map(build_row, (define, count, bare))
    found = [(row.name, row.label, row.section, sorted(row.profiles)) for row in rows]
    assert found == [
        ("define", "Look up a word", "words", ["coding"]),
        ("count", "Count words", "words", ["minimal"]),
        ("bare", "bare", "user", []),
    ]


@pytest.mark.covers("S1", "S17")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (ToolPolicy(deny=("group:words",)), {"bare"}),
        (ToolPolicy(allow=("group:words",)), {"define", "count"}),
        (ToolPolicy(profile="coding"), {"define"}),
        (ToolPolicy(profile="minimal"), {"count"}),
        (ToolPolicy(profile="full"), {"define", "count", "bare"}),
    ],
)
def test_lists_and_profiles_heed_it(policy: ToolPolicy, kept: set[str]) -> None:
    """A group by section, a profile by what the tool says."""
    own = tuple(map(build_row, (define, count, bare)))
    judged = CompiledPolicy((*CATALOG, *own), PolicyConfig(tools=policy)).decide(MAIN).kept
    assert judged & {"define", "count", "bare"} == kept


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"section": "a b"}, "section"),
        ({"section": ""}, "section"),
        ({"label": "two\nlines"}, "label"),
        ({"label": "x" * 81}, "label"),
        ({"label": 7}, "label"),
        ({"profiles": [7]}, "profiles"),
    ],
)
def test_wrong_places_are_refused(wrong: dict[str, Any], why: str) -> None:
    """The error names what is wrong."""
    with pytest.raises(ConfigError, match=why):
        tool(**wrong)(bare.function)


def test_built_in_tools_keep_theirs() -> None:
    """A check of every class."""
    rows = {row.name: row for row in CATALOG}
    assert isinstance(define, Tool)
    assert rows["read"].section == "fs"
