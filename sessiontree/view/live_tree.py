"""A live tree: its sessions and approvals, kept up to date from its facts and events.

It is pure: nothing here waits, reads a clock or draws. A fact costs O(depth of its session), never the size
of the tree or of the fact; choosing what is shown costs O(what is shown).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from sessiontree.contracts.facts.tree_facts import ApprovalRequested
from sessiontree.contracts.recorded.canvas import MAX_CANVASES
from sessiontree.contracts.recorded.client_calls import read_question
from sessiontree.contracts.recorded.programs import is_of_program
from sessiontree.contracts.recorded.questions import QuestionRequest
from sessiontree.contracts.reports.events import (
    Event,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_fact
from sessiontree.tree.state.canvas_state import CanvasState, change_state
from sessiontree.view.fact_heads import read_first_members, turn_in
from sessiontree.view.live_sessions import LiveSessions
from sessiontree.view.program_panel import list_keys, make_panel
from sessiontree.view.session_panel import SessionPanel, call_text

FAILED_CALL = re.compile(r'"isError":true|"exit_code":(?!0[,}])')
"""Is in the fact of every call that failed, so that no other fact need be parsed."""


@dataclass(slots=True)
class OpenRequest:
    """An approval request without a decision."""

    asked: ApprovalRequested
    seq: int
    """Number of its fact."""
    waits_at: str = ""
    """The session at which a person or a function is asked; empty = the request still climbs."""


MAX_CANVASES_KEPT: Final = 2 * MAX_CANVASES
"""Most canvases that a view keeps, those of ended sessions with them."""


@dataclass(slots=True)
class CanvasPanel:
    """A session's canvas, as viewers see it."""

    state: CanvasState = field(default_factory=CanvasState)
    page_number: int = 0
    """How often the file of its page has changed since somebody looks at the tree."""


class LiveTree(LiveSessions):
    """Processes facts in order and events in any order; provides what waits and the sessions to show."""

    def __init__(self) -> None:
        super().__init__()
        self.requests_revision = 0
        """The revision of the last change of the requests."""
        self.requests: dict[str, OpenRequest] = {}
        """Open approval requests, oldest first."""
        self.questions: dict[str, QuestionRequest] = {}
        """Questions that wait for a person, oldest first."""
        self.questions_revision = 0
        """The revision of the last change of the questions."""
        self.canvases: dict[str, CanvasPanel] = {}
        """Canvases by session, the one that changed last at the end; those of ended sessions stay."""
        self.canvases_revision = 0
        """The revision of the last change of a canvas."""
        self._books: Mapping[str, Callable[[str], None]] = {
            "session_spawned": self._on_spawned,
            "session_reactivated": self._on_stirred,
            "result_held": self._on_held,
            "session_ended": self._on_ended,
            "usage_charged": self._on_charged,
            "cancel_begun": self._on_stopping,
            "approval_requested": self._on_requested,
            "approval_waiting": self._on_waiting,
            "approval_decided": self._on_decided,
            "client_call_opened": self._call_waits,
            "client_call_ended": self._call_over,
            "canvas_changed": self._on_canvas_changed,
        }

    @property
    def open_requests(self) -> int:
        """Approval requests without a decision."""
        return len(self.requests)

    def take(self, record: JournalRecord) -> None:
        """Take a fact in.

        Raises:
            JournalTooNew, JournalCorrupt: it is not a fact of this release.
        """
        self.last_seq = record.seq
        self.last_at_ms = max(self.last_at_ms, record.at_ms)
        kind = read_kind(record.text)
        if not record.session:
            book = self._books.get(kind)
            if book is not None:
                book(record.text)
        elif kind in _OF_SESSION:
            session = self.sessions.get(record.session)
            if session is not None and not session.is_ended:
                session.seq = record.seq
                _OF_SESSION[kind](session, record.text)
                self._touch(session)

    def see(self, session_id: str, event: Event) -> None:
        """Take an event in: calls that begin are reported by events before facts tell them."""
        session = self.sessions.get(session_id)
        if session is None or session.is_ended:
            return
        if isinstance(event, ToolExecutionStart):
            session.began(event.tool_call_id, event.tool_name, event.args)
        elif isinstance(event, ToolExecutionRetry):
            session.tried(event.tool_call_id, event.attempt, event.attempts)
        elif isinstance(event, ToolExecutionEnd):
            session.call_over(event.tool_call_id)
        else:
            return
        self._touch(session)

    def _on_requested(self, text: str) -> None:
        fact = read_fact(text)
        question = fact.question
        self.requests[question.request_id] = OpenRequest(fact, self.last_seq)
        session = self.sessions.get(question.session)
        if session is not None:
            session.pending[question.request_id] = call_text(question.call.tool, question.call.arguments)
            self._touch(session)
        self._note_requests()

    def _on_waiting(self, text: str) -> None:
        fact = read_fact(text)
        request = self.requests.get(fact.request_id)
        if request is not None:
            request.waits_at = fact.session
            self._note_requests()

    def _on_decided(self, text: str) -> None:
        (request_id,) = read_first_members("approval_decided", text)
        request = self.requests.pop(request_id, None)
        if request is None:
            return
        session = self.sessions.get(request.asked.question.session)
        if session is not None:
            session.pending.pop(request_id, None)
            self._touch(session)
        self._note_requests()

    def _call_waits(self, text: str) -> None:
        question = read_question(read_fact(text).call) if '"asked":' in text else None
        if question is None:
            return
        self.questions[question.question_id] = question
        session = self.sessions.get(question.session_id)
        if session is not None:
            session.questions[question.question_id] = call_text("asks", question.items[0].question)
        self._note_questions(session)

    def _call_over(self, text: str) -> None:
        (question_id,) = read_first_members("client_call_ended", text)
        question = self.questions.pop(question_id, None)
        if question is None:
            return
        session = self.sessions.get(question.session_id)
        if session is not None:
            session.questions.pop(question_id, None)
        self._note_questions(session)

    def _note_questions(self, session: SessionPanel | None) -> None:
        if session is not None:
            self._touch(session)
        self.revision += 1
        self.questions_revision = self.revision

    def _on_canvas_changed(self, text: str) -> None:
        fact = read_fact(text)
        panel = self.canvases.pop(fact.session, None) or CanvasPanel()
        panel.state = change_state(panel.state, fact.action, fact.content)
        self.canvases[fact.session] = panel
        while len(self.canvases) > MAX_CANVASES_KEPT:
            del self.canvases[next(iter(self.canvases))]
        self._note_canvases()

    def note_page(self, session: str) -> None:
        """Note that the file of the page on a session's canvas has changed."""
        self.canvases[session].page_number += 1
        self._note_canvases()

    def _note_canvases(self) -> None:
        self.revision += 1
        self.canvases_revision = self.revision

    def _note_requests(self) -> None:
        self.revision += 1
        self.requests_revision = self.revision


def _turn_started(session: SessionPanel, text: str) -> None:
    _begin_turn(session, *read_first_members("turn_started", text))


def _may_start_turn(session: SessionPanel, text: str) -> None:
    turn = turn_in(text)
    if turn is not None:
        _begin_turn(session, turn)


def _begin_turn(session: SessionPanel, turn: int) -> None:
    session.turns = turn
    session.on_replied("")
    session.is_asking = True


def _on_compaction_begun(session: SessionPanel, text: str) -> None:
    (session.turns,) = read_first_members("compaction_begun", text)
    session.is_asking = True


def _end_asking(session: SessionPanel, text: str) -> None:
    session.is_asking = False


def _turn_failed(session: SessionPanel, text: str) -> None:
    session.is_asking = False
    session.failures += 1
    session.failed_turn = text


def _call_asked(session: SessionPanel, text: str) -> None:
    session.asked[read_fact(text).key] = text


def _call_parked(session: SessionPanel, text: str) -> None:
    session.settled.update(read_first_members("call_parked", text))


def _on_program_started(session: SessionPanel, text: str) -> None:
    panel = make_panel(read_fact(text))
    session.programs[panel.key] = panel


def _take_program_fact(session: SessionPanel, text: str) -> None:
    """Take in a fact of a program's call; other facts of these kinds change nothing here."""
    if not session.programs:
        return
    fact = read_fact(text)
    for key in list_keys(fact):
        if key in session.programs:
            session.programs[key].take(fact, session.seq)


def _call_resolved(session: SessionPanel, text: str) -> None:
    key, _, call_id = read_first_members("call_resolved", text)
    if is_of_program(key):
        _take_program_fact(session, text)
    session.programs.pop(key, None)
    session.settled.add(key)
    session.asked.pop(key, None)
    session.call_over(call_id)
    session.result = text
    session.failures += FAILED_CALL.search(text) is not None
    _may_start_turn(session, text)


def _mark_stopping(session: SessionPanel, text: str) -> None:
    session.is_asking = False
    session.is_stopping = True


_OF_SESSION: Mapping[str, Callable[[SessionPanel, str], Any]] = {
    "opened": _may_start_turn,
    "message_received": _may_start_turn,
    "turn_started": _turn_started,
    "turn_replied": SessionPanel.on_replied,
    "turn_failed": _turn_failed,
    "compaction_begun": _on_compaction_begun,
    "context_compacted": _end_asking,
    "compaction_failed": _end_asking,
    "call_opened": _call_asked,
    "call_parked": _call_parked,
    "call_resolved": _call_resolved,
    "program_started": _on_program_started,
    "program_advanced": _take_program_fact,
    "approval_wanted": _take_program_fact,
    "approval_settled": _take_program_fact,
    "call_delegated": _take_program_fact,
    "child_awaited": _take_program_fact,
    "stopping": _mark_stopping,
}
