"""Semantic edges between the model requests of a tree, as trainers read them from an agent's answers."""

from __future__ import annotations

from typing import Any, Final

from sessiontree.api.trajectories.open_calls import OpenCalls
from sessiontree.api.trajectories.semantic_edges import SemanticEdge, SemanticEdges
from sessiontree.contracts.facts.session_facts import CompactionFailed, ContextCompacted, TurnReplied
from sessiontree.contracts.facts.tree_facts import TreeCreated
from sessiontree.contracts.values.request_names import EDGES_KEY, request_name
from sessiontree.journal.record import JournalRecord

_ANSWERED: Final = (TurnReplied, ContextCompacted, CompactionFailed)


class RequestEdges:
    """Collects the edges of requests that were made since a session was opened; each is given away once.

    Whoever reads them has recorded those requests alone.
    """

    def __init__(self) -> None:
        self._calls: OpenCalls | None = None
        self._edges: SemanticEdges | None = None
        self._made: set[str] = set()
        self._waiting: list[SemanticEdge] = []

    def add(self, record: JournalRecord, *, is_past: bool) -> None:
        """Take the next fact of the tree in; ``is_past`` = it is from before the session was opened."""
        for fact in record.facts:
            if isinstance(fact, TreeCreated):
                self._calls = OpenCalls(fact.config)
                self._edges = SemanticEdges(self._calls)
            if self._calls is None or self._edges is None:
                continue
            if not is_past and isinstance(fact, _ANSWERED):
                self._made.add(request_name(record.session, fact.turn))
            self._calls.add(record, fact)
            for edge in self._edges.add(record, fact):
                if edge.source_request_id in self._made and edge.target_request_id in self._made:
                    self._waiting.append(edge)

    def take(self) -> dict[str, Any] | None:
        """Return the metadata of an answer with the edges that are new; None = nothing is new."""
        if not self._waiting:
            return None
        edges = [edge._asdict() for edge in self._waiting]
        self._waiting = []
        return {EDGES_KEY: {"edges": edges}}
