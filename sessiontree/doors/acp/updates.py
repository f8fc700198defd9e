"""Facts of a tree as updates for an editor: those of a history that is loaded, and of a turn that goes on.

Main's calls and every session below it are tool calls; a call of a child is one as soon as somebody is asked
about it. All text comes from models, tools and people: what is shown of it is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    Cost,
    PlanEntry,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    UsageUpdate,
    UserMessageChunk,
)

from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts import tree_facts as happened
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.programs import is_of_program
from sessiontree.contracts.reports.events import describe_failure
from sessiontree.contracts.values.messages import ImageContent, TextContent, Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.contracts.values.truncation import cut_line
from sessiontree.doors.acp.replies import ReplyStream, make_message_chunk
from sessiontree.doors.acp.tool_calls import (
    MAX_TITLE_CHARS,
    Shown,
    derive_call_id,
    make_child_id,
    make_diffs,
    make_progress,
    make_result_content,
    make_text_content,
    make_title,
    render_start,
)
from sessiontree.journal.record import JournalRecord

MAX_CHILD_LINES: Final = 12
"""Newest lines of a child that its tool call shows."""
MAX_PHASES: Final = 40
Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | UsageUpdate
)


@dataclass(slots=True)
class _ShownChild:
    """A session below Main, as it is shown."""

    spec: SessionSpec
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_CHILD_LINES))


@dataclass(slots=True)
class _ShownCall:
    """A call without a result, as it is shown."""

    diffs: Shown
    provider_id: str = ""
    """The id that its model gave it; progress names it."""


class TreeUpdates:
    """What the facts of one tree show an editor, taken in their order from the first.

    Args:
        root: The workspace.
        context_tokens: Size of the context of Main's model; None = not known.
        is_own: Whether a message came through this editor, which shows it by itself.
    """

    def __init__(
        self, root: Path, context_tokens: int | None, is_own: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.replies = ReplyStream()
        self.requests: dict[str, str] = {}
        """The tool calls of approval requests that were not decided, by request."""
        self.group = ""
        """The group in which the newest message of a person was sent."""
        self._root = root
        self._context_tokens = context_tokens
        self._is_own = is_own
        self._calls: dict[str, _ShownCall] = {}
        self._children: dict[str, _ShownChild] = {}
        self._awaited: set[str] = set()
        """Children of Main that report to its model."""
        self._posts: set[str] = set()
        """Ids of what waits for Main."""
        self._is_running = False
        self._cost_usd = 0.0
        """What all sessions of the tree have cost."""
        self._used = 0
        """Tokens of the context after Main's newest reply."""
        self._phases: list[str] = []
        self._program = ""
        """Key of the program of Main whose phases are shown."""

    @property
    def is_idle(self) -> bool:
        """Whether Main has ended its run and no child is about to report to it."""
        return not (self._is_running or self._awaited or self._posts)

    def call_running(self, provider_id: str) -> str | None:
        """Return the id of Main's newest call without a result that its model called so."""
        found = [name for name, call in self._calls.items() if call.provider_id == provider_id]
        return found[-1] if found and provider_id else None

    def take(self, record: JournalRecord) -> Iterator[Update]:
        """Yield what a record shows."""
        for fact in record.facts:
            if record.session == MAIN:
                yield from self._on_main_fact(fact)
            elif record.session:
                yield from self._on_child_fact(record.session, fact)
            else:
                yield from self._on_tree_fact(fact)

    def _on_main_fact(self, fact: Any) -> Iterator[Update]:
        match fact:
            case said.MessageReceived(message_id=message_id, message=message) if message.origin == "user":
                self.group = fact.asked_by[-1].group if fact.asked_by else ""
                if not self._is_own(message_id):
                    yield from _show_user_message(message_id, message.content)
            case said.TurnStarted(turn=turn) | said.TurnRetried(turn=turn):
                self._is_running = True
                yield from self.replies.begin(turn)
            case said.TurnReplied():
                yield from self._reply(fact)
            case said.ReplyCut() | said.TurnFailed() | said.TurnCut():
                self.replies.drop()
            case said.RunFinished() | said.Interrupted():
                self._is_running = False
            case said.ProgramStarted(call=call):
                self._program, self._phases = call.key, []
            case said.ProgramAdvanced(key=key, notes=notes) if key == self._program:
                yield from self._plan([note.text for note in notes if note.sort == "phase"])
            case _:
                yield from self._on_call_fact(MAIN, fact)

    def _reply(self, fact: said.TurnReplied) -> Iterator[Update]:
        yield from self.replies.end(fact.turn, fact.message)
        for index, call in enumerate(fact.message.tool_calls):
            call_id = derive_call_id(MAIN, f"{fact.turn}.{index}")
            self._calls[call_id] = _ShownCall(make_diffs(call.name, call.arguments, self._root), call.id)
            yield render_start(call_id, call.name, call.arguments, self._root)
        self._used = fact.message.usage.tokens

    def _on_call_fact(self, session: str, fact: Any) -> Iterator[Update]:
        """Yield what a fact says of a call that is shown."""
        match fact:
            case said.CallIntended(call=call):
                yield from self._advance(derive_call_id(session, call.key), "in_progress")
            case said.CallResolved(key=key, message=message):
                call_id = derive_call_id(session, key)
                if (shown := self._calls.pop(call_id, None)) is not None:
                    status: ToolCallStatus = "completed" if describe_failure(message) is None else "failed"
                    yield make_progress(call_id, status, make_result_content(message, shown.diffs))
                if session == MAIN and key == self._program:
                    yield from self._plan([], is_over=True)

    def _advance(self, call_id: str, status: ToolCallStatus) -> Iterator[Update]:
        if call_id in self._calls:
            yield make_progress(call_id, status)

    def _plan(self, begun: list[str], *, is_over: bool = False) -> Iterator[Update]:
        self._phases = [*self._phases, *begun][-MAX_PHASES:]
        if not self._phases or not (begun or is_over):
            return
        last = len(self._phases) - 1
        yield AgentPlanUpdate(
            session_update="plan",
            entries=[
                PlanEntry(
                    content=cut_line(phase, MAX_TITLE_CHARS),
                    priority="medium",
                    status="in_progress" if index == last and not is_over else "completed",
                )
                for index, phase in enumerate(self._phases)
            ],
        )

    def _on_child_fact(self, session: str, fact: Any) -> Iterator[Update]:
        yield from self._on_call_fact(session, fact)
        shown = self._children.get(session)
        if shown is None:
            return
        lines: list[str] = []
        match fact:
            case said.TurnReplied(message=message):
                text = cut_line(message.text, MAX_TITLE_CHARS)
                lines = [text] if text else []
                lines += [make_title(call.name, call.arguments) for call in message.tool_calls]
            case said.CallResolved(key=key, message=message) if not is_of_program(key):
                failure = describe_failure(message)
                lines = [] if failure is None else [f"{message.tool_name} failed: {failure}"]
        if lines:
            shown.lines += lines
            content = [make_text_content("\n".join(shown.lines))]
            yield make_progress(make_child_id(session), "in_progress", content)

    def _on_tree_fact(self, fact: Any) -> Iterator[Update]:
        match fact:
            case happened.SessionSpawned(spec=spec) if spec.session_id != MAIN:
                yield self._on_spawned(spec)
            case happened.SessionEnded():
                yield from self._on_ended(fact)
            case happened.ApprovalRequested(question=question):
                yield from self._on_requested(question)
            case happened.ApprovalDecided(request_id=request_id, decision=decision):
                call_id = self.requests.pop(request_id, "")
                yield from self._advance(call_id, "in_progress" if decision == "approved" else "failed")
            case happened.UsageCharged(usage=usage):
                yield from self._on_charged(usage)
            case happened.Posted(post_id=post_id, session=session) if session == MAIN:
                self._posts.add(post_id)
            case happened.PostsTaken(session=session, post_ids=post_ids) if session == MAIN:
                self._posts -= set(post_ids)
            case happened.ChannelSaid(text=text, session=session, at_ms=at_ms):
                where = "" if session == MAIN else f"{session}: "
                yield make_message_chunk(f"{where}{text}", f"{session}.said.{at_ms}")

    def _on_charged(self, usage: Usage) -> Iterator[Update]:
        self._cost_usd += usage.cost_usd
        if self._context_tokens is not None and self._used:
            cost = Cost(amount=self._cost_usd, currency="USD")
            yield UsageUpdate(
                session_update="usage_update", used=self._used, size=self._context_tokens, cost=cost
            )

    def _on_spawned(self, spec: SessionSpec) -> Update:
        self._children[spec.session_id] = _ShownChild(spec)
        if spec.parent == MAIN and spec.via == "model":
            self._awaited.add(spec.session_id)
        what = spec.label or spec.task
        start = render_start(make_child_id(spec.session_id), str(spec.kind), {"task": what}, self._root)
        start.title = make_title(str(spec.kind), {"task": what}, spec.session_id)
        start.kind, start.status = "think", "in_progress"
        start.field_meta = {"sessiontree": {"session": spec.session_id, "kind": str(spec.kind)}}
        return start

    def _on_ended(self, fact: happened.SessionEnded) -> Iterator[Update]:
        self._awaited.discard(fact.session)
        if self._children.pop(fact.session, None) is not None:
            status: ToolCallStatus = "completed" if fact.status is SessionStatus.COMPLETED else "failed"
            text = fact.result.summary or str(fact.status)
            yield make_progress(make_child_id(fact.session), status, [make_text_content(text)])

    def _on_requested(self, question: Any) -> Iterator[Update]:
        call, call_id = question.call, derive_call_id(question.session, question.call.key)
        self.requests[question.request_id] = call_id
        if call_id in self._calls:
            yield make_progress(call_id, "pending")
            return
        self._calls[call_id] = _ShownCall(make_diffs(call.tool, call.arguments, self._root))
        yield render_start(call_id, call.tool, call.arguments, self._root, session=question.session)


def _show_user_message(message_id: str, content: Any) -> Iterator[Update]:
    texts = [block.text for block in content if isinstance(block, TextContent)]
    images = sum(isinstance(block, ImageContent) for block in content)
    texts += [f"({images} image{'' if images == 1 else 's'})"] if images else []
    block = TextContentBlock(type="text", text="\n".join(texts))
    yield UserMessageChunk(session_update="user_message_chunk", content=block, message_id=message_id)
