"""The trace of a tree: spans made from its facts, with the times of the facts. Pure: no clock, no exporter.

One trace per tree: the tree, in it ``invoke_agent`` for each session, in it its turns and child sessions, in
a turn ``chat`` and ``execute_tool``; approvals are events of the call that waits.

Spans hold names, numbers and states. What sessions read and wrote is in them only if it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.kinds import PermissionTier, SessionStatus
from sessiontree.contracts.recorded.codec import get_kind, list_recorded_classes
from sessiontree.contracts.reports.events import display_of
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.messages import ToolCall, Usage
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_facts
from sessiontree.runtime.telemetry.open_spans import OpenSpans
from sessiontree.runtime.telemetry.spans import (
    MAX_NAME_CHARS,
    Attribute,
    SpanRecord,
    build_model_attributes,
    build_text_parts,
    build_usage_attributes,
    name_decider,
    reply_attributes,
    reply_content,
)

Content: TypeAlias = Callable[[JsonValue], JsonValue]
"""Takes what sessions read or wrote and returns what of it may be shown."""

_KINDS: Final = list_recorded_classes()
ROOT_NAME: Final = "session tree"
"""Name of the span of a whole tree."""
DISPLAY: Final = "sessiontree.call.display"
"""Attribute of a call: the line that its tool gave to people."""
MAX_CONTENT_CHARS: Final = 32_768
"""Longest text of one attribute with content."""
_SETTLED: Final = frozenset({SessionStatus.COMPLETED, SessionStatus.CANCELLED})


@dataclass(slots=True)
class _Session:
    """What is known about a session that has not ended."""

    model: str = ""
    turn: int = 0
    attempt: int = 0
    writer: str = ""
    """The compaction model, while it is asked."""
    usage: Usage = field(default_factory=Usage)
    inbox: list[str] = field(default_factory=list)
    """Texts of messages that no turn has taken; only if content is asked for."""


class TreeSpans:
    """Makes the spans of one tree.

    Args:
        config: The tree's configuration.
        content: Passes what sessions read and wrote on to attributes, without secrets; None = it is left out.
        display: The same for the lines that tools give to people.
    """

    def __init__(
        self, config: TreeConfig, content: Content | None = None, display: Content | None = None
    ) -> None:
        self._config = config
        self._content = content
        self._display = display
        self._tools = frozenset(row.name for row in config.tools)
        self._spans = OpenSpans(config)
        self._sessions: dict[str, _Session] = {}
        self._asked: dict[str, str] = {}
        """By approval request, what the call stands for that waits."""
        self._usage = Usage()
        self._count = 0

    @property
    def trace_id(self) -> str:
        """Id of the tree's trace: 32 hexadecimal digits."""
        return self._spans.digest("trace", 16)

    @property
    def open_spans(self) -> int:
        """How many spans have begun and not ended."""
        return len(self._spans)

    def add(self, record: JournalRecord) -> list[SpanRecord]:
        """Take the next fact in; return the spans that it ends, children first.

        Raises:
            JournalError: the fact can't be read.
        """
        self._spans.advance(record.seq, record.at_ms)
        kind = read_kind(record.text)
        if not record.session and kind in self._of_tree:
            for fact in read_facts(record.text):
                if (of_tree := self._of_tree.get(get_kind(fact))) is not None:
                    of_tree(self, fact)
        elif record.session in self._sessions and kind in self._of_session:
            for fact in read_facts(record.text):
                self._of_session[get_kind(fact)](self, record.session, fact)
        return self._spans.take_ended()

    def cut(self, seq: int) -> list[SpanRecord]:
        """End every open span, because the tree is closed after the fact of a number; children first.

        The spans continue with the next fact, under new ids.
        """
        return self._spans.cut(seq)

    def _begin(
        self,
        what: str,
        name: str,
        session: str,
        parent: str,
        attributes: dict[str, Attribute],
        kind: Literal["internal", "client"] = "internal",
    ) -> None:
        known = {"gen_ai.conversation.id": self._config.tree_id, **attributes}
        parents = (parent, _make_session_key(session), _ROOT)
        self._spans.begin(what, name, session, parents, known, kind)

    def _end(self, what: str, error: str | None = None, reason: str = "") -> None:
        self._spans.end(what, error, self._format_content(reason) if error is not None and reason else "")

    def _add_event(self, what: str, name: str, **attributes: Attribute) -> None:
        self._spans.event(what, name, **attributes)

    def _note(self, what: str, key: str, value: JsonValue) -> None:
        """Set an attribute with content, if content is asked for."""
        if self._content is not None:
            self._spans.note(what, {key: self._format_content(value)})

    def _format_content(self, value: JsonValue) -> str:
        if self._content is None:
            return ""
        shown = self._content(value)
        text = shown if isinstance(shown, str) else dump_readable(shown)
        text = text.encode("utf-8", "replace").decode()
        return text if len(text) <= MAX_CONTENT_CHARS else f"{text[:MAX_CONTENT_CHARS]}…"

    # Facts of the tree.

    def _on_tree_created(self, fact: tree_facts.TreeCreated) -> None:
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_workflow",
            "sessiontree.version": self._config.package_version,
            "sessiontree.approvals": self._config.mode,
        }
        self._begin(_ROOT, ROOT_NAME, "", "", attributes)
        if self._config.purpose:
            self._note(_ROOT, "gen_ai.workflow.name", self._config.purpose)

    def _on_spawned(self, fact: tree_facts.SessionSpawned) -> None:
        spec = fact.spec
        name = spec.session_id
        self._count += 1
        self._sessions[name] = _Session(model=self._find_model(spec))
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": spec.agent,
            "gen_ai.agent.id": name,
            "sessiontree.session.id": name,
            "sessiontree.session.kind": spec.kind.value,
            "sessiontree.session.depth": spec.depth,
            "sessiontree.session.via": spec.via,
        }
        attributes |= build_model_attributes(self._sessions[name].model)
        above = _ROOT if spec.parent is None else _make_session_key(spec.parent)
        self._begin(_make_session_key(name), f"invoke_agent {spec.agent}", name, above, attributes)
        if spec.label:
            self._note(_make_session_key(name), "sessiontree.session.label", spec.label)
        self._spans.note(_ROOT, {"sessiontree.sessions": self._count})

    def _find_model(self, spec: SessionSpec) -> str:
        named = [row.model for row in self._config.agents if row.name == spec.agent and row.model]
        return named[0] if named else self._config.model

    def _on_adopted(self, fact: tree_facts.SessionAdopted) -> None:
        self._add_event(_make_session_key(fact.session), "adopted")

    def _on_tainted(self, fact: tree_facts.SessionTainted) -> None:
        self._add_event(_make_session_key(fact.session), "tainted")

    def _spawn_denied(self, fact: tree_facts.SpawnDenied) -> None:
        what = {"limit": fact.limit} if fact.limit else {}
        self._add_event(_make_session_key(fact.parent), "spawn.denied", session__kind=fact.kind.value, **what)

    def _on_session_ended(self, fact: tree_facts.SessionEnded) -> None:
        session = fact.session
        self._sessions.pop(session, None)
        own, status = _make_session_key(session), fact.status
        self._spans.abandon(session, keep=own)
        ending: dict[str, Attribute] = {"sessiontree.session.status": status.value}
        self._spans.note(own, {**ending, "sessiontree.session.forced": fact.forced})
        good = status in _SETTLED
        self._end(own, None if good else status.value, "" if good else fact.result.summary)
        if session == "main":  # with it ends the tree
            self._spans.abandon(None, keep=_ROOT)
            self._sessions.clear()
            self._spans.note(_ROOT, ending)
            self._end(_ROOT, None if good else status.value)

    def _on_approval_step(self, fact: tree_facts.ApprovalStepRecorded) -> None:
        self._add_event(
            self._asked.get(fact.request_id, ""),
            "approval.step",
            session__id=fact.session,
            approval__answer=fact.answer,
            approval__by=name_decider(fact.by),
        )

    def _on_approval_waiting(self, fact: tree_facts.ApprovalWaiting) -> None:
        what = self._asked.get(fact.request_id, "")
        self._add_event(what, "approval.waiting", session__id=fact.session, approval__how=fact.how)

    def _on_approval_decided(self, fact: tree_facts.ApprovalDecided) -> None:
        self._add_event(
            self._asked.pop(fact.request_id, ""),
            "approval.decided",
            approval__decision=fact.decision,
            approval__by=name_decider(fact.by),
        )

    def _on_budget_spent(self, fact: tree_facts.BudgetSpent) -> None:
        self._add_event(
            _make_session_key(fact.account),
            "budget.spent",
            limit=fact.limit,
            used=fact.used,
            allowed=fact.allowed,
        )

    def _cancel_begun(self, fact: tree_facts.CancelBegun) -> None:
        for session in fact.sessions:
            self._add_event(_make_session_key(session), "cancel.begun", session__status=fact.status.value)

    def _interrupt_begun(self, fact: tree_facts.InterruptBegun) -> None:
        for session in fact.sessions:
            self._add_event(_make_session_key(session), "interrupt.begun")

    # Facts of a session: its turns.

    def _on_opened(self, session: str, fact: session_facts.Opened) -> None:
        self._on_model_changed(session, fact)
        self._note(
            _make_session_key(session), "gen_ai.system_instructions", build_text_parts([fact.system_prompt])
        )

    def _on_model_changed(
        self, session: str, fact: session_facts.Opened | session_facts.ModelChanged
    ) -> None:
        self._sessions[session].model = fact.model
        self._spans.note(_make_session_key(session), build_model_attributes(fact.model))

    def _on_message_received(self, session: str, fact: session_facts.MessageReceived) -> None:
        if self._content is not None:
            self._sessions[session].inbox.append(fact.message.text)

    def _turn_started(self, session: str, fact: session_facts.TurnStarted) -> None:
        state = self._sessions[session]
        self._end(_turn(session, state.turn))
        state.turn, state.attempt, state.writer = fact.turn, 0, ""
        attributes: dict[str, Attribute] = {
            "sessiontree.session.id": session,
            "sessiontree.turn": fact.turn,
            "sessiontree.turn.messages": fact.took,
        }
        what = _turn(session, fact.turn)
        self._begin(what, f"turn {fact.turn}", session, _make_session_key(session), attributes)
        self._chat(session)
        if state.inbox:
            taken, state.inbox = state.inbox[: fact.took], state.inbox[fact.took :]
            messages: list[JsonValue] = [
                {"role": "user", "parts": build_text_parts([text])} for text in taken
            ]
            self._note(_chat(session, fact.turn, 0), "gen_ai.input.messages", messages)

    def _chat(self, session: str) -> None:
        state = self._sessions[session]
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.id": session,
            "sessiontree.session.id": session,
            "sessiontree.turn": state.turn,
            "sessiontree.attempt": state.attempt + 1,
            **build_model_attributes(state.writer or state.model),
        }
        name = f"chat {attributes['gen_ai.request.model']}"
        what = _chat(session, state.turn, state.attempt)
        self._begin(what, name, session, _turn(session, state.turn), attributes, "client")

    def _turn_retried(self, session: str, fact: session_facts.TurnRetried) -> None:
        self._sessions[session].attempt += 1
        self._chat(session)

    def _turn_replied(self, session: str, fact: session_facts.TurnReplied) -> None:
        state, message = self._sessions[session], fact.message
        what = _chat(session, fact.turn, state.attempt)
        self._spans.note(what, reply_attributes(message))
        self._note(what, "gen_ai.output.messages", [reply_content(message)])
        failed = message.stop_reason if message.stop_reason in {"error", "aborted"} else None
        self._end(what, failed, message.stop_detail)
        state.usage = self._charge(_make_session_key(session), state.usage, message.usage)
        self._usage = self._charge(_ROOT, self._usage, message.usage)
        for index, call in enumerate(message.tool_calls):
            self._call(session, f"{fact.turn}.{index}", call, _turn(session, fact.turn))

    def _charge(self, what: str, before: Usage, used: Usage) -> Usage:
        total = before + used
        self._spans.note(what, build_usage_attributes(total))
        return total

    def _turn_failed(self, session: str, fact: session_facts.TurnFailed) -> None:
        what = _chat(session, fact.turn, self._sessions[session].attempt)
        self._end(what, "model_error", fact.reason)
        if fact.retry_at_ms is not None:
            wait_ms = max(0, fact.retry_at_ms - self._spans.now_ms)
            self._add_event(_turn(session, fact.turn), "retry.waiting", wait_ms=wait_ms)

    def _on_compaction_begun(self, session: str, fact: session_facts.CompactionBegun) -> None:
        state = self._sessions[session]
        self._end(_turn(session, state.turn))
        state.turn, state.attempt, state.writer = fact.turn, 0, fact.model
        attributes: dict[str, Attribute] = {"sessiontree.session.id": session, "sessiontree.turn": fact.turn}
        what = _turn(session, fact.turn)
        self._begin(what, f"compaction {fact.turn}", session, _make_session_key(session), attributes)
        self._chat(session)

    def _on_context_compacted(self, session: str, fact: session_facts.ContextCompacted) -> None:
        if fact.model:
            what = _chat(session, fact.turn, self._sessions[session].attempt)
            self._spans.note(what, {"gen_ai.response.model": fact.model[:MAX_NAME_CHARS]})
        self._end_summary(session, fact.turn, fact.usage, None)

    def _on_compaction_failed(self, session: str, fact: session_facts.CompactionFailed) -> None:
        self._end_summary(session, fact.turn, fact.usage, "compaction_failed", fact.reason)

    def _end_summary(
        self, session: str, turn: int, usage: Usage | None, error: str | None, reason: str = ""
    ) -> None:
        """End the question for a summary."""
        state = self._sessions[session]
        what = _chat(session, turn, state.attempt)
        if usage is not None:
            self._spans.note(what, build_usage_attributes(usage))
            state.usage = self._charge(_make_session_key(session), state.usage, usage)
            self._usage = self._charge(_ROOT, self._usage, usage)
        self._end(what, error, reason)
        self._end(_turn(session, turn), error, reason)

    def _turn_cut(self, session: str, fact: session_facts.TurnCut) -> None:
        self._end(_chat(session, fact.turn, self._sessions[session].attempt), "cut", fact.reason)

    def _on_result_rejected(self, session: str, fact: session_facts.ResultRejected) -> None:
        what = _turn(session, self._sessions[session].turn)
        self._add_event(what, "result.rejected", attempt=fact.attempt)

    def _run_finished(self, session: str, fact: session_facts.RunFinished) -> None:
        turn = self._sessions[session].turn
        problem = None
        if fact.error is not None:
            problem = "interrupted" if fact.interrupted else (fact.failure or "run_failed")
        self._end_chat(session)
        self._end(_turn(session, turn), problem, fact.error or "")

    def _end_chat(self, session: str) -> None:
        state = self._sessions[session]
        self._end(_chat(session, state.turn, state.attempt), "cut")

    def _on_interrupted(self, session: str, fact: session_facts.Interrupted) -> None:
        self._end_chat(session)
        self._end(_turn(session, self._sessions[session].turn), "interrupted", fact.reason)

    def _on_stopping(self, session: str, fact: session_facts.Stopping) -> None:
        self._add_event(_make_session_key(session), "stopping", session__status=fact.status)
        self._end_chat(session)

    # Facts of a session: its calls.

    def _call(self, session: str, key: str, call: ToolCall, parent: str) -> None:
        name = call.name if call.name in self._tools else "unknown"
        attributes: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.agent.id": session,
            "sessiontree.session.id": session,
            "sessiontree.call.key": key,
        }
        if self._content is not None:
            attributes["gen_ai.tool.call.id"] = self._format_content(call.id)
        self._begin(_call(session, key), f"execute_tool {name}", session, parent, attributes)
        self._note(_call(session, key), "gen_ai.tool.call.arguments", dict(call.arguments))

    def _call_opened(self, session: str, fact: session_facts.CallOpened) -> None:
        call = ToolCall(fact.call_id, fact.tool, fact.arguments)
        self._call(session, fact.key, call, _make_session_key(session))

    def _call_intended(self, session: str, fact: session_facts.CallIntended) -> None:
        tier = PermissionTier(fact.call.tier).label
        self._add_event(_call(session, fact.call.key), "effect.intended", tier=tier)

    def _call_delegated(self, session: str, fact: session_facts.CallDelegated) -> None:
        self._add_event(_call(session, fact.call.key), "client_call.waiting")

    def _call_parked(self, session: str, fact: session_facts.CallParked) -> None:
        self._add_event(_call(session, fact.key), "call.pending")

    def _on_approval_wanted(self, session: str, fact: session_facts.ApprovalWanted) -> None:
        what = self._asked[fact.request_id] = _call(session, fact.call.key)
        self._add_event(what, "approval.wanted", tier=PermissionTier(fact.call.tier).label)

    def _on_approval_settled(self, session: str, fact: session_facts.ApprovalSettled) -> None:
        self._add_event(
            _call(session, fact.key),
            "approval.settled",
            approval__decision=fact.decision,
            approval__by=name_decider(fact.by),
        )

    def _on_arguments_rejected(self, session: str, fact: session_facts.ArgumentsRejected) -> None:
        self._add_event(
            _call(session, fact.key), "arguments.rejected", attempt=fact.attempt, final=fact.final
        )

    def _call_resolved(self, session: str, fact: session_facts.CallResolved) -> None:
        what = _call(session, fact.key)
        self._spans.note(what, {"sessiontree.call.outcome": fact.outcome})
        if self._display is not None and (display := display_of(fact.message)) is not None:
            self._spans.note(what, {DISPLAY: make_visible(str(self._display(display)))})
        self._note(what, "gen_ai.tool.call.result", fact.message.text)
        self._end(what, None if fact.outcome in {"ok", "pending"} else fact.outcome)

    def _hook_failed(self, session: str, fact: session_facts.HookFailed) -> None:
        self._add_event(_make_session_key(session), "hook.failed", hook=fact.hook, point=fact.point)

    _of_tree: ClassVar[Mapping[str, Callable[[TreeSpans, Any], None]]] = {
        _KINDS[fact]: handle
        for fact, handle in (
            (tree_facts.TreeCreated, _on_tree_created),
            (tree_facts.SessionSpawned, _on_spawned),
            (tree_facts.SessionAdopted, _on_adopted),
            (tree_facts.SessionTainted, _on_tainted),
            (tree_facts.SpawnDenied, _spawn_denied),
            (tree_facts.SessionEnded, _on_session_ended),
            (tree_facts.ApprovalStepRecorded, _on_approval_step),
            (tree_facts.ApprovalWaiting, _on_approval_waiting),
            (tree_facts.ApprovalDecided, _on_approval_decided),
            (tree_facts.BudgetSpent, _on_budget_spent),
            (tree_facts.CancelBegun, _cancel_begun),
            (tree_facts.InterruptBegun, _interrupt_begun),
        )
    }
    _of_session: ClassVar[Mapping[str, Callable[[TreeSpans, str, Any], None]]] = {
        _KINDS[fact]: handle
        for fact, handle in (
            (session_facts.Opened, _on_opened),
            (session_facts.ModelChanged, _on_model_changed),
            (session_facts.MessageReceived, _on_message_received),
            (session_facts.TurnStarted, _turn_started),
            (session_facts.TurnRetried, _turn_retried),
            (session_facts.TurnReplied, _turn_replied),
            (session_facts.TurnFailed, _turn_failed),
            (session_facts.CompactionBegun, _on_compaction_begun),
            (session_facts.ContextCompacted, _on_context_compacted),
            (session_facts.CompactionFailed, _on_compaction_failed),
            (session_facts.TurnCut, _turn_cut),
            (session_facts.ResultRejected, _on_result_rejected),
            (session_facts.RunFinished, _run_finished),
            (session_facts.Interrupted, _on_interrupted),
            (session_facts.Stopping, _on_stopping),
            (session_facts.CallOpened, _call_opened),
            (session_facts.CallIntended, _call_intended),
            (session_facts.CallDelegated, _call_delegated),
            (session_facts.CallParked, _call_parked),
            (session_facts.ApprovalWanted, _on_approval_wanted),
            (session_facts.ApprovalSettled, _on_approval_settled),
            (session_facts.ArgumentsRejected, _on_arguments_rejected),
            (session_facts.CallResolved, _call_resolved),
            (session_facts.HookFailed, _hook_failed),
        )
    }


_ROOT: Final = "tree"


def _make_session_key(session: str) -> str:
    return f"session|{session}"


def _turn(session: str, turn: int) -> str:
    return f"turn|{session}|{turn}"


def _chat(session: str, turn: int, attempt: int) -> str:
    return f"chat|{session}|{turn}.{attempt}"


def _call(session: str, key: str) -> str:
    return f"call|{session}|{key}"
