"""A session's view of the sessions below it, and its requests to them, in its supervisor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from sessiontree.contracts.errors import ConfigError, ExecutionError, SessionTreeError
from sessiontree.contracts.facts.session_facts import (
    CallResolved,
    MessageReceived,
    Opened,
    TurnReplied,
    TurnStarted,
)
from sessiontree.contracts.facts.stimuli import SendMode
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.handles.ports import (
    AgentInfo,
    SessionFilter,
    SessionRow,
    SessionRows,
    Transcript,
    TranscriptEntry,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.jsonable import dump_readable, to_json_value
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.contracts.values.untrusted import BEGIN, wrap_untrusted
from sessiontree.hooks.redact import Redact
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_fact, read_facts
from sessiontree.policy.closed_result import ClosedResult, derive_closed_form
from sessiontree.runtime.scheduling.live_session import Controller
from sessiontree.schema.result import compile_result
from sessiontree.tree.state.protocol import (
    AcceptSessionMessage,
    RefuseChannelMessage,
    RefuseStop,
    SendAsked,
    StopAsked,
)
from sessiontree.tree.state.reach import find_session_below, make_not_below_error, walk_below
from sessiontree.tree.state.state import Session

MAX_ROWS = 200
"""Most rows of one list, whatever was asked for."""
MAX_ENTRIES = 100
MAX_TRANSCRIPT_CHARS = 40_000
MAX_TEXT_CHARS = 4_000
MAX_RESULT_CHARS = 1_000
MAX_CALL_CHARS = 300
_OF_TURNS = frozenset({"call_resolved", "message_received", "opened", "turn_replied", "turn_started"})
"""Kinds of facts that may hold the start of a turn, a reply, or the result of a call."""
_SAID = frozenset({"opened", "message_received", "turn_replied", "call_resolved"})
_REDACT = Redact()


def list_rows_below(
    controller: Controller, journal: Journal, asker: str, wanted: SessionFilter
) -> SessionRows:
    """Return the sessions below another that fit a filter."""
    found = [
        session
        for session in walk_below(controller.state, asker)
        if wanted.kind in {None, session.spec.kind} and wanted.is_live in {None, session.is_live}
    ]
    ended = [session for session in found if not session.is_live]
    ended.sort(key=lambda session: -(session.ended_at_ms or 0))
    ordered = [*(session for session in found if session.is_live), *ended]
    shown = ordered[: max(0, min(wanted.limit, MAX_ROWS))]
    rows = tuple(_build_row(controller, journal, session) for session in shown)
    return SessionRows(rows, len(ordered) - len(rows))


async def send_message_from(
    controller: Controller,
    sender: str,
    target: str,
    text: str,
    mode: SendMode,
    key: str,
    asked_by: tuple[Principal, ...],
) -> str:
    """Send a message of a session to one below it or to its parent; return the receiver once it is durable.

    Raises:
        SessionNotFound: ``target`` does not name a session below it.
        SessionClosed: the receiver has ended or is stopping, or it is the parent and can't be steered.
        PermissionDenied: a message policy forbids it.
        ExecutionError: the text is blank, or the mode is unknown.
    """
    if not isinstance(text, str) or not text.strip() or mode not in get_args(SendMode):
        raise ExecutionError(f"nothing was sent: {text!r} as {mode!r} is not text in mode follow_up or steer")
    asked = SendAsked(controller.now_ms(), sender, target, text, mode, key, asked_by)
    for instruction in await controller.settle(asked, f"send:{key}"):
        if isinstance(instruction, RefuseChannelMessage):
            raise instruction.error
        if isinstance(instruction, AcceptSessionMessage):
            return instruction.session
    raise SessionTreeError(f"the message of {sender!r} was neither sent nor refused")


def list_agents(controller: Controller) -> tuple[AgentInfo, ...]:
    """Return the agents of a tree: every session that spawns may name each of them."""
    return tuple(
        AgentInfo(row.name, controller.get_agent_config(row.name).model, row.description)
        for row in controller.config.agents
    )


def read_transcript_below(
    controller: Controller,
    journal: Journal,
    asker: str,
    target: str,
    limit: int,
    before: int | None,
    *,
    results: bool,
) -> Transcript:
    """Return messages of a session below another, oldest first, without secrets and shortened.

    Raises:
        SessionNotFound: ``target`` does not name a session below it.
    """
    found = find_session_below(controller.state, asker, target)
    if found is None:
        raise make_not_below_error(target)
    entries: list[TranscriptEntry] = []
    room, has_earlier = MAX_TRANSCRIPT_CHARS, False
    for record in _read_newest_first(controller, journal, found.spec.session_id):
        if before is not None and record.seq >= before:
            continue
        entry = _build_entry(record, found) if read_kind(record.text) in _SAID else None
        if entry is None or (entry.role == "tool" and not results):
            continue
        room -= len(entry.text)
        if len(entries) >= min(limit, MAX_ENTRIES) or room < 0:
            has_earlier = True
            break
        entries.append(entry)
    return Transcript(found.spec.session_id, tuple(reversed(entries)), has_earlier, found.taint)


def _build_entry(record: JournalRecord, session: Session) -> TranscriptEntry | None:
    fact, is_tainted = read_fact(record.text), bool(session.taint)
    name, at = session.spec.session_id, record.seq
    if isinstance(fact, Opened):
        fact = fact.task
    if isinstance(fact, MessageReceived):
        is_foreign = is_tainted and fact.message.origin == "child"
        text = _clean_text(fact.message.text, name, MAX_TEXT_CHARS, is_foreign=is_foreign)
        return TranscriptEntry(at, "user", text, record.at_ms, fact.message.origin)
    if isinstance(fact, TurnReplied):
        lines = [fact.message.text] if fact.message.text else []
        for call in fact.message.tool_calls:
            arguments = _REDACT.value(to_json_value(call.arguments))
            lines.append(cut_text(f"[call {call.name} {dump_readable(arguments)}]", MAX_CALL_CHARS))
        text = _clean_text("\n".join(lines), name, MAX_TEXT_CHARS, is_foreign=is_tainted)
        return TranscriptEntry(at, "assistant", text, record.at_ms)
    if isinstance(fact, CallResolved):
        message = fact.message
        text = _clean_text(message.text, name, MAX_RESULT_CHARS, is_foreign=False)
        return TranscriptEntry(at, "tool", text, record.at_ms, "", message.tool_name, message.is_error)
    return None


def _clean_text(text: str, source: str, max_chars: int, *, is_foreign: bool) -> str:
    """Return text without secrets, cut; text from outside is between marks of its own."""
    # Removed before the cut: half a secret would no longer look like one.
    shown = cut_text(_REDACT.text(text[: 4 * max_chars]), max_chars)
    is_marked = is_foreign or BEGIN in text
    return wrap_untrusted(shown, kind="session", source=source) if is_marked and shown else shown


async def stop_subtree(
    controller: Controller, journal: Journal, asker: str, target: str, reason: str
) -> tuple[SessionRow, ...]:
    """Stop a session below another and wait for its end; return its row and those below it.

    Raises:
        SessionNotFound: ``target`` does not name a session below it.
    """
    found = find_session_below(controller.state, asker, target)
    if found is None:
        raise make_not_below_error(target)
    name = found.spec.session_id
    if found.is_live:
        asked = StopAsked(controller.now_ms(), name, reason, SessionStatus.CANCELLED, asker)
        for instruction in await controller.settle(asked, f"stop:{name}"):
            if isinstance(instruction, RefuseStop):
                raise instruction.error
        if controller.state.sessions[name].is_live:
            await controller.waiters.results.wait(name)
    await controller.wait_until_durable()
    await controller.departures.wait(name)
    ended = (controller.state.sessions[name], *walk_below(controller.state, name))
    return tuple(_build_row(controller, journal, session) for session in ended[:MAX_ROWS])


def _build_row(controller: Controller, journal: Journal, session: Session) -> SessionRow:
    spec = session.spec
    until_ms = controller.now_ms() if session.ended_at_ms is None else session.ended_at_ms
    return SessionRow(
        session_id=spec.session_id,
        kind=spec.kind,
        label=spec.label,
        agent=spec.agent,
        status=session.status,
        is_stopping=session.is_live and session.stop is not None,
        turns=session.usage.turns,
        tokens=session.usage.tokens,
        cost_usd=session.usage.cost_usd,
        tool=_find_current_tool(controller, journal, spec.session_id) if session.is_live else "",
        pending_approvals=session.pending,
        age_s=max(0, until_ms - session.spawned_at_ms) / 1000,
        summary="" if session.result is None else session.result.summary,
        taint=session.taint,
        given_up=() if session.result is None else session.result.given_up,
        result_form=_describe_result_form(spec),
    )


def _describe_result_form(spec: SessionSpec) -> str:
    """Return whether a Worker's typed result would taint its parent, and why."""
    if spec.kind is not SessionKind.WORKER or spec.result_schema is None:
        return ""
    try:
        form = derive_closed_form(compile_result(spec.result_schema).schema)
    except ConfigError:  # a release with other rules accepted it
        return "open"
    return "closed" if isinstance(form, ClosedResult) else f"open: {form.place or 'the value'} {form.reason}"


def _find_current_tool(controller: Controller, journal: Journal, session: str) -> str:
    """Return the first tool of a session's last reply whose call has no result yet; empty = none."""
    settled = set()
    for record in _read_newest_first(controller, journal, session):
        if read_kind(record.text) not in _OF_TURNS:
            continue
        for fact in reversed(read_facts(record.text)):
            if isinstance(fact, TurnStarted):
                return ""
            if isinstance(fact, CallResolved):
                settled.add(fact.key)
            elif isinstance(fact, TurnReplied):
                calls = enumerate(fact.message.tool_calls)
                return next((call.name for at, call in calls if f"{fact.turn}.{at}" not in settled), "")
    return ""


def _read_newest_first(controller: Controller, journal: Journal, session: str) -> Iterator[JournalRecord]:
    return reversed(journal.read_session(controller.config.tree_id, session))
