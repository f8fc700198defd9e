"""``nodes``: the machines of the runtime, and a notice to the person at the channel.

Cameras, screens and places of devices do not exist here, and commands are ``exec``'s.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.context import CHANNEL, NODES, ToolContext
from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.nodes import NodeInfo
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Stripped, Tool, ToolFlag

MAX_NODES = 100
SHORTEST_ID = 4
"""Least characters of an id's beginning that name a node."""
MAX_NOTICE_CHARS = 4000


class NodesParams(BaseModel):
    """What to do, and with which node."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["status", "describe", "notify"] = Field()
    node: Annotated[str, Stripped()] | None = Field(
        default=None, min_length=1, description="Its name, or its id or the beginning of it; for describe."
    )
    text: str | None = Field(default=None, min_length=1, max_length=MAX_NOTICE_CHARS)


class ListNodes(Tool[NodesParams]):
    """Shows the machines of the runtime."""

    name = "nodes"
    description = "List the machines of the runtime, describe one, or notify the person."
    brief = True
    Params: ClassVar[type[BaseModel]] = NodesParams
    label = "Devices"
    section = "nodes"
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.ELEVATED
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"nodes"})
    optional_capabilities = frozenset({"channel"})

    async def execute(self, params: NodesParams, ctx: ToolContext) -> ToolResult:
        """Return what was asked.

        ``status`` gives ``{nodes, left_out}``, each node ``{node_id, name, alive, here}``; ``describe`` all
        members of one node; ``notify`` ``{notified: true}`` once the channel has the text.

        Raises:
            ValidationError: an argument is missing, or names no node, or several.
            PermissionDenied: no session at or above this one has a channel.
            ExecutionError: the cluster does not say which nodes it has.
        """
        if params.action == "notify":
            if params.text is None or not params.text.strip():
                raise ValidationError("give the text of the notice", "/text")
            await ctx.require(CHANNEL).send(params.text)
            return ToolResult(output={"notified": True}, display=f"notified: {params.text}")
        found = await ctx.require(NODES).nodes()
        if params.action == "describe":
            told: dict[str, Any] = _named(params.node, found).to_json()
            return ToolResult(output=told, display=f"node {told['name']}", details=told)
        rows = [
            {"node_id": each.node_id, "name": each.name, "alive": each.is_alive, "here": each.is_here}
            for each in found[:MAX_NODES]
        ]
        output: dict[str, Any] = {"nodes": rows, "left_out": len(found) - len(rows)}
        alive = sum(each.is_alive for each in found)
        return ToolResult(output=output, display=f"{alive} of {len(found)} nodes are alive", details=output)


def _named(name: str | None, found: tuple[NodeInfo, ...]) -> NodeInfo:
    """Return the node that a name, an id or the beginning of an id means."""
    if name is None:
        raise ValidationError("name the node to describe", "/node")
    exact = [each for each in found if each.node_id == name]
    named = exact or [each for each in found if each.name == name and each.is_alive]
    if not named and len(name) >= SHORTEST_ID:
        named = [each for each in found if each.node_id.startswith(name)]
    if len(named) == 1:
        return named[0]
    known = ", ".join(f"{each.name} ({each.node_id[:8]})" for each in found[:20])
    how = "several nodes have" if named else "no node has"
    raise ValidationError(f"{how} the name {name[:100]!r}; there are {known}; give an id", "/node")
