"""Tools as the Model Context Protocol describes them.

Source: the protocol's schema, revision 2025-06-18, ``Tool`` and ``ToolAnnotations``.
"""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import Tool
from sessiontree.schema.derive import derive_schema


def to_mcp(tool: Tool[Any]) -> dict[str, JsonValue]:
    """Return a tool as an MCP server lists it.

    That is ``name``, ``title`` if it has a label, ``description``, ``inputSchema`` and ``annotations``.

    The hints come from the tier alone. A ReadOnly tool changes nothing, however often it is called; of any
    other the protocol's cautious defaults are said: it may destroy, and a second call may do more. Being
    ``idempotent`` here is about one call made twice, and the protocol's hint about two calls.

    Raises:
        ConfigError: the parameters have no JSON Schema with an object at its root.
    """
    only_reads = tool.tier is PermissionTier.READ_ONLY
    return {
        "name": tool.name,
        **({"title": tool.label} if tool.label else {}),
        "description": tool.description,
        "inputSchema": derive_schema(tool),
        "annotations": {
            "readOnlyHint": only_reads,
            "destructiveHint": not only_reads,
            "idempotentHint": only_reads,
        },
    }
