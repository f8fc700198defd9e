"""What every built-in tool declares, against one explicit table."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.tools.tool import (
    ALL_KINDS,
    MAIN_AND_BRANCH,
    AllowEmpty,
    Retry,
    Stripped,
    Tool,
    check_tool,
)
from sessiontree.schema.derive import derive_schema
from sessiontree_tools import builtin_tools


@dataclass(frozen=True, slots=True)
class Row:
    """What one tool must declare."""

    tier: PermissionTier
    kinds: frozenset[SessionKind]
    section: str
    capabilities: frozenset[str]
    idempotent: bool = False
    sequential: bool = False
    retry: Retry | None = None


READ, WORK, SYSTEM = PermissionTier.READ_ONLY, PermissionTier.WORKSPACE, PermissionTier.SYSTEM
TABLE = {
    "read": Row(READ, ALL_KINDS, "fs", frozenset({"reader"})),
    "write": Row(WORK, MAIN_AND_BRANCH, "fs", frozenset({"writer"}), sequential=True),
    "edit": Row(WORK, MAIN_AND_BRANCH, "fs", frozenset({"reader", "writer"}), sequential=True),
    "apply_patch": Row(WORK, MAIN_AND_BRANCH, "fs", frozenset({"reader", "writer"}), sequential=True),
    "child_workspace": Row(
        WORK,
        MAIN_AND_BRANCH,
        "fs",
        frozenset({"reader", "writer", "child_workspaces"}),
        idempotent=True,
        sequential=True,
    ),
    "find": Row(READ, ALL_KINDS, "fs", frozenset({"reader"})),
    "grep": Row(READ, ALL_KINDS, "fs", frozenset({"reader"})),
    "exec": Row(SYSTEM, MAIN_AND_BRANCH, "runtime", frozenset({"jobs"})),
    "process": Row(SYSTEM, MAIN_AND_BRANCH, "runtime", frozenset({"jobs"})),
    "message": Row(SYSTEM, MAIN_AND_BRANCH, "messaging", frozenset({"channel"}), sequential=True),
    "ask_user": Row(READ, MAIN_AND_BRANCH, "messaging", frozenset(), idempotent=True),
    "sessions_spawn": Row(WORK, MAIN_AND_BRANCH, "sessions", frozenset({"sessions"}), idempotent=True),
    "program": Row(READ, ALL_KINDS, "sessions", frozenset(), idempotent=True),
    "tool_search": Row(READ, ALL_KINDS, "sessions", frozenset(), idempotent=True),
    "session_status": Row(READ, ALL_KINDS, "sessions", frozenset()),
    "subagents": Row(WORK, MAIN_AND_BRANCH, "sessions", frozenset({"sessions", "subtree"}), idempotent=True),
    "sessions_list": Row(READ, MAIN_AND_BRANCH, "sessions", frozenset({"subtree"})),
    "sessions_history": Row(READ, MAIN_AND_BRANCH, "sessions", frozenset({"subtree"})),
    "sessions_send": Row(WORK, MAIN_AND_BRANCH, "sessions", frozenset({"sessions"}), idempotent=True),
    "agents_list": Row(READ, MAIN_AND_BRANCH, "agents", frozenset({"subtree"})),
    "cron": Row(SYSTEM, frozenset({SessionKind.MAIN}), "automation", frozenset({"cron"}), idempotent=True),
    "gateway": Row(PermissionTier.ELEVATED, MAIN_AND_BRANCH, "automation", frozenset({"runtime"})),
    "web_search": Row(READ, ALL_KINDS, "web", frozenset({"web"}), retry=Retry(2)),
    "web_fetch": Row(READ, ALL_KINDS, "web", frozenset({"web"}), retry=Retry(2)),
    "browser": Row(SYSTEM, MAIN_AND_BRANCH, "ui", frozenset({"browser", "web"}), sequential=True),
    "http_request": Row(SYSTEM, MAIN_AND_BRANCH, "network", frozenset({"http"})),
    "canvas": Row(SYSTEM, MAIN_AND_BRANCH, "ui", frozenset({"canvas"}), sequential=True),
    "memory_search": Row(READ, ALL_KINDS, "memory", frozenset({"memory"})),
    "memory_get": Row(READ, ALL_KINDS, "memory", frozenset({"memory"})),
    "memory_store": Row(WORK, MAIN_AND_BRANCH, "memory", frozenset({"memory_writer"}), idempotent=True),
    "memory_forget": Row(
        PermissionTier.ELEVATED, MAIN_AND_BRANCH, "memory", frozenset({"memory_writer"}), idempotent=True
    ),
    "write_html": Row(WORK, MAIN_AND_BRANCH, "landing", frozenset({"reader", "writer"}), sequential=True),
    "preview_screenshot": Row(SYSTEM, MAIN_AND_BRANCH, "landing", frozenset({"reader", "browser"})),
    "validate_page": Row(SYSTEM, MAIN_AND_BRANCH, "landing", frozenset({"reader", "browser"})),
    "deploy_preview": Row(
        SYSTEM, MAIN_AND_BRANCH, "landing", frozenset({"reader", "previews"}), idempotent=True
    ),
    "image": Row(READ, MAIN_AND_BRANCH, "media", frozenset({"reader", "images"})),
    "tts": Row(WORK, MAIN_AND_BRANCH, "media", frozenset({"writer", "speech"})),
    "nodes": Row(PermissionTier.ELEVATED, MAIN_AND_BRANCH, "nodes", frozenset({"nodes"})),
}
MARKED = {
    ("write", "content"): AllowEmpty(),
    ("write_html", "content"): AllowEmpty(),
    ("edit", "new_text"): AllowEmpty(),
    ("sessions_spawn", "label"): Stripped(),
    ("sessions_spawn", "agent"): Stripped(),
    ("subagents", "target"): Stripped(),
    ("sessions_history", "target"): Stripped(),
    ("sessions_send", "target"): Stripped(),
    ("cron", "job_id"): Stripped(),
    ("cron", "name"): Stripped(),
    ("cron", "at"): Stripped(),
    ("cron", "expression"): Stripped(),
    ("cron", "zone"): Stripped(),
    ("cron", "until"): Stripped(),
    ("cron", "agent"): Stripped(),
    ("gateway", "section"): Stripped(),
    ("gateway", "base_hash"): Stripped(),
    ("web_search", "query"): Stripped(),
    ("web_search", "country"): Stripped(),
    ("web_search", "language"): Stripped(),
    ("web_fetch", "url"): Stripped(),
    ("http_request", "url"): Stripped(),
    ("child_workspace", "target"): Stripped(),
    ("browser", "url"): Stripped(),
    ("browser", "tab"): Stripped(),
    ("canvas", "html"): AllowEmpty(),
    ("canvas", "url"): Stripped(),
    ("memory_search", "query"): Stripped(),
    ("memory_get", "id"): Stripped(),
    ("memory_store", "source"): Stripped(),
    ("memory_forget", "ids"): Stripped(),
    ("image", "question"): Stripped(),
    ("tts", "text"): Stripped(),
    ("nodes", "node"): Stripped(),
    ("exec", "node"): Stripped(),
    ("tts", "voice"): Stripped(),
}
each_tool = pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: tool.name)


def _row(tool: Tool[Any]) -> Row:
    return Row(
        tool.tier, tool.kinds, tool.section, tool.capabilities, tool.idempotent, tool.sequential, tool.retry
    )


PLAIN = frozenset(
    {
        "budget",
        "action",
        "agent",
        "bracketed",
        "command",
        "content",
        "context",
        "cols",
        "cost_usd",
        "count",
        "description",
        "elevated",
        "country",
        "data",
        "env",
        "eof",
        "extract_mode",
        "checks",
        "viewport",
        "freshness",
        "headers",
        "id",
        "ids",
        "ignore_case",
        "job_id",
        "kind",
        "label",
        "language",
        "limit",
        "literal",
        "max_chars",
        "message",
        "max_results",
        "method",
        "min_score",
        "name",
        "new_text",
        "node",
        "path",
        "pty",
        "query",
        "question",
        "result_schema",
        "rows",
        "sessions",
        "text",
        "tokens",
        "tool_calls",
        "type",
        "types",
        "url",
        "wall_s",
        "workdir",
        "wait",
        "wait_ms",
        "yield_ms",
    }
)
"""Parameters whose names say it all: the prompt of a model is short."""


def _undescribed(model: type[BaseModel]) -> set[str]:
    """Return the fields without a description, those of models inside included."""
    found = {name for name, field in model.model_fields.items() if not field.description}
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= _undescribed(part)
    return found


def _nodes(value: Any) -> list[dict[str, Any]]:
    """Return every object inside a JSON value."""
    if isinstance(value, dict):
        return [value, *(node for inner in value.values() for node in _nodes(inner))]
    return [node for inner in value for node in _nodes(inner)] if isinstance(value, list) else []


@pytest.mark.covers("C4", "A7", "A8", "A9", "A32", "A33", "A39", "S20")
def test_declarations_equal_the_table() -> None:
    """Names are unique, and tier, kinds, section, capabilities and flags are what the table says."""
    tools = builtin_tools()
    assert {tool.name: _row(tool) for tool in tools} == TABLE
    assert len({tool.name for tool in tools}) == len(tools)


def test_two_tools_run_commands() -> None:
    """Approvals look at what they are asked to run."""
    found = {tool.name: tool.command_in for tool in builtin_tools() if tool.command_in}
    assert found == {"exec": "command", "nodes": "command"}


@each_tool
def test_declaration_is_accepted_at_registration(tool: Tool[Any]) -> None:
    """Every built-in passes the check that any tool must pass."""
    check_tool(tool)
    assert tool.label


@each_tool
def test_parameters_are_described_and_closed(tool: Tool[Any]) -> None:
    """A parameter is described unless its name says it all, nested ones too; unknown ones are refused."""
    assert _undescribed(tool.Params) <= PLAIN
    assert tool.Params.model_config.get("extra") == "forbid"


@pytest.mark.covers("S25", "S26")
@each_tool
def test_schema_holds_no_union_and_no_parameter_named_format(tool: Tool[Any]) -> None:
    """What some providers refuse is absent: unions, null variants, and a property called format."""
    nodes = _nodes(derive_schema(tool))
    assert not [node for node in nodes if node.keys() & {"anyOf", "oneOf", "allOf", "$ref"}]
    assert not [node for node in nodes if "format" in node.get("properties", {})]


def test_only_names_are_trimmed_and_only_texts_may_be_empty() -> None:
    """Paths, patterns, tasks and messages reach the tool as the model wrote them."""
    found: dict[tuple[str, str], object] = {}
    for tool in builtin_tools():
        for name, field in tool.Params.model_fields.items():
            inner = [
                mark for part in get_args(field.annotation) for mark in getattr(part, "__metadata__", ())
            ]
            for mark in [*field.metadata, *inner]:
                if isinstance(mark, AllowEmpty | Stripped):
                    found[tool.name, name] = mark
    assert found == MARKED


@pytest.mark.covers("A31", "A32", "S21")
def test_entry_point_leads_to_the_tools() -> None:
    """The runtime finds them by the entry point, never by name."""
    (entry,) = [entry for entry in entry_points(group="sessiontree.tools") if entry.name == "builtin"]
    assert [tool.name for tool in entry.load()()] == list(TABLE)
