"""Semantic edges: which model request of a tree caused, ended or fed which other one.

An edge leads from the request whose reply was the cause to the request that it reached::

    parent's request        --subagent_call-->       first request of the child
    last request of a child --subagent_return-->     parent's request that reads the report
    parent's request        --subagent_cancel-->     last request of the child that it stopped
    last request before     --compaction_attempt-->  request for a summary
    request for a summary   --compaction-->          first request that reads the summary

Both ends are requests that were answered. What no model caused has no edge: a child that the program started,
a time to live that is over, a budget that is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sessiontree.api.trajectories.open_calls import OpenCalls
from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.request_names import parse_turn, request_name
from sessiontree.journal.record import JournalRecord
from sessiontree.session.calls import OUTCOME, UNAWAITED

EdgeType: TypeAlias = Literal[
    "subagent_call", "subagent_return", "subagent_cancel", "compaction_attempt", "compaction"
]
STOPS_CHILDREN: Final = "subagents"
"""The tool by which a session stops sessions below it."""


class SemanticEdge(NamedTuple):
    """One edge, by the names of its requests."""

    source_request_id: str
    target_request_id: str
    type: EdgeType


_Cause: TypeAlias = tuple[str, EdgeType]
"""Name of a request, and how it leads to the next one."""


@dataclass(slots=True)
class _LinkedSession:
    """What is known of a session."""

    parent: str
    started_by: str | None
    """Key of the call of its parent that started it."""
    causes: list[_Cause] = field(default_factory=list)
    """What leads to its next request that is answered."""
    last: str = ""
    """Name of its last answered request for a turn."""
    inbox: list[list[str]] = field(default_factory=list)
    """By waiting message, the children whose reports it brings."""
    reports: dict[str, list[str]] = field(default_factory=dict)
    """By key of a program, the children that have reported to it."""
    stopped: tuple[str, str] | None = None
    """The request whose reply stopped it, and the status that it was to end with."""
    parked: set[str] = field(default_factory=set)
    """Keys of programs whose outcome comes as a message, because the model did not wait."""


class SemanticEdges:
    """Finds the edges of one tree.

    Args:
        calls: Follows the tree's calls; give each fact to it first.
    """

    def __init__(self, calls: OpenCalls) -> None:
        self._calls = calls
        self._sessions: dict[str, _LinkedSession] = {}
        self._ended = ""
        """The session that has ended last."""
        self._reports: dict[tuple[str, str], str] = {}
        """By parent and message id, the child that reported."""

    def add(self, record: JournalRecord, fact: Any) -> Iterator[SemanticEdge]:
        """Take the next fact of the tree in; yield the edges that are known by it."""
        if record.session:
            known = self._sessions.get(record.session)
            if known is not None:
                yield from self._link_session(record.session, known, fact)
            return
        match fact:
            case tree_facts.SessionSpawned(spec=spec):
                self._on_spawned(spec)
            case tree_facts.SessionEnded(session=session, status=status):
                self._ended = session
                yield from self._link_stopped(session, status)
            case tree_facts.Posted(session=parent, stimulus=Incoming(origin="child") as report):
                if self._ended and self._find_parent(self._ended) == parent:
                    self._reports[parent, report.message_id] = self._ended
            case tree_facts.CancelBegun(sessions=sessions, reason=reason, status=status) if sessions:
                source = self._find_canceller(record, sessions[0], reason)
                for each in sessions:
                    if source is not None and (stopped := self._sessions.get(each)) is not None:
                        stopped.stopped = stopped.stopped or (source, status)

    def _find_parent(self, session: str) -> str:
        known = self._sessions.get(session)
        return "" if known is None else known.parent

    def _on_spawned(self, spec: SessionSpec) -> None:
        parent = spec.parent or ""
        key = self._calls.find_starter(parent, spec.key)
        made = self._sessions[spec.session_id] = _LinkedSession(parent, key)
        if (source := _find_asker(parent, key)) is not None:
            made.causes.append((source, "subagent_call"))

    def _link_stopped(self, name: str, status: str) -> Iterator[SemanticEdge]:
        """Yield the edge to a session that a reply stopped.

        It is known at the end alone: an answer that was on its way when the session was stopped is journaled
        after that.
        """
        known = self._sessions.get(name)
        if known is None or known.stopped is None:
            return
        source, intended = known.stopped
        if status == intended and known.last not in {"", source}:
            yield SemanticEdge(source, known.last, "subagent_cancel")

    def _find_canceller(self, record: JournalRecord, head: str, reason: str) -> str | None:
        """Return the request whose reply stopped a session; None = no reply did."""
        known = self._sessions.get(head)
        if known is None:
            return None
        if reason == UNAWAITED:
            return _find_asker(known.parent, known.started_by)
        above = known.parent if record.cause == f"stop:{head}" else ""
        while above:
            key = self._calls.find_tool_key(above, STOPS_CHILDREN)
            if key is not None:
                return _find_asker(above, key)
            above = self._find_parent(above)
        return None

    def _link_session(self, name: str, known: _LinkedSession, fact: Any) -> Iterator[SemanticEdge]:
        match fact:
            case session_facts.TurnReplied(turn=turn):
                known.last = request_name(name, turn)
                yield from _make_edges(known.last, known.causes)
                known.causes = []
            case session_facts.ContextCompacted(turn=turn):
                summary = request_name(name, turn)
                yield from _attempt(known, summary)
                known.causes = [each for each in known.causes if each[1] != "compaction"]
                known.causes.append((summary, "compaction"))
            case session_facts.CompactionFailed(turn=turn, usage=usage) if usage is not None:
                yield from _attempt(known, request_name(name, turn))
            case _:
                self._hear(name, known, fact)

    def _hear(self, name: str, known: _LinkedSession, fact: Any) -> None:
        """Follow the reports of children until a request reads them."""
        match fact:
            case session_facts.MessageReceived(message_id=message_id):
                known.inbox.append(self._find_reporters(name, known, message_id))
            case session_facts.TurnStarted(took=took):
                for children in known.inbox[:took]:
                    self._return(known, children)
                del known.inbox[:took]
            case session_facts.ChildReported(key=key, message_id=message_id):
                child = self._reports.pop((name, message_id), "")
                known.reports.setdefault(key.partition("/")[0], []).append(child)
            case session_facts.CallParked(key=key):
                known.parked.add(key)
            case session_facts.CallResolved(key=key) if key not in known.parked:
                self._return(known, known.reports.pop(key, ()))

    def _find_reporters(self, name: str, known: _LinkedSession, message_id: str) -> list[str]:
        """Return the children whose reports a message brings, by itself or as the outcome of a program."""
        key = message_id.removesuffix(OUTCOME)
        if key in known.parked:
            known.parked.remove(key)
            return known.reports.pop(key, [])
        child = self._reports.pop((name, message_id), "")
        return [child] if child else []

    def _return(self, parent: _LinkedSession, children: Iterable[str]) -> None:
        for child in children:
            known = self._sessions.get(child)
            if known is not None and known.last:
                parent.causes.append((known.last, "subagent_return"))


def edges_of(config: TreeConfig, records: Iterable[JournalRecord]) -> Iterator[SemanticEdge]:
    """Yield the edges of a tree's facts, in the order in which they came to be known.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    calls = OpenCalls(config)
    edges = SemanticEdges(calls)
    for record in records:
        for fact in record.facts:
            calls.add(record, fact)
            yield from edges.add(record, fact)


def _find_asker(session: str, key: str | None) -> str | None:
    """Return the request whose reply asked for a call; None = no reply did."""
    turn = None if key is None else parse_turn(key)
    return None if turn is None else request_name(session, turn)


def _attempt(known: _LinkedSession, summary: str) -> Iterator[SemanticEdge]:
    if known.last:
        yield SemanticEdge(known.last, summary, "compaction_attempt")


def _make_edges(target: str, causes: Iterable[_Cause]) -> Iterator[SemanticEdge]:
    for source, kind in dict.fromkeys(causes):
        yield SemanticEdge(source, target, kind)
