"""The tools of the MCP server: they begin conversations, and say what happens there.

What they may do rests on the trees of the principal; no tool has a rule of rights. Each annotation is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from mcp import types
from mcp.server.context import HandlerResult
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import describe_faults
from sessiontree.contracts.tools.program_tool import SavedProgram, SavedText
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.conversations import Conversation, Conversations, NotFoundError
from sessiontree.doors.mcp.calls import (
    MAX_WAIT_S,
    WAIT_S,
    DoorTool,
    ToolAsked,
    WaitingRequest,
    WorkAnswer,
    answer_work,
    complete,
    list_requests,
)
from sessiontree.doors.mcp.forms import FormReply, answer_form, check_reply, list_waiting
from sessiontree.doors.mcp.work import ENDED, WorkReport, WorkStatus, begin_program, find_newest, make_work
from sessiontree.doors.principals import DEFAULT_AGENT, DoorPrincipal
from sessiontree.schema.compiled import compile_tool
from sessiontree.tree.report import ReceiptLine

MAX_TEXT: Final = 500_000
"""Most characters of a task or a message."""
MAX_SHOWN: Final = 200
"""Most sessions that an answer lists."""
MAX_SUMMARY: Final = 400
"""Most characters of a session's final message in a list."""

_Strict = ConfigDict(extra="forbid")
_Wait = Field(default=WAIT_S, ge=0, le=MAX_WAIT_S, description="Seconds to wait for the answer at most.")
_Name = Field(min_length=1, max_length=100, description="The conversation.")


class RunTree(BaseModel):
    """What ``run_tree`` takes."""

    model_config = _Strict

    task: str = Field(min_length=1, max_length=MAX_TEXT, description="What to do; the first message.")
    agent: str = Field(default=DEFAULT_AGENT, max_length=100, description="Who does it.")
    wait_s: float = _Wait


class SendText(BaseModel):
    """What ``send`` takes."""

    model_config = _Strict

    conversation: str = _Name
    text: str = Field(min_length=1, max_length=MAX_TEXT, description="The message.")
    wait_s: float = _Wait


class AskStatus(BaseModel):
    """What ``status`` takes."""

    model_config = _Strict

    conversation: str = _Name
    cursor: int | None = Field(
        default=None, ge=0, description="The cursor of an earlier answer: wait for something newer."
    )
    wait_s: float = Field(default=0.0, ge=0, le=60, description="Seconds to wait for it at most.")


class AnswerRequest(BaseModel):
    """What ``answer`` takes."""

    model_config = _Strict

    conversation: str = _Name
    request: str = Field(min_length=1, max_length=200, description="The key of what waits.")
    content: dict[str, Any] = Field(description="What its form asks for.")


class CancelWork(BaseModel):
    """What ``cancel`` takes."""

    model_config = _Strict

    conversation: str = _Name


class TreeSessionRow(BaseModel):
    """One session of a tree."""

    model_config = _Strict

    session: str
    kind: str
    status: str
    agent: str
    summary: str = Field(description="Its final message, cut; empty while it is live.")


class TreeUsage(BaseModel):
    """What a tree used so far."""

    model_config = _Strict

    input_tokens: int
    output_tokens: int
    cost_usd: float


class ConversationStatus(BaseModel):
    """What ``status`` answers with."""

    model_config = _Strict

    conversation: str
    state: str = Field(description="idle, working, input_required, or how the newest work ended.")
    text: str = Field(description="The newest answer.")
    error: str = Field(description="Why the newest work has no answer.")
    sessions: list[TreeSessionRow]
    waiting: list[WaitingRequest] = Field(description="What waits for an answer of yours.")
    waits_for_owner: bool
    usage: TreeUsage
    cursor: int = Field(description="Grows with each fact that the journal records.")


class Receipt(BaseModel):
    """How the sessions of a tree are, after something was asked of them."""

    model_config = _Strict

    conversation: str
    sessions: list[TreeSessionRow]


Carry = Callable[[ToolAsked, Any], Awaitable[HandlerResult]]


@dataclass(frozen=True, slots=True)
class TypedTool:
    """A tool whose parameters are a model.

    Args:
        name: What clients call it by.
        description: What its model reads.
        takes: Its parameters.
        gives: Its structured content.
        carry_out: Carries a call out.
        hints: What is true of all its calls, for a principal.
        is_for: Whether a principal may call it.
    """

    name: str
    description: str
    takes: type[BaseModel]
    gives: type[BaseModel]
    carry_out: Carry
    hints: Callable[[DoorPrincipal], types.ToolAnnotations]
    is_for: Callable[[DoorPrincipal], bool] = lambda _: True

    def describe(self, principal: DoorPrincipal) -> types.Tool:
        """Return what a client sees of it."""
        return types.Tool(
            name=self.name,
            description=self.description,
            input_schema=self.takes.model_json_schema(),
            output_schema=self.gives.model_json_schema(),
            annotations=self.hints(principal),
        )

    async def call(self, asked: ToolAsked) -> HandlerResult:
        """Check the arguments of a call, and carry it out.

        Raises:
            ConfigError: an argument is wrong.
            NotFoundError, ConflictError, SessionTreeError: it can't be done.
        """
        try:
            given = self.takes.model_validate(dict(asked.arguments))
        except ValidationError as error:
            raise ConfigError(f"arguments of {self.name}: {describe_faults(error)}") from None
        return await self.carry_out(asked, given)


@dataclass(frozen=True, slots=True)
class ProgramRunTool:
    """A saved program of the owner: a call of it runs in a tree of its own."""

    conversations: Conversations
    saved: SavedText

    @property
    def name(self) -> str:
        """What clients call it by: the name of its file."""
        return self.saved.name

    def describe(self, principal: DoorPrincipal) -> types.Tool:
        """Return what a client sees of it: its parameters are those of its ``main``."""
        return types.Tool(
            name=self.name,
            description=self.saved.description,
            input_schema=dict(self.saved.parameters),
            output_schema=WorkAnswer.model_json_schema(),
            annotations=_hint_work(principal),
        )

    async def call(self, asked: ToolAsked) -> HandlerResult:
        """Run it.

        Raises:
            ValidationError: an argument does not fit its ``main``.
            SessionTreeError: it can't begin.
        """
        _, inputs = compile_tool(SavedProgram(self.saved)).validate(dict(asked.arguments))
        conversation = await self.conversations.begin(asked.principal, program=self.name)
        with conversation:
            work = await begin_program(conversation, self.saved, inputs)
            return await answer_work(asked, work, WAIT_S)


class ConversationTools:
    """The tools for conversations.

    Args:
        conversations: The conversations of all principals.
    """

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    def list_tools(self, principal: DoorPrincipal) -> Sequence[DoorTool]:
        """Return the tools that a principal may call: those for conversations, and saved programs.

        Raises:
            ConfigError: the owner's configuration can't be used.
        """
        programs = (
            ProgramRunTool(self._conversations, each) for each in self._conversations.list_programs(principal)
        )
        own = [tool for tool in self._own if tool.is_for(principal)]
        # The door's own come first: a program must not take the place of one.
        names = {tool.name for tool in own}
        return [*own, *(tool for tool in programs if tool.name not in names)]

    @cached_property
    def _own(self) -> Sequence[TypedTool]:
        return (
            TypedTool(
                "run_tree",
                "Give a task to a new tree of sessions; return its answer, or a conversation that goes on.",
                RunTree,
                WorkAnswer,
                self._run_tree,
                _hint_work,
            ),
            TypedTool(
                "send",
                "Send a message to a conversation and return the answer.",
                SendText,
                WorkAnswer,
                self._send,
                _hint_work,
            ),
            TypedTool(
                "status",
                "Show what a conversation does: its sessions, what waits, its newest answer, its cost.",
                AskStatus,
                ConversationStatus,
                self._show,
                lambda _: types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            ),
            TypedTool(
                "answer",
                "Answer an approval request or a question of a conversation.",
                AnswerRequest,
                ConversationStatus,
                self._answer,
                lambda _: _hint(destructive=True, idempotent=True),
                lambda principal: principal.rights.approves,
            ),
            TypedTool(
                "cancel",
                "Stop what a conversation does; it can be continued with send.",
                CancelWork,
                Receipt,
                self._cancel,
                lambda _: _hint(destructive=True, idempotent=True),
            ),
        )

    async def _run_tree(self, asked: ToolAsked, given: RunTree) -> HandlerResult:
        conversation = await self._conversations.begin(asked.principal, given.agent)
        with conversation:
            work = make_work(conversation, conversation.send(given.task))
            return await answer_work(asked, work, given.wait_s)

    async def _send(self, asked: ToolAsked, given: SendText) -> HandlerResult:
        conversation = await self._conversations.find(asked.principal, given.conversation)
        with conversation:
            work = make_work(conversation, conversation.send(given.text))
            return await answer_work(asked, work, given.wait_s)

    async def _show(self, asked: ToolAsked, given: AskStatus) -> HandlerResult:
        conversation = await self._conversations.find(asked.principal, given.conversation)
        with conversation:
            if given.cursor is not None:
                await _wait_for_news(conversation, given.cursor, given.wait_s)
            return await self._report_status(conversation)

    async def _answer(self, asked: ToolAsked, given: AnswerRequest) -> HandlerResult:
        conversation = await self._conversations.find(asked.principal, given.conversation)
        with conversation:
            waiting = list_waiting(conversation.tree).get(given.request)
            if waiting is None:
                raise NotFoundError(f"nothing called {given.request!r} waits")
            reply = FormReply(given.content)
            check_reply(waiting, reply)
            await answer_form(waiting, reply, asked.principal.sender)
            return await self._report_status(conversation)

    async def _cancel(self, asked: ToolAsked, given: CancelWork) -> HandlerResult:
        conversation = await self._conversations.find(asked.principal, given.conversation)
        with conversation:
            work = await find_newest(conversation)
            if work is not None and (await work.report()).status not in ENDED:
                await work.cancel()
            rows = _make_rows(conversation.tree.receipt())
            receipt = Receipt(conversation=conversation.conversation_id, sessions=rows)
            return complete(receipt, "\n".join(f"{row.session}: {row.status}" for row in receipt.sessions))

    async def _report_status(self, conversation: Conversation) -> types.CallToolResult:
        work = await find_newest(conversation)
        report = None if work is None else await work.report()
        usage = conversation.tree.usage()
        status = ConversationStatus(
            conversation=conversation.conversation_id,
            state="idle" if report is None else report.shown_status,
            text="" if report is None else report.text,
            error="" if report is None else report.error,
            sessions=_make_rows(conversation.tree.receipt()),
            waiting=[] if report is None else list_requests(report),
            waits_for_owner=report is not None and report.waits_for_owner,
            usage=TreeUsage(
                input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost_usd=usage.cost_usd
            ),
            cursor=conversation.log.cursor,
        )
        return complete(status, _describe_status(status, report))


async def _wait_for_news(conversation: Conversation, cursor: int, wait_s: float) -> None:
    with suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(wait_s):
            await anext(aiter(conversation.tree.events(after=cursor)))


def _make_rows(lines: Sequence[ReceiptLine]) -> list[TreeSessionRow]:
    return [
        TreeSessionRow(
            session=line.session_id,
            kind=line.kind.value,
            status=line.status.value,
            agent=line.agent,
            summary=line.summary[:MAX_SUMMARY],
        )
        for line in lines[:MAX_SHOWN]
    ]


def _describe_status(status: ConversationStatus, report: WorkReport | None) -> str:
    state: WorkStatus | str = status.state
    words = [f"{status.conversation}: {state}"]
    words += [f"{row.session} ({row.agent}): {row.status}" for row in status.sessions]
    words += [f"{each.request}: {each.message}" for each in status.waiting]
    if report is not None and (report.text or report.error):
        words.append(report.text or report.error)
    return "\n".join(words)


def _hint(*, destructive: bool, idempotent: bool, open_world: bool = False) -> types.ToolAnnotations:
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=destructive,
        idempotent_hint=idempotent,
        open_world_hint=open_world,
    )


def _hint_work(principal: DoorPrincipal) -> types.ToolAnnotations:
    """Return what is true of a call that begins work: sessions of tier ReadOnly change no file."""
    return _hint(destructive=principal.rights.tier != "ReadOnly", idempotent=False, open_world=True)
