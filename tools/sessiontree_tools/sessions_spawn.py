"""``sessions_spawn``: starts a child session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.capabilities import SESSIONS
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ExecutionError, SpawnRefused
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.limits import Budget
from sessiontree.contracts.params import Trimmed
from sessiontree.contracts.ports import SpawnRequest
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool

MAX_TASK_CHARS = 200_000


class SpawnBudget(BaseModel):
    """What the child and everything below it may spend."""

    model_config = ConfigDict(extra="forbid")

    tokens: int | None = Field(default=None, ge=0, description="Input and output tokens together.")
    cost_usd: float | None = Field(default=None, ge=0, description="US dollars.")
    wall_s: float | None = Field(default=None, gt=0, description="Seconds from its start.")
    tool_calls: int | None = Field(default=None, ge=0, description="Tool calls.")
    sessions: int | None = Field(default=None, ge=0, description="Sessions below it.")


class SessionsSpawnParams(BaseModel):
    """Which child, and what it shall do."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["branch", "worker"] = Field(
        description="branch: thinks, changes files, may have children. worker: only looks, cheap and short."
    )
    task: str = Field(
        min_length=1,
        max_length=MAX_TASK_CHARS,
        description="What the child shall do, complete in itself: a worker sees nothing else.",
    )
    label: Annotated[str, Trimmed()] | None = Field(
        default=None, max_length=120, description="Short name for people."
    )
    agent: Annotated[str, Trimmed()] | None = Field(
        default=None, max_length=64, description="Name of the agent it runs as; left out = yours."
    )
    result_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema that the child's result must satisfy; left out = free text."
    )
    budget: SpawnBudget | None = Field(
        default=None, description="What it may spend; left out = it draws on what you have left."
    )

    @field_validator("task")
    @classmethod
    def _asks_something(cls, task: str) -> str:
        if not task.strip():
            raise ValueError("the task holds nothing but white space")
        return task


class SessionsSpawn(Tool[SessionsSpawnParams]):
    """Starts a child session and returns at once."""

    name = "sessions_spawn"
    description = (
        "Start a child session for a task of its own; several run at the same time. Returns at once with the "
        "child's id. Its result comes to you later as a message: do not wait or ask for it, go on or end "
        "your turn."
    )
    Params: ClassVar[type[BaseModel]] = SessionsSpawnParams
    label = "Start session"
    section = "sessions"
    profiles = frozenset({"coding"})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"sessions"})
    param_aliases: ClassVar[Mapping[str, str]] = {"agentId": "agent"}
    idempotent = True

    async def execute(self, params: SessionsSpawnParams, ctx: ToolContext) -> ToolResult:
        """Start the child, once per call id; the output is ``{status: "accepted", session_id, kind}``.

        Raises:
            ExecutionError: a rule or number of the tree forbids it; nothing was started.
            PermissionDenied: the session spawns nothing.
        """
        request = SpawnRequest(
            kind=SessionKind(params.kind),
            task=params.task,
            label=params.label or None,
            agent=params.agent or None,
            result_schema=params.result_schema,
            budget=Budget(**params.budget.model_dump()) if params.budget else None,
        )
        try:
            session_id = await ctx.require(SESSIONS).spawn(request, key=ctx.call_id)
        except SpawnRefused as error:
            raise ExecutionError(f"no {params.kind} was started: {error}") from error
        return ToolResult(
            output={"status": "accepted", "session_id": session_id, "kind": params.kind},
            display=f"started {session_id}{f' ({params.label})' if params.label else ''}",
        )
