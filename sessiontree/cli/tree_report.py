"""Portrait: one tree as its journal tells it, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sessiontree.contracts.codec import from_wire
from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tree_config import TreeConfig
from sessiontree.contracts.tree_facts import ApprovalDecided, ApprovalRequested
from sessiontree.contracts.usage import Usage
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Verification
from sessiontree.runtime.replay import fact_of
from sessiontree.tree.evolve import evolve
from sessiontree.tree.receipt import receipt
from sessiontree.tree.state import Session, TreeState, initial_tree

SUMMARY_CHARS = 400
_MAIN = "main"


@dataclass(slots=True)
class ApprovalLine:
    """One approval request and what became of it."""

    asked: ApprovalRequested
    decided: ApprovalDecided | None = None

    @property
    def decision(self) -> str:
        """How it was decided, ``open`` where it is not."""
        return "open" if self.decided is None else self.decided.decision

    @property
    def by(self) -> str:
        """Who decided."""
        return "" if self.decided is None else self.decided.by


@dataclass(frozen=True, slots=True)
class Portrait:
    """A tree, as far as its journal can be read."""

    config: TreeConfig
    state: TreeState
    approvals: tuple[ApprovalLine, ...]
    """In the order they were asked."""
    last_seq: int
    """Number of the last good fact."""
    verdict: Verification

    def sessions(self) -> Iterator[Session]:
        """Yield all sessions in path order, parents before their children."""
        for line in receipt(self.state, _MAIN):
            yield self.state.sessions[line.session_id]

    @property
    def is_finished(self) -> bool:
        """Whether Main has ended."""
        return not self.state.sessions[_MAIN].is_live

    @property
    def usage(self) -> Usage:
        """What all sessions used."""
        return sum((session.usage for session in self.state.sessions.values()), Usage())

    def to_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        usage, verdict, config = self.usage, self.verdict, self.config
        damage = None
        if not verdict.ok:
            damage = {
                "last_good_seq": verdict.last_good_seq,
                "bad_segment": verdict.bad_segment,
                "reason": verdict.reason or "the index of sessions differs from the facts",
            }
        return {
            "tree": config.tree_id,
            "purpose": config.purpose,
            "workspace": config.workspace,
            "version": config.package_version,
            "model": config.model,
            "mode": config.mode,
            "created_at_ms": config.created_at_ms,
            "finished": self.is_finished,
            "last_seq": self.last_seq,
            "damage": damage,
            "sessions": [_session(session) for session in self.sessions()],
            "approvals": [_approval(line) for line in self.approvals],
            "totals": {
                "sessions": self.state.total,
                "live": self.state.live,
                "turns": usage.turns,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": usage.cost_usd,
                "tool_calls": usage.tool_calls,
                "approvals": len(self.approvals),
            },
        }


def portrait_of(journal: Journal, tree_id: str) -> Portrait:
    """Return a tree as far as it is good.

    Raises:
        TreeNotFound, JournalCorrupt, JournalTooNew: nothing of it can be shown.
    """
    config: TreeConfig = from_wire(dict(journal.row0(tree_id)))
    state = initial_tree()
    approvals: dict[str, ApprovalLine] = {}
    for record in journal.read_session(tree_id, ""):
        fact = fact_of(record.text)
        evolve(state, fact)
        if isinstance(fact, ApprovalRequested):
            approvals[fact.request_id] = ApprovalLine(fact)
        elif isinstance(fact, ApprovalDecided):
            approvals[fact.request_id].decided = fact
    if _MAIN not in state.sessions:
        raise JournalCorrupt(tree_id, "its first facts are missing or damaged: there is no tree to show")
    # facts another process commits meanwhile may be counted here and not yet shown above
    last_seq = journal.last_seq(tree_id)
    return Portrait(config, state, tuple(approvals.values()), last_seq, journal.verify(tree_id))


def shortened(summary: str) -> str:
    """Return a session's last words, cut to ``SUMMARY_CHARS`` characters."""
    return summary if len(summary) <= SUMMARY_CHARS else f"{summary[: SUMMARY_CHARS - 1]}…"


def _session(session: Session) -> dict[str, Any]:
    spec, usage = session.spec, session.usage
    return {
        "session": spec.session_id,
        "kind": spec.kind,
        "status": session.status,
        "label": spec.label,
        "parent": spec.parent,
        "depth": spec.depth,
        "agent": spec.agent,
        "system_tier": spec.system_tier,
        "exec_security": spec.commands,
        "turns": usage.turns,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "tool_calls": usage.tool_calls,
        "started_at_ms": session.spawned_at_ms,
        "ended_at_ms": session.ended_at_ms,
        "summary": "" if session.result is None else shortened(session.result.summary),
    }


def _approval(line: ApprovalLine) -> dict[str, Any]:
    asked, decided = line.asked, line.decided
    return {
        "request_id": asked.request_id,
        "session": asked.session,
        "tool": asked.tool,
        "arguments": dict(asked.arguments),
        "tier": PermissionTier(asked.tier).label,
        "asked_by": [asdict(asker) for asker in asked.asked_by],
        "asked_at_ms": asked.at_ms,
        "decision": line.decision,
        "by": line.by,
        "reason": "" if decided is None else decided.reason,
    }
