"""Calls of tools: who makes one, what its client can take as the answer, and the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from mcp import types
from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.journal_feed import JournalFeed
from sessiontree.doors.mcp.forms import build_form
from sessiontree.doors.mcp.work import Work, WorkReport, WorkStatus
from sessiontree.doors.principals import DoorPrincipal

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension by which a client takes a task for the answer of a call."""
POLL_MS: Final = 2_000
"""How often a client should ask for the state of a task, in milliseconds."""
PROGRESS_S: Final = 1.0
"""How often a call that waits reports its progress at most."""
MAX_WAIT_S: Final = 600.0
WAIT_S: Final = 60.0

Report = Callable[[float, str], Awaitable[None]]
"""Sends a client the progress of its call: a number that grows, and words."""


@dataclass(frozen=True, slots=True)
class ToolAsked:
    """One call of a tool."""

    principal: DoorPrincipal
    arguments: Mapping[str, Any]
    takes_tasks: bool
    """Whether its client declared the tasks extension with this call."""
    report: Report


class DoorTool(Protocol):
    """A tool that clients may call."""

    @property
    def name(self) -> str:
        """What clients call it by."""

    def describe(self, principal: DoorPrincipal) -> types.Tool:
        """Return what a client sees of it."""

    async def call(self, asked: ToolAsked) -> HandlerResult:
        """Carry a call out.

        Raises:
            ConfigError: an argument is wrong.
            NotFoundError, ConflictError, SessionTreeError: it can't be done.
        """


class WaitingRequest(BaseModel):
    """A request that waits for an answer."""

    model_config = ConfigDict(extra="forbid")

    request: str = Field(description="Its key, for the tool answer.")
    message: str = Field(description="What a person reads.")
    form: dict[str, Any] = Field(description="JSON Schema of the content of an answer.")


class WorkAnswer(BaseModel):
    """What a call that begins work answers with."""

    model_config = ConfigDict(extra="forbid")

    conversation: str = Field(description="The conversation, for send, status, answer and cancel.")
    state: WorkStatus = Field(description="working or input_required: it goes on; ask status.")
    text: str = Field(default="", description="The answer; empty while it goes on.")
    error: str = Field(default="", description="Why it has no answer.")
    waiting: list[WaitingRequest] = Field(
        default_factory=list, description="What waits for an answer of yours."
    )


def complete(answer: BaseModel, text: str, *, is_error: bool = False) -> types.CallToolResult:
    """Return the result of a call: its structured content, and the same as words for models."""
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=answer.model_dump(mode="json"),
        is_error=is_error,
    )


def refuse(reason: str) -> types.CallToolResult:
    """Return the result of a call that can't be carried out, for its model to read."""
    return types.CallToolResult(content=[types.TextContent(text=reason)], is_error=True)


async def answer_work(asked: ToolAsked, work: Work, wait_s: float) -> HandlerResult:
    """Return a task where the client takes one, and else the end of the work, or its state after a time.

    A client that takes no tasks gets progress meanwhile, and the state at once where it has to answer.

    Raises:
        ConflictError: the conversation takes no message any more.
    """
    # A client may ask for the task at once, and then the journal must have it.
    await work.until_durable()
    if asked.takes_tasks:
        return {"resultType": "task", **describe_task(work, await work.report())}
    await _wait(asked, work, wait_s)
    return make_result(work, await work.report())


def make_result(work: Work, report: WorkReport) -> types.CallToolResult:
    """Return the result of a call whose work has ended, or is not waited for any more.

    Raises:
        MCPError: the tree failed, and there can't be a result.
    """
    if report.status == "failed":
        raise MCPError(types.INTERNAL_ERROR, report.error)
    answer = WorkAnswer(
        conversation=work.conversation.conversation_id,
        state=report.shown_status,
        text=report.text,
        error=report.error,
        waiting=list_requests(report),
    )
    return complete(answer, _describe_answer(answer, report), is_error=bool(report.error))


def list_requests(report: WorkReport) -> list[WaitingRequest]:
    """Return what waits for an answer of the principal."""
    forms = {key: build_form(each)["params"] for key, each in report.waiting.items()}
    return [
        WaitingRequest(request=key, message=form["message"], form=form["requestedSchema"])
        for key, form in forms.items()
    ]


def describe_task(work: Work, report: WorkReport) -> dict[str, Any]:
    """Return the members that every view of a task has. A task is kept as long as the journal."""
    members: dict[str, Any] = {
        "taskId": work.work_id,
        "status": report.status,
        "createdAt": _format_iso(report.created_ms),
        "lastUpdatedAt": _format_iso(report.changed_ms),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
    if message := _describe_status(report):
        members["statusMessage"] = message
    return members


def make_tasks_error() -> MCPError:
    """Return the error for a client that did not declare the tasks extension."""
    needed = types.ClientCapabilities(extensions={TASKS: {}})
    data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
    return MCPError(
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"the client did not declare {TASKS}",
        data.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


async def _wait(asked: ToolAsked, work: Work, wait_s: float) -> None:
    loop, log = asyncio.get_running_loop(), work.conversation.log
    until_s, next_s, seen = loop.time() + wait_s, 0.0, -1
    ended = asyncio.ensure_future(work.wait_until_ended())
    try:
        while not ended.done() and (left_s := until_s - loop.time()) > 0:
            if log.cursor == seen:
                await _wait_for_news(log.feed, ended, left_s)
                if ended.done():
                    break
            seen = log.cursor  # before the report, which takes in more
            # The client has to answer first: to wait on would only use the time up.
            if (await work.report()).status == "input_required":
                return
            if loop.time() >= next_s:
                next_s = loop.time() + PROGRESS_S
                # The protocol wants a number that grows with each report, and facts are never taken back.
                await asked.report(float(seen), f"{seen:,} facts recorded")
        if ended.done():
            ended.result()
    finally:
        ended.cancel()


async def _wait_for_news(feed: JournalFeed, ended: asyncio.Future[None], limit_s: float) -> None:
    """Wait until the journal has news, the work has ended, or the time is over."""
    news = asyncio.ensure_future(feed.wait())
    try:
        await asyncio.wait([news, ended], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if news.done():
            news.result()
    finally:
        news.cancel()
        await asyncio.wait([news])


def _describe_answer(answer: WorkAnswer, report: WorkReport) -> str:
    if report.error:
        return report.error
    if report.status == "completed":
        return report.text
    words = f"Conversation {answer.conversation} goes on: ask status."
    if report.waits_for_owner:
        return f"{words} It waits for an answer of the owner."
    return f"{words} It waits for your answer." if answer.waiting else words


def _describe_status(report: WorkReport) -> str:
    if report.error:
        return report.error
    if report.waits_for_owner:
        return "it waits for an answer of the owner"
    return "it waits for an answer" if report.waiting else ""


def _format_iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
