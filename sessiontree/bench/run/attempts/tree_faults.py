"""What kept a tree from its aim, as its facts have it: losses, a missing price, its budget, silence.

Facts come from the runtime alone. What a solver raised or caught, and what a model or a tool wrote, decides
nothing here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from sessiontree import JournalRecord, SessionFailed, SessionStatus
from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.results.recorded_run import parse_fact_kind
from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.contracts.values.quick_dataclass import dataclass

_MAIN: Final = "main"
_BUDGET: Final = "budget."
_READ: Final = frozenset(
    {"turn_failed", "budget_spent", "session_ended", "call_resolved", "turn_replied", "run_finished"}
)
_NOT_RUN: Final = (ConfinementUnavailable.code,)
_NEEDED: Final = {
    "call_resolved": ('"unknown"', *(f'"{code}"' for code in _NOT_RUN)),
    "turn_replied": ('"finished":{',),
}
"""What the text of a call's result has that was lost with its process or could not be confined, and that of a
reply that ends a run; others may have it too."""


@dataclass(slots=True)
class TreeFaults:
    """The first fault of each kind in a tree."""

    lost: SessionFailed | None = None
    """A session whose provider failed after all attempts or refused the key, whose hosts were lost, which
    lost the result of a call with its process, or whose commands could not be confined."""
    lost_by: FailureKind | None = None
    """What that was."""
    unpriced: SessionFailed | None = None
    """A session whose budget in US dollars needs a price that is not known."""
    spent: str = ""
    """The member of the whole tree's budget that is used up; empty = none is."""
    is_stopped: bool = False
    """Whether the last run of Main stopped short by its model's own doing: it refused, its reply was cut off,
    went round in circles or never fitted its schema."""
    is_silent: bool = False
    """Whether the last run of Main, or of the tree if Main had none, ended with an empty reply."""


def find_faults(records: Iterable[JournalRecord]) -> TreeFaults:
    """Return what a tree's facts say of its faults."""
    found, failures, has_run, has_failed = TreeFaults(), Counter[tuple[str, int]](), False, False
    for record in records:
        kind = parse_fact_kind(record.text)
        # Searched as text first: most facts of a tree are irrelevant here, and parsing them takes most of the
        # time.
        if kind not in _READ or not any(each in record.text for each in _NEEDED.get(kind, ("",))):
            continue
        fact = record.to_json()
        if kind == "turn_failed":
            failures[record.session, fact["turn"]] += 1
            has_failed = has_failed or record.session == _MAIN
            if fact.get("retry_at_ms") is None:
                _note_turn(found, record.session, fact, failures[record.session, fact["turn"]])
        elif kind == "budget_spent":
            _note_spent(found, fact["account"], fact["limit"])
        elif kind in {"turn_replied", "run_finished"}:
            ending = fact if kind == "run_finished" else fact.get("finished")
            if ending and (record.session == _MAIN or not has_run):
                has_run = record.session == _MAIN
                found.is_silent = ending.get("is_empty", False)
                is_short = ending.get("error") is not None and not ending.get("interrupted")
                found.is_stopped = has_run and is_short and not has_failed
                has_failed = False
        elif kind == "call_resolved":
            _note_call(found, record.session, fact)
        else:
            _note_end(found, fact)
    return found


def _note_turn(found: TreeFaults, session: str, fact: dict[str, Any], attempts: int) -> None:
    cause = fact.get("cause", "")
    tried = f" ({attempts} attempts)" if attempts > 1 else ""
    error = SessionFailed(session, f"the model failed{tried}: {fact['reason']}")
    if cause == "provider":
        _note_loss(found, error, FailureKind.PROVIDER)
    elif cause == "price":
        found.unpriced = found.unpriced or error
    elif cause.startswith(_BUDGET):
        _note_spent(found, fact["account"], cause)


def _note_call(found: TreeFaults, session: str, fact: dict[str, Any]) -> None:
    details, name = fact["message"].get("details"), fact["message"]["toolName"]
    if fact["outcome"] == "unknown":
        lost = f"the process that ran its call of {name!r} was lost, so the model did not see the result"
        _note_loss(found, SessionFailed(session, lost), FailureKind.HOST)
    elif isinstance(details, dict) and details.get("code") in _NOT_RUN:
        lost = f"its call of {name!r} has no result: {_join_text(fact['message'])}"
        _note_loss(found, SessionFailed(session, lost), FailureKind.CONFINEMENT)


def _note_spent(found: TreeFaults, account: str, limit: str) -> None:
    if account == _MAIN:
        found.spent = found.spent or limit.removeprefix(_BUDGET)


def _note_end(found: TreeFaults, fact: dict[str, Any]) -> None:
    """Note a session that the runtime itself ended because nothing could run it any more."""
    name, result = fact["session"], fact["result"]
    crashed = f"session {name!r} crashed: "
    is_failed = fact["forced"] and fact["status"] == SessionStatus.FAILED.value
    if is_failed and result["summary"].startswith(crashed):
        _note_loss(found, SessionFailed(name, result["summary"], "crashed"), FailureKind.HOST)


def _note_loss(found: TreeFaults, error: SessionFailed, kind: FailureKind) -> None:
    # The first loss is kept, because later ones often follow from it.
    if found.lost is None:
        found.lost, found.lost_by = error, kind


def _join_text(message: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in message["content"] if block["type"] == "text")


def find_last_words(records: Iterable[JournalRecord]) -> str | None:
    """Return the last text that the model of Main replied; None = it said nothing."""
    said: str | None = None
    for record in records:
        if record.session == _MAIN and parse_fact_kind(record.text) == "turn_replied":
            said = _join_text(record.to_json()["message"]) or said
    return said
