"""The tools for the sessions below one's own: see them, read them, write to them, stop them.

They reach nothing else of the tree, except that ``sessions_send`` also reaches the parent: any other name is
answered as the name of no session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.errors import ExecutionError, SessionClosed, SessionNotFound, ValidationError
from sessiontree.contracts.handles.ports import (
    AgentInfo,
    SessionFilter,
    SessionRow,
    SessionRows,
    TranscriptEntry,
)
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import SESSIONS, SUBTREE
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.contracts.values.untrusted import BEGIN, wrap_untrusted

MAX_LISTED = 200
MAX_SUMMARY_CHARS = 500
"""Longest final message in a row; a child's whole message comes to its parent by itself."""
MAX_MESSAGE_CHARS = 20_000
MAX_STOPPED = 50
"""Most rows in the result of one kill."""


class SessionsListParams(BaseModel):
    """Which sessions."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["branch", "worker"] | None = Field(default=None)
    status: Literal["live", "ended"] | None = Field(default=None, description="Default: both.")
    limit: int = Field(default=50, ge=1, le=MAX_LISTED)


class SessionsList(Tool[SessionsListParams]):
    """Lists the sessions below the session."""

    name = "sessions_list"
    description = "List the sessions below you: status, usage, current tool."
    brief = True
    Params: ClassVar[type[BaseModel]] = SessionsListParams
    label = "List sessions"
    section = "sessions"
    profiles = frozenset({"coding", "messaging"})
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.READ_ONLY
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"subtree"})

    async def execute(self, params: SessionsListParams, ctx: ToolContext) -> ToolResult:
        """Return ``{sessions, left_out}``: live sessions first, then ended ones, newest first.

        Raises:
            PermissionDenied: the session has no sessions below it.
        """
        kind = None if params.kind is None else SessionKind(params.kind)
        is_live = None if params.status is None else params.status == "live"
        found = await ctx.require(SUBTREE).sessions(SessionFilter(kind, is_live, params.limit))
        return _list_sessions(found)


class SessionsHistoryParams(BaseModel):
    """Which messages of which session."""

    model_config = ConfigDict(extra="forbid")

    target: Annotated[str, Stripped()] = Field(min_length=1, max_length=200, description="Id or label.")
    limit: int = Field(default=20, ge=1, le=100)
    before: int | None = Field(default=None, ge=1, description="Only messages before this number.")
    include_tools: bool = Field(default=True, description="Whether to show results of tools.")


class SessionsHistory(Tool[SessionsHistoryParams]):
    """Shows the transcript of a session below the session."""

    name = "sessions_history"
    description = "Read the newest messages of a session below you, shortened and without secrets."
    brief = True
    Params: ClassVar[type[BaseModel]] = SessionsHistoryParams
    label = "Read session"
    section = "sessions"
    profiles = frozenset({"coding", "messaging"})
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.READ_ONLY
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"subtree"})

    async def execute(self, params: SessionsHistoryParams, ctx: ToolContext) -> ToolResult:
        """Return ``{session, messages, has_earlier}``; each message has a number, a role and its text.

        Raises:
            ExecutionError: the session is not one below this one.
            PermissionDenied: the session has no sessions below it.
        """
        subtree = ctx.require(SUBTREE)
        try:
            found = await subtree.history(
                params.target, limit=params.limit, before=params.before, results=params.include_tools
            )
        except SessionNotFound as error:
            raise ExecutionError(f"nothing was read: {error}") from error
        # A text with a mark may quote one that is untrusted, even in a session that has read nothing itself.
        is_marked = found.taint or any(BEGIN in entry.text for entry in found.entries)
        return ToolResult(
            output={
                "session": found.session_id,
                "messages": [_format_message(entry) for entry in found.entries],
                "has_earlier": found.has_earlier,
            },
            display=f"{len(found.entries)} messages of {found.session_id}",
            untrusted="marked" if is_marked else False,
        )


class SessionsSendParams(BaseModel):
    """What to say to whom."""

    model_config = ConfigDict(extra="forbid")

    target: Annotated[str, Stripped()] = Field(
        min_length=1, max_length=200, description="Id or label of a session below you, or parent."
    )
    message: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    mode: Literal["follow_up", "steer"] = Field(
        default="follow_up", description="steer cuts its present turn; only below you."
    )

    @field_validator("message")
    @classmethod
    def _refuse_blank(cls, message: str) -> str:
        return _check_not_blank(message)


class SessionsSend(Tool[SessionsSendParams]):
    """Writes to a session below the session, or to its parent."""

    name = "sessions_send"
    description = "Send a message to a session below you or to your parent. Does not wait for an answer."
    brief = True
    Params: ClassVar[type[BaseModel]] = SessionsSendParams
    label = "Write to session"
    section = "sessions"
    profiles = frozenset({"coding", "messaging"})
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"sessions"})
    idempotent = True

    async def execute(self, params: SessionsSendParams, ctx: ToolContext) -> ToolResult:
        """Send the message, once per call id; the output is ``{status: "sent", session_id}``.

        Raises:
            ExecutionError: the session can't be reached, has ended, or can't be steered.
            PermissionDenied: a message policy forbids it, or the session reaches no other.
        """
        return await _send(ctx, params.target, params.message, params.mode)


class AgentsListParams(BaseModel):
    """Nothing: all agents are listed."""

    model_config = ConfigDict(extra="forbid")


class AgentsList(Tool[AgentsListParams]):
    """Lists the agents that children may be of."""

    name = "agents_list"
    description = "List the agents that you may name in sessions_spawn."
    brief = True
    Params: ClassVar[type[BaseModel]] = AgentsListParams
    label = "List agents"
    section = "agents"
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.READ_ONLY
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"subtree"})

    async def execute(self, params: AgentsListParams, ctx: ToolContext) -> ToolResult:
        """Return ``{agents, yours}``; an agent has a name, a model, and a description if it was given one.

        Raises:
            PermissionDenied: the session spawns nothing.
        """
        found = await ctx.require(SUBTREE).agents()
        agents: list[JsonValue] = [_describe_agent(each) for each in found]
        return ToolResult(output={"agents": agents, "yours": ctx.agent_id}, display=f"{len(found)} agents")


class SubagentsParams(BaseModel):
    """What to do with which session."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["list", "steer", "kill"]
    target: Annotated[str, Stripped()] | None = Field(
        default=None, max_length=200, description="Id or label."
    )
    message: str | None = Field(default=None, min_length=1, max_length=MAX_MESSAGE_CHARS)

    @field_validator("message")
    @classmethod
    def _refuse_blank(cls, message: str | None) -> str | None:
        return None if message is None else _check_not_blank(message)


class Subagents(Tool[SubagentsParams]):
    """Lists the sessions below the session, steers and stops them."""

    name = "subagents"
    description = "List, steer or kill sessions below you."
    brief = True
    Params: ClassVar[type[BaseModel]] = SubagentsParams
    label = "Children"
    section = "sessions"
    profiles = frozenset({"coding"})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"sessions", "subtree"})
    idempotent = True

    async def execute(self, params: SubagentsParams, ctx: ToolContext) -> ToolResult:
        """List, steer or stop sessions.

        ``list`` returns what ``sessions_list`` does. ``steer`` sends the message, which cuts the present turn
        of its receiver. ``kill`` returns ``{status: "killed", sessions}``: the session and those below it,
        once they have ended.

        Raises:
            ExecutionError: the session is not one below this one, or it has ended and can't be steered.
            ValidationError: a target or the message is missing.
            PermissionDenied: the session has no sessions below it, or a message policy forbids the message.
        """
        if params.action == "list":
            return _list_sessions(await ctx.require(SUBTREE).sessions(SessionFilter()))
        if not params.target:
            raise ValidationError(f"{params.action} needs the id or label of a session", "/target")
        if params.action == "steer":
            if params.message is None:
                raise ValidationError("steer needs a message", "/message")
            return await _send(ctx, params.target, params.message, "steer")
        try:
            ended = await ctx.require(SESSIONS).stop(params.target, reason=f"{ctx.session_id} stopped it")
        except SessionNotFound as error:
            raise ExecutionError(f"nothing was stopped: {error}") from error
        shown = ended[:MAX_STOPPED]
        return ToolResult(
            output={"status": "killed", "sessions": _build_rows(shown), "left_out": len(ended) - len(shown)},
            display=f"stopped {ended[0].session_id} and {len(ended) - 1} below it",
            untrusted=_choose_marking(shown),
        )


async def _send(
    ctx: ToolContext, target: str, message: str, mode: Literal["follow_up", "steer"]
) -> ToolResult:
    sessions = ctx.require(SESSIONS)
    try:
        receiver = await sessions.send_to(target, message, mode=mode, key=ctx.call_id)
    except (SessionNotFound, SessionClosed) as error:
        raise ExecutionError(f"nothing was sent: {error}") from error
    return ToolResult(
        output={"status": "sent", "session_id": receiver},
        display=f"sent a message of {len(message)} characters to {receiver}",
    )


def _check_not_blank(message: str) -> str:
    if not message.strip():
        raise ValueError("the message contains only white space")
    return message


def _describe_agent(agent: AgentInfo) -> JsonValue:
    members: dict[str, JsonValue] = {"name": agent.name, "model": agent.model}
    return {**members, "description": agent.description} if agent.description else members


def _format_message(entry: TranscriptEntry) -> JsonValue:
    members: dict[str, JsonValue] = {"number": entry.number, "role": entry.role, "text": entry.text}
    if entry.origin:
        members["origin"] = entry.origin
    if entry.tool:
        members["tool"] = entry.tool
    if entry.is_error:
        members["is_error"] = True
    return members


def _list_sessions(found: SessionRows) -> ToolResult:
    live = sum(not row.status.is_final for row in found.rows)
    return ToolResult(
        output={"sessions": _build_rows(found.rows), "left_out": found.left_out},
        display=f"{len(found.rows)} sessions, {live} of them live",
        untrusted=_choose_marking(found.rows),
    )


def _choose_marking(rows: Iterable[SessionRow]) -> Any:
    return "marked" if any(row.taint and (row.summary or row.given_up) for row in rows) else False


def _build_rows(rows: Iterable[SessionRow]) -> list[JsonValue]:
    return [_build_row(row) for row in rows]


def _frame_text(row: SessionRow, text: str) -> str:
    shown = cut_text(text, MAX_SUMMARY_CHARS)
    # Cut before it is wrapped, so that the closing mark is never cut off.
    return wrap_untrusted(shown, kind="session", source=row.session_id) if shown and row.taint else shown


def _build_row(row: SessionRow) -> dict[str, JsonValue]:
    """Return a row as an object, without the members that say nothing."""
    summary = _frame_text(row, row.summary)
    given_up = _frame_text(row, "\n".join(row.given_up))
    members: dict[str, JsonValue] = {
        "id": row.session_id,
        "label": row.label,
        "agent": row.agent,
        "status": "stopping" if row.is_stopping else str(row.status),
        "turns": row.turns,
        "tokens": row.tokens,
        "cost_usd": round(row.cost_usd, 6),
        "result_form": row.result_form,
        "age_s": round(row.age_s, 1),
        "tool": row.tool,
        "pending_approvals": row.pending_approvals,
        "summary": summary,
        "given_up": given_up,
    }
    kept = {name: value for name, value in members.items() if value not in {None, "", 0}}
    return {**kept, "kind": str(row.kind), "turns": row.turns, "tokens": row.tokens}
