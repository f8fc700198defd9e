"""``nodes``: the machines of the runtime, commands on one, and a notice to the person at the channel.

Cameras, screens and places of devices do not exist here. A command runs as ``exec`` runs it on host ``node``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.nodes import find_node
from sessiontree.contracts.handles.ports import MAX_COMMAND_TIMEOUT_S
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import CHANNEL, NODES
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped, Tool, ToolFlag
from sessiontree_tools.commands.exec import ExecParams, check_host, run_command

MAX_NODES = 100
MAX_NOTICE_CHARS = 4000


class NodesParams(BaseModel):
    """What to do, and with which node."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["status", "describe", "notify", "run"] = Field()
    node: Annotated[str, Stripped()] | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Its name, or its id or the beginning of it; for describe and run.",
    )
    text: str | None = Field(default=None, min_length=1, max_length=MAX_NOTICE_CHARS)
    command: str | None = Field(default=None, min_length=1, description="A bash command, for run.")
    timeout_s: float | None = Field(
        default=None, gt=0, le=MAX_COMMAND_TIMEOUT_S, description="Of the command, in seconds."
    )

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.action == "run" and (self.node is None or self.command is None or not self.command.strip()):
            raise ValueError("run needs a node and a command")
        return self


class ListNodes(Tool[NodesParams]):
    """Shows the machines of the runtime."""

    name = "nodes"
    description = "List the machines of the runtime, describe one, run a command there, or notify the person."
    brief = True
    Params: ClassVar[type[BaseModel]] = NodesParams
    label = "Devices"
    section = "nodes"
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.ELEVATED
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"nodes"})
    optional_capabilities = frozenset({"channel", "jobs"})
    command_in = "command"

    def check_allowed(self, params: NodesParams, config: AgentConfig) -> None:
        """Refuse a command where the owner allows none on nodes."""
        if params.action == "run":
            check_host("node", config)

    def node_for(self, params: NodesParams) -> str | None:
        """Return the node on which a command would run."""
        return params.node if params.action == "run" else None

    async def execute(self, params: NodesParams, ctx: ToolContext) -> ToolResult:
        """Return what was asked.

        ``status`` gives ``{nodes, left_out}``, each node ``{node_id, name, alive, here}``; ``describe`` all
        members of one node; ``notify`` ``{notified: true}`` once the channel has the text; ``run`` what
        ``exec`` gives on host ``node``.

        Raises:
            ValidationError: an argument is missing, or names no node, or several.
            PermissionDenied: no session at or above this one has a channel; or this session's commands may
                not run on nodes.
            ExecutionError: the cluster does not say which nodes it has; the command was not started, or its
                node was lost.
        """
        if params.action == "run":
            wanted = ExecParams(
                command=params.command or "", timeout=params.timeout_s, host="node", node=params.node or ""
            )
            return await run_command(wanted, ctx)
        if params.action == "notify":
            if params.text is None or not params.text.strip():
                raise ValidationError("give the text of the notice", "/text")
            await ctx.require(CHANNEL).send(params.text)
            return ToolResult(output={"notified": True}, display=f"notified: {params.text}")
        found = await ctx.require(NODES).nodes()
        if params.action == "describe":
            told: dict[str, Any] = find_node(params.node, found).to_json()
            return ToolResult(output=told, display=f"node {told['name']}", details=told)
        rows = [
            {"node_id": each.node_id, "name": each.name, "alive": each.is_alive, "here": each.is_here}
            for each in found[:MAX_NODES]
        ]
        output: dict[str, Any] = {"nodes": rows, "left_out": len(found) - len(rows)}
        alive = sum(each.is_alive for each in found)
        return ToolResult(output=output, display=f"{alive} of {len(found)} nodes are alive", details=output)
