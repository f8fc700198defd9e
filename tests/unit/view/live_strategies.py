"""Facts of a tree as a journal holds them: in any order chance brings them, and short ways to make some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from sessiontree.contracts.facts import tree_facts as facts
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.facts.tree_facts import TreeFact
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalQuestion, CheckedCall
from sessiontree.contracts.recorded.codec import pack
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.messages import Usage
from sessiontree.journal.record import JournalRecord
from sessiontree.testing.strategies import json_objects, texts

GHOST = "main/b99"
"""A session that never was."""
FINAL = [status for status in SessionStatus if status.is_final]


def record(seq: int, fact: object, session: str = "", at_ms: int = 0) -> JournalRecord:
    """Return a fact as the journal gives it."""
    return JournalRecord(seq, session, "cause", at_ms, pack(fact))


def records(given: Iterable[object], session: str = "") -> list[JournalRecord]:
    """Return facts as the journal gives them."""
    return [record(seq, fact, session) for seq, fact in enumerate(given, 1)]


def spawned(session: str, parent: str | None = None, label: str | None = None) -> facts.SessionSpawned:
    """Return the fact that a session exists; the last letter of its path tells its kind."""
    kinds = {"b": SessionKind.BRANCH, "w": SessionKind.WORKER}
    kind = kinds.get(session.rpartition("/")[2][:1], SessionKind.MAIN)
    spec = SessionSpec(
        session_id=session,
        kind=kind,
        parent=parent,
        depth=session.count("/"),
        agent="default",
        task="a task",
        label=label,
        via="handle",
        tools=(),
        result_schema=None,
        rules=(),
        approver=None,
        owns_channel=False,
        budget=None,
        key=None,
    )
    return facts.SessionSpawned(spec, "main", 1)


def ended(session: str, status: SessionStatus = SessionStatus.COMPLETED) -> facts.SessionEnded:
    """Return the fact that a session ended."""
    return facts.SessionEnded(session, status, SessionResult(status, "over"), 0, forced=False)


def charged(session: str, tokens: int, cost_usd: float, unpriced: int = 0) -> facts.UsageCharged:
    """Return the fact that a session used so many tokens."""
    return facts.UsageCharged(
        session, "main", Usage(input_tokens=tokens, cost_usd=cost_usd, unpriced_tokens=unpriced)
    )


def requested(request_id: str, session: str, **arguments: Any) -> facts.ApprovalRequested:
    """Return the fact that a session wants to call a tool."""
    call = CheckedCall("1.0", "deploy", arguments, "digest", 3, repeatable=False)
    return facts.ApprovalRequested(ApprovalQuestion(request_id, session, call), 10**6)


@st.composite
def tree_facts(draw: st.DrawFn, most: int = 40) -> list[TreeFact]:
    """Return facts of one tree: paths and request ids are given once, all else is any order."""
    given: list[TreeFact] = [spawned("main", None, draw(st.none() | texts))]
    names = ["main"]
    asked: list[str] = []
    for number in range(draw(st.integers(0, most))):
        session = draw(st.sampled_from([*names, *names, GHOST]))
        request = draw(st.sampled_from([*asked, "r-ghost"]))
        fact = draw(_steps(session, request, number))
        if isinstance(fact, facts.SessionSpawned):
            names.append(fact.spec.session_id)
        elif isinstance(fact, facts.ApprovalRequested):
            asked.append(fact.question.request_id)
        given.append(fact)
    return given


def _steps(session: str, request: str, number: int) -> SearchStrategy[Any]:
    result: SessionResult[Any] = SessionResult(SessionStatus.COMPLETED, "so far")
    labels = st.none() | texts
    child = st.builds(
        lambda kind, label: spawned(f"{session}/{kind}{number}", session, label),
        st.sampled_from("bw"),
        labels,
    )
    return st.one_of(
        child,
        child,
        st.sampled_from(FINAL).map(lambda status: ended(session, status)),
        st.just(facts.SessionReactivated(session)),
        st.just(facts.ResultHeld(session, result)),
        json_objects.map(lambda arguments: requested(f"r{number}", session, given=arguments)),
        st.sampled_from(["approved", "denied", "expired", "cancelled"]).map(
            lambda decision: facts.ApprovalDecided(request, decision, "ada", "")
        ),
        st.just(facts.CancelBegun((session,), "enough", SessionStatus.CANCELLED, 0)),
        st.just(facts.ToolAlwaysAllowed("deploy")),
        st.builds(
            lambda tokens, cost_usd, unpriced: charged(session, tokens, cost_usd, unpriced),
            st.integers(0, 10**9),
            st.floats(0, 10**6),
            st.integers(0, 10**9),
        ),
    )
