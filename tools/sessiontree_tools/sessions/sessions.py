"""The session tools: ``sessions_spawn`` starts a child, ``session_status`` reports this session's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.errors import ConfigError, ExecutionError, SpawnRefused, ValidationError
from sessiontree.contracts.handles.ports import SessionReport, SpawnRequest
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import SESSIONS
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import ALL_KINDS, MAIN_AND_BRANCH, Stripped, Tool
from sessiontree.contracts.values.jsonable import JsonValue, to_json_value

MAX_TASK_CHARS = 200_000
MAX_CODE_CHARS = 100_000


class SpawnBudget(BaseModel):
    """What the child and everything below it may spend."""

    model_config = ConfigDict(extra="forbid")

    tokens: int | None = Field(default=None, ge=0)
    cost_usd: float | None = Field(default=None, ge=0)
    wall_s: float | None = Field(default=None, gt=0)
    tool_calls: int | None = Field(default=None, ge=0)
    sessions: int | None = Field(default=None, ge=0)


class SessionsSpawnParams(BaseModel):
    """Which child, and what it shall do."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["branch", "worker"] = Field(description="Workers only read.")
    task: str = Field(
        min_length=1,
        max_length=MAX_TASK_CHARS,
        description="A worker sees only this.",
    )
    label: Annotated[str, Stripped()] | None = Field(default=None, max_length=120)
    agent: Annotated[str, Stripped()] | None = Field(default=None, max_length=64)
    result_schema: dict[str, Any] | None = Field(default=None)
    budget: SpawnBudget | None = Field(default=None, description="Of all below.")
    wait: Literal["all", "each"] | None = None
    workspace: Literal["shared", "own"] | None = Field(
        default=None, description="own: a branch's copy; see child_workspace."
    )
    program: str | None = Field(
        default=None, min_length=1, max_length=MAX_CODE_CHARS, description="Replaces the model."
    )
    inputs: dict[str, Any] | None = Field(default=None, description="Of program.")

    @field_validator("task")
    @classmethod
    def _asks_something(cls, task: str) -> str:
        if not task.strip():
            raise ValueError("the task contains only white space")
        return task


class SessionsSpawn(Tool[SessionsSpawnParams]):
    """Starts a child session and returns at once."""

    name = "sessions_spawn"
    description = "Start a child. Its result comes as a message: do not wait."
    brief = True
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
            ValidationError: the result schema is not valid, or too large.
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
            wait=params.wait or "",
            workspace=params.workspace,
            program=params.program,
            inputs=params.inputs,
        )
        try:
            session_id = await ctx.require(SESSIONS).spawn(request, key=ctx.call_id)
        except ConfigError as error:
            raise ValidationError(f"no {params.kind} was started: {error}", "/result_schema") from error
        except SpawnRefused as error:
            raise ExecutionError(f"no {params.kind} was started: {error}") from error
        return ToolResult(
            output={"status": "accepted", "session_id": session_id, "kind": params.kind},
            display=f"started {session_id}{f' ({params.label})' if params.label else ''}",
        )


class SessionStatusParams(BaseModel):
    """Nothing: a session asks about itself."""

    model_config = ConfigDict(extra="forbid")


class SessionStatusTool(Tool[SessionStatusParams]):
    """Reports the session's own standing."""

    name = "session_status"
    description = "Show your usage, budget, children, open approvals and rights."
    brief = True
    Params: ClassVar[type[BaseModel]] = SessionStatusParams
    label = "Session status"
    section = "sessions"
    profiles = frozenset({"minimal", "coding", "messaging"})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS

    async def execute(self, params: SessionStatusParams, ctx: ToolContext) -> ToolResult:
        """Return the report as an object; its members are those of ``SessionReport``."""
        report = await ctx.status.report()
        used = f"{report.turns} turns, {report.usage.tokens} tokens"
        return ToolResult(
            output=_report_object(report), display=f"{report.session_id}: {report.status}, {used}"
        )


def _report_object(report: SessionReport) -> JsonValue:
    members = {field.name: getattr(report, field.name) for field in fields(report)}
    return to_json_value({**members, "usage": asdict(report.usage)})
