"""The spans that facts of sessions begin, change and end: those of their turns, questions and calls."""

from __future__ import annotations

from dataclasses import field
from typing import Final, TypeAlias, assert_never

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts.session_facts import (
    ApprovalSettled,
    ApprovalWanted,
    ArgumentsRejected,
    CallDelegated,
    CallIntended,
    CallOpened,
    CallParked,
    CallResolved,
    CompactionBegun,
    CompactionFailed,
    ContextCompacted,
    HookFailed,
    Interrupted,
    MessageReceived,
    ModelChanged,
    Opened,
    ResultRejected,
    RunFinished,
    Stopping,
    TurnCut,
    TurnFailed,
    TurnReplied,
    TurnRetried,
    TurnStarted,
)
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.reports.events import get_display
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ToolCall, Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.telemetry.span_writer import (
    ROOT,
    Content,
    SpanWriter,
    make_call_key,
    make_chat_key,
    make_session_key,
    make_turn_key,
)
from sessiontree.runtime.telemetry.spans import (
    MAX_NAME_CHARS,
    Attribute,
    build_model_attributes,
    build_text_parts,
    build_usage_attributes,
    name_decider,
    reply_attributes,
    reply_content,
)

DISPLAY: Final = "sessiontree.call.display"
"""Attribute of a call: the line that its tool gave to people."""
_RunFact: TypeAlias = (
    Opened
    | ModelChanged
    | MessageReceived
    | ResultRejected
    | RunFinished
    | Interrupted
    | Stopping
    | HookFailed
)
_QuestionFact: TypeAlias = (
    TurnStarted
    | TurnRetried
    | TurnReplied
    | TurnFailed
    | TurnCut
    | CompactionBegun
    | ContextCompacted
    | CompactionFailed
)
_CallFact: TypeAlias = (
    CallOpened
    | CallIntended
    | CallDelegated
    | CallParked
    | ApprovalWanted
    | ApprovalSettled
    | ArgumentsRejected
    | CallResolved
)
SessionSpanFact: TypeAlias = _RunFact | _QuestionFact | _CallFact
"""The facts of sessions that spans show."""


@dataclass(slots=True)
class SessionWork:
    """What is known about a session that has not ended."""

    model: str = ""
    turn: int = 0
    attempt: int = 0
    writer: str = ""
    """The compaction model, while it is asked."""
    usage: Usage = field(default_factory=Usage)
    inbox: list[str] = field(default_factory=list)
    """Texts of messages that no turn has taken; only if content is asked for."""


@dataclass(slots=True)
class TraceState:
    """What is known about a tree."""

    sessions: dict[str, SessionWork] = field(default_factory=dict)
    """Its sessions that have not ended."""
    asked: dict[str, str] = field(default_factory=dict)
    """By approval request, what the call stands for that waits."""
    usage: Usage = field(default_factory=Usage)
    spawned: int = 0
    """How many sessions it has had."""


class SessionReducer:
    """Follows the facts of sessions.

    Args:
        config: The tree's configuration.
        writer: Writes the spans.
        trace: What is known about the tree; shared with the reducer of the tree's own facts.
        display: Passes the lines that tools give to people on to attributes; None = they are left out.
    """

    def __init__(
        self, config: TreeConfig, writer: SpanWriter, trace: TraceState, display: Content | None
    ) -> None:
        self._writer = writer
        self._trace = trace
        self._display = display
        self._tools = frozenset(row.name for row in config.tools)

    def take(self, session: str, fact: SessionSpanFact) -> None:
        """Take in a fact of a session that has not ended."""
        if isinstance(fact, _RunFact):
            self._take_run(session, fact)
        elif isinstance(fact, _QuestionFact):
            self._take_question(session, fact)
        else:
            self._take_call(session, fact)

    # The session's runs.

    def _take_run(self, session: str, fact: _RunFact) -> None:
        work, own = self._trace.sessions[session], make_session_key(session)
        match fact:
            case Opened():
                self._set_model(session, fact.model)
                prompt = build_text_parts([fact.system_prompt])
                self._writer.note_content(own, "gen_ai.system_instructions", prompt)
            case ModelChanged():
                self._set_model(session, fact.model)
            case MessageReceived():
                if self._writer.shows_content:
                    work.inbox.append(fact.message.text)
            case ResultRejected():
                turn = make_turn_key(session, work.turn)
                self._writer.add_event(turn, "result.rejected", attempt=fact.attempt)
            case RunFinished():
                self._end_run(session, fact)
            case Interrupted():
                self._end_chat(session)
                self._writer.end(make_turn_key(session, work.turn), "interrupted", fact.reason)
            case Stopping():
                self._writer.add_event(own, "stopping", session__status=fact.status)
                self._end_chat(session)
            case HookFailed():
                self._writer.add_event(own, "hook.failed", hook=fact.hook, point=fact.point)
            case _:
                assert_never(fact)

    def _set_model(self, session: str, model: str) -> None:
        self._trace.sessions[session].model = model
        self._writer.note(make_session_key(session), build_model_attributes(model))

    def _end_run(self, session: str, fact: RunFinished) -> None:
        turn = self._trace.sessions[session].turn
        problem = None
        if fact.error is not None:
            problem = "interrupted" if fact.interrupted else (fact.failure or "run_failed")
        self._end_chat(session)
        self._writer.end(make_turn_key(session, turn), problem, fact.error or "")

    def _end_chat(self, session: str) -> None:
        state = self._trace.sessions[session]
        self._writer.end(make_chat_key(session, state.turn, state.attempt), "cut")

    # Its questions to models: turns and summaries.

    def _take_question(self, session: str, fact: _QuestionFact) -> None:
        match fact:
            case TurnStarted():
                self._begin_turn(session, fact)
            case TurnRetried():
                self._trace.sessions[session].attempt += 1
                self._begin_chat(session)
            case TurnReplied():
                self._end_with_reply(session, fact)
            case TurnFailed():
                self._end_with_failure(session, fact)
            case TurnCut():
                chat = make_chat_key(session, fact.turn, self._trace.sessions[session].attempt)
                self._writer.end(chat, "cut", fact.reason)
            case CompactionBegun():
                self._begin_compaction(session, fact)
            case ContextCompacted():
                if fact.model:
                    chat = make_chat_key(session, fact.turn, self._trace.sessions[session].attempt)
                    self._writer.note(chat, {"gen_ai.response.model": fact.model[:MAX_NAME_CHARS]})
                self._end_summary(session, fact.turn, fact.usage, None)
            case CompactionFailed():
                self._end_summary(session, fact.turn, fact.usage, "compaction_failed", fact.reason)
            case _:
                assert_never(fact)

    def _begin_turn(self, session: str, fact: TurnStarted) -> None:
        state = self._trace.sessions[session]
        self._writer.end(make_turn_key(session, state.turn))
        state.turn, state.attempt, state.writer = fact.turn, 0, ""
        attributes: dict[str, Attribute] = {
            "sessiontree.session.id": session,
            "sessiontree.turn": fact.turn,
            "sessiontree.turn.messages": fact.took,
        }
        what = make_turn_key(session, fact.turn)
        self._writer.begin(what, f"turn {fact.turn}", session, make_session_key(session), attributes)
        self._begin_chat(session)
        if state.inbox:
            taken, state.inbox = state.inbox[: fact.took], state.inbox[fact.took :]
            messages: list[JsonValue] = [
                {"role": "user", "parts": build_text_parts([text])} for text in taken
            ]
            self._writer.note_content(make_chat_key(session, fact.turn, 0), "gen_ai.input.messages", messages)

    def _begin_chat(self, session: str) -> None:
        state = self._trace.sessions[session]
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.id": session,
            "sessiontree.session.id": session,
            "sessiontree.turn": state.turn,
            "sessiontree.attempt": state.attempt + 1,
            **build_model_attributes(state.writer or state.model),
        }
        name = f"chat {attributes['gen_ai.request.model']}"
        what = make_chat_key(session, state.turn, state.attempt)
        self._writer.begin(what, name, session, make_turn_key(session, state.turn), attributes, "client")

    def _end_with_reply(self, session: str, fact: TurnReplied) -> None:
        state, message = self._trace.sessions[session], fact.message
        what = make_chat_key(session, fact.turn, state.attempt)
        self._writer.note(what, reply_attributes(message))
        self._writer.note_content(what, "gen_ai.output.messages", [reply_content(message)])
        failed = message.stop_reason if message.stop_reason in {"error", "aborted"} else None
        self._writer.end(what, failed, message.stop_detail)
        state.usage = self._writer.charge(make_session_key(session), state.usage, message.usage)
        self._trace.usage = self._writer.charge(ROOT, self._trace.usage, message.usage)
        for index, call in enumerate(message.tool_calls):
            self._begin_call(session, f"{fact.turn}.{index}", call, make_turn_key(session, fact.turn))

    def _end_with_failure(self, session: str, fact: TurnFailed) -> None:
        what = make_chat_key(session, fact.turn, self._trace.sessions[session].attempt)
        self._writer.end(what, "model_error", fact.reason)
        if fact.retry_at_ms is not None:
            wait_ms = max(0, fact.retry_at_ms - self._writer.spans.now_ms)
            self._writer.add_event(make_turn_key(session, fact.turn), "retry.waiting", wait_ms=wait_ms)

    def _begin_compaction(self, session: str, fact: CompactionBegun) -> None:
        state = self._trace.sessions[session]
        self._writer.end(make_turn_key(session, state.turn))
        state.turn, state.attempt, state.writer = fact.turn, 0, fact.model
        attributes: dict[str, Attribute] = {"sessiontree.session.id": session, "sessiontree.turn": fact.turn}
        what = make_turn_key(session, fact.turn)
        self._writer.begin(what, f"compaction {fact.turn}", session, make_session_key(session), attributes)
        self._begin_chat(session)

    def _end_summary(
        self, session: str, turn: int, usage: Usage | None, error: str | None, reason: str = ""
    ) -> None:
        """End the question for a summary."""
        state = self._trace.sessions[session]
        what = make_chat_key(session, turn, state.attempt)
        if usage is not None:
            self._writer.note(what, build_usage_attributes(usage))
            state.usage = self._writer.charge(make_session_key(session), state.usage, usage)
            self._trace.usage = self._writer.charge(ROOT, self._trace.usage, usage)
        self._writer.end(what, error, reason)
        self._writer.end(make_turn_key(session, turn), error, reason)

    # Its calls.

    def _take_call(self, session: str, fact: _CallFact) -> None:
        match fact:
            case CallOpened():
                call = ToolCall(fact.call_id, fact.tool, fact.arguments)
                self._begin_call(session, fact.key, call, make_session_key(session))
            case CallIntended():
                tier = PermissionTier(fact.call.tier).label
                self._writer.add_event(make_call_key(session, fact.call.key), "effect.intended", tier=tier)
            case CallDelegated():
                self._writer.add_event(make_call_key(session, fact.call.key), "client_call.waiting")
            case CallParked():
                self._writer.add_event(make_call_key(session, fact.key), "call.pending")
            case ApprovalWanted():
                what = self._trace.asked[fact.request_id] = make_call_key(session, fact.call.key)
                self._writer.add_event(what, "approval.wanted", tier=PermissionTier(fact.call.tier).label)
            case ApprovalSettled():
                self._writer.add_event(
                    make_call_key(session, fact.key),
                    "approval.settled",
                    approval__decision=fact.decision,
                    approval__by=name_decider(fact.by),
                )
            case ArgumentsRejected():
                what = make_call_key(session, fact.key)
                self._writer.add_event(what, "arguments.rejected", attempt=fact.attempt, final=fact.final)
            case CallResolved():
                self._end_call(session, fact)
            case _:
                assert_never(fact)

    def _begin_call(self, session: str, key: str, call: ToolCall, parent: str) -> None:
        name = call.name if call.name in self._tools else "unknown"
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.agent.id": session,
            "sessiontree.session.id": session,
            "sessiontree.call.key": key,
        }
        if self._writer.shows_content:
            attributes["gen_ai.tool.call.id"] = self._writer.format_content(call.id)
        what = make_call_key(session, key)
        self._writer.begin(what, f"execute_tool {name}", session, parent, attributes)
        self._writer.note_content(
            make_call_key(session, key), "gen_ai.tool.call.arguments", dict(call.arguments)
        )

    def _end_call(self, session: str, fact: CallResolved) -> None:
        what = make_call_key(session, fact.key)
        self._writer.note(what, {"sessiontree.call.outcome": fact.outcome})
        if self._display is not None and (display := get_display(fact.message)) is not None:
            self._writer.note(what, {DISPLAY: make_visible(str(self._display(display)))})
        self._writer.note_content(what, "gen_ai.tool.call.result", fact.message.text)
        self._writer.end(what, None if fact.outcome in {"ok", "pending"} else fact.outcome)
