"""Tools as MCP describes them: the shape the protocol's schema asks for, and cautious hints."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from sessiontree import to_mcp_tool
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import Tool
from sessiontree_tools import builtin_tools

# What revision 2025-06-18 says of `Tool` and `ToolAnnotations`, said again in its own words.
HINT = {"type": "boolean"}
MCP_TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "title": {"type": "string"},
        "description": {"type": "string"},
        "inputSchema": {
            "type": "object",
            "properties": {
                "type": {"const": "object"},
                "properties": {"type": "object", "additionalProperties": {"type": "object"}},
                "required": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["type"],
        },
        "annotations": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "readOnlyHint": HINT,
                "destructiveHint": HINT,
                "idempotentHint": HINT,
                "openWorldHint": HINT,
            },
            "additionalProperties": False,
        },
    },
    "required": ["name", "inputSchema"],
    "additionalProperties": False,
}


class Nothing(BaseModel):
    """No parameters."""


class Doing(Tool[Nothing]):
    """Does something; its calls may be repeated by their id."""

    name = "doing"
    description = "Does something."
    Params: ClassVar[type[BaseModel]] = Nothing
    idempotent = True

    def __init__(self, tier: PermissionTier) -> None:
        self.tier = tier  # type: ignore[misc] # a test makes tools of every tier

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        """Do it."""
        return ToolResult("done")


@pytest.mark.covers("A41")
@pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: tool.name)
def test_every_built_in_tool_has_the_protocol_s_shape(tool: Tool[Any]) -> None:
    """Checked by a validator; the schema of its arguments is the one its calls are checked against."""
    listed: dict[str, Any] = {**to_mcp_tool(tool)}
    Draft202012Validator(MCP_TOOL).validate(listed)
    Draft202012Validator.check_schema(listed["inputSchema"])
    assert listed["name"] == tool.name
    assert listed["annotations"]["readOnlyHint"] == (tool.tier is PermissionTier.READ_ONLY)


@pytest.mark.parametrize("tier", PermissionTier)
def test_hints_promise_only_what_the_tier_holds(tier: PermissionTier) -> None:
    """Only what reads is called harmless; being repeatable by id is not what the protocol means."""
    reads = tier is PermissionTier.READ_ONLY
    assert to_mcp_tool(Doing(tier))["annotations"] == {
        "readOnlyHint": reads,
        "destructiveHint": not reads,
        "idempotentHint": reads,
    }
