"""Books of failed attempts at tools, kept from facts alone.

P21: at most three attempts per tool between valid calls and incoming messages, two where the same mistake is
made twice running, failures within one reply counting once. P24: then the tool is given up, and that is
reported exactly once. P26: a count survives everything facts survive.
"""

from __future__ import annotations

from sessiontree.contracts.facts.session_facts import (
    ApprovalWanted,
    ArgumentsRejected,
    CallIntended,
    CallResolved,
    SessionFact,
    ToolGivenUp,
    TurnStarted,
)
from sessiontree.contracts.kinds import PermissionTier
from tests.unit.session.call_oracle import CallBook, CallBooks, key_of
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.session_fixtures import TOOLS, digest, fits

NEVER_VALID = {"skipped", "denied", "unknown"}
"""Outcomes that do not say a ReadOnly call's arguments were found to fit."""


class RetryBooks:
    """Failures by tool since its last valid call or the last new message."""

    def __init__(self, judge: Judge, calls: CallBooks) -> None:
        """Know of no failure."""
        self.judge = judge
        self.calls = calls
        self.turn = 0
        self.failures: dict[str, list[tuple[int, str]]] = {}
        """Turn and digest of each failure."""
        self.given_up: set[str] = set()
        self.owed: list[str] = []
        """Tools that are to be given up before anything else happens."""

    def book(self, fact: SessionFact) -> None:
        """Book one fact, before the call books do."""
        if isinstance(fact, TurnStarted):
            self.turn = fact.turn
            if fact.fresh_run:
                self.failures.clear()
                self.given_up.clear()
        elif isinstance(fact, ArgumentsRejected):
            self._reject(fact)
        elif isinstance(fact, ToolGivenUp):
            self.judge.require(fact.tool in self.owed, "P24", f"{fact.tool} is given up for nothing")
            if fact.tool in self.owed:
                self.owed.remove(fact.tool)
            self.given_up.add(fact.tool)
        elif isinstance(fact, CallIntended | ApprovalWanted | CallResolved):
            call = self.calls.calls.get(key_of(fact))
            if call is not None and not call.outside and _is_first_proof(call, fact):
                self._prove(call.asked.name)

    def _prove(self, tool: str) -> None:
        if tool not in self.given_up:
            self.failures.pop(tool, None)

    def _reject(self, fact: ArgumentsRejected) -> None:
        call = self.calls.calls.get(fact.key)
        real = call is not None and not call.outside and not fits(call.asked)
        self.judge.require(real, "P21", f"an attempt is counted for {fact.key}")
        self.judge.require(
            fact.tool not in self.given_up, "P24", f"{fact.tool} was given up and is tried again"
        )
        before = self.failures.setdefault(fact.tool, [])
        same = bool(before) and before[-1][0] != self.turn and before[-1][1] == fact.digest
        before.append((self.turn, fact.digest))
        attempts = len({turn for turn, _ in before})
        self.judge.require(attempts <= 3, "P21", f"{attempts} attempts at {fact.tool}")
        self.judge.require(
            fact.attempt == attempts, "P26", f"attempt {attempts} at {fact.tool} counts as {fact.attempt}"
        )
        self.judge.require(
            fact.final == (same or attempts == 3), "P21", f"attempt {attempts} at {fact.tool}: {fact.final=}"
        )
        if fact.final:
            self.owed.append(fact.tool)


def _is_first_proof(call: CallBook, fact: CallIntended | ApprovalWanted | CallResolved) -> bool:
    """Whether a fact is the first to say that a call's arguments fit."""
    if not fits(call.asked) or call.wanted is not None or call.intended is not None:
        return False
    if not isinstance(fact, CallResolved):
        return fact.call.digest == digest(call.asked)
    if fact.outcome == "pending":
        return True
    is_reading = TOOLS[call.asked.name].tier is PermissionTier.READ_ONLY
    return is_reading and fact.outcome not in NEVER_VALID
