"""The one table of tools: it names every tool of the specification, and each class says what its row says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import CAPABILITIES, find_highest, list_capabilities
from sessiontree.contracts.tools.tool import Tool, ToolFlag
from sessiontree.policy.catalog import CATALOG, CatalogRow, build_row
from sessiontree.policy.vocabulary import fold_name
from sessiontree_tools import builtin_tools

ROWS = {row.name: row for row in CATALOG}
SPECIFIED = {
    "fs": "read write edit apply_patch",
    "runtime": "exec process",
    "web": "web_search web_fetch",
    "memory": "memory_search memory_get memory_store",
    "sessions": "sessions_list sessions_history sessions_send sessions_spawn subagents session_status "
    "program tool_search",
    "ui": "browser canvas",
    "messaging": "message",
    "automation": "cron gateway",
    "nodes": "nodes",
    "agents": "agents_list",
    "media": "image tts",
    "landing": "write_html preview_screenshot validate_page deploy_preview",
}
"""Seed 001, section 2.1; seed 004's nine; seed 002, section 9; this house's ``program``, ``tool_search``."""
OBSERVING = "read find grep web_search web_fetch memory_search memory_get program tool_search session_status"
"""All a Worker has of the built-in tools."""


def same_as_its_class(row: CatalogRow, tool: Tool[Any]) -> None:
    """A row and a class declare the same; what the class cannot know is left out."""
    assert replace(row, in_openclaw=False) == build_row(tool)


@pytest.mark.covers("A9")
@pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: tool.name)
def test_every_built_in_tool_is_its_row(tool: Tool[Any]) -> None:
    """Name, label, section, tier, kinds, capabilities, profiles, flags and aliases."""
    same_as_its_class(ROWS[tool.name], tool)


@pytest.mark.covers("S20")
@pytest.mark.parametrize(
    "change",
    [
        {"label": "Other"},
        {"tier": PermissionTier.READ_ONLY},
        {"kinds": frozenset(SessionKind)},
        {"capabilities": frozenset({"reader"})},
        {"optional_capabilities": frozenset({"reader"})},
        {"profiles": frozenset()},
        {"flags": frozenset({ToolFlag.OWNER_ONLY})},
        {"aliases": ()},
        {"is_ready": False},
    ],
)
def test_row_that_drifts_is_found(change: dict[str, Any]) -> None:
    """Each column is compared."""
    (tool,) = [each for each in builtin_tools() if each.name == "exec"]
    with pytest.raises(AssertionError):
        same_as_its_class(replace(ROWS["exec"], **change), tool)


def test_table_is_whole_and_says_what_is_to_come() -> None:
    """Every tool of the specification has a row; ready are the built-in ones and no other."""
    for section, names in SPECIFIED.items():
        assert {ROWS[name].section for name in names.split()} == {section}
    assert {row.name for row in CATALOG if row.is_ready} == {tool.name for tool in builtin_tools()}


@pytest.mark.covers("REL-L59")
def test_no_name_stands_for_two_tools() -> None:
    """Names and aliases together are unique, folded."""
    names = [fold_name(name) for row in CATALOG for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))


def test_worker_only_observes() -> None:
    """ReadOnly, no handle that changes anything, and nothing besides the eight."""
    observing = [row.name for row in CATALOG if SessionKind.WORKER in row.kinds]
    assert observing == OBSERVING.split()
    for name in observing:
        assert ROWS[name].tier is PermissionTier.READ_ONLY
        assert ROWS[name].capabilities <= list_capabilities(SessionKind.WORKER)
    assert all(row.declared <= set(CAPABILITIES) for row in CATALOG)


def test_no_row_is_below_the_tier_of_its_capabilities() -> None:
    """The table keeps the rule its tools are registered by, those to come included."""
    for row in CATALOG:
        highest = find_highest(row.declared)
        assert highest is None or row.tier >= highest.tier, row.name


def test_plugin_puts_its_tools_into_no_profile() -> None:
    """An owner's ``also_allow`` does, not the plugin's author."""
    (tool,) = [each for each in builtin_tools() if each.name == "read"]
    assert build_row(tool).profiles == {"coding"}
    assert build_row(tool, plugin="radio").profiles == frozenset()
