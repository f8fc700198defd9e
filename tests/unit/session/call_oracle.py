"""Books of one session's tool calls, kept from facts alone.

P33: every call gets exactly one result. S14: a request is decided once. S16, S43: approval, then intent, then
effect. HELD: a call from outside changes nothing while a turn is open. NOTICE: what was pending is reported
later.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessiontree.contracts.facts.session_facts import (
    ApprovalSettled,
    ApprovalWanted,
    CallHeld,
    CallIntended,
    CallOpened,
    CallParked,
    CallResolved,
    Interrupted,
    MessageReceived,
    SessionFact,
    TurnReplied,
)
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.contracts.values.messages import ToolCall, ToolResultMessage
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.session_fixtures import TOOLS, digest, fits


@dataclass(slots=True)
class CallBook:
    """What happened to one call."""

    key: str
    asked: ToolCall
    outside: bool
    is_held: bool = False
    wanted: ApprovalWanted | None = None
    decision: str | None = None
    intended: CallIntended | None = None
    parked: ToolResultMessage | None = None
    resolved: CallResolved | None = None
    cut: bool = False
    """Whether its session was interrupted before it had a result."""

    @property
    def needs_approval(self) -> bool:
        """Whether a person is asked before it runs."""
        return TOOLS[self.asked.name].needs_approval

    @property
    def is_asking(self) -> bool:
        """Whether it only waits for an approval."""
        if self.intended is not None:
            return False  # its intent came with the approval, and the answer itself was lost
        return self.wanted is not None and self.decision is None and self.resolved is None

    @property
    def is_approved(self) -> bool:
        """Whether it was allowed and only waits for the end of a turn."""
        return self.outside and self.decision == "approved" and self.intended is None

    @property
    def shown(self) -> ToolResultMessage | None:
        """Its one result in the transcript."""
        if self.parked is not None or self.resolved is None:
            return self.parked
        return self.resolved.message


def key_of(
    fact: CallHeld | ApprovalWanted | ApprovalSettled | CallIntended | CallParked | CallResolved,
) -> str:
    """Return the key of the call that a fact is about."""
    return fact.call.key if isinstance(fact, ApprovalWanted | CallIntended) else fact.key


class CallBooks:
    """Books of all calls, in the order they were asked."""

    def __init__(self, judge: Judge) -> None:
        """Know of no call."""
        self.judge = judge
        self.calls: dict[str, CallBook] = {}
        self.untold: dict[str, CallBook] = {}
        """Id of the notice that is still missing to the call it must cite."""
        self.artifacts: list[Artifact] = []

    def unresolved(self) -> list[CallBook]:
        """Return the calls without a final result."""
        return [call for call in self.calls.values() if call.resolved is None]

    def book(self, fact: SessionFact, *, in_turn: bool) -> None:
        """Book one fact."""
        if isinstance(fact, TurnReplied):
            for index, asked in enumerate(fact.message.tool_calls):
                key = f"{fact.turn}.{index}"
                self.calls[key] = CallBook(key, asked, outside=False)
        elif isinstance(fact, CallOpened):
            self.judge.require(fact.key not in self.calls, "S46", f"{fact.key} is opened twice")
            asked = ToolCall(fact.call_id, fact.tool, fact.arguments)
            self.calls[fact.key] = CallBook(fact.key, asked, outside=True)
        elif isinstance(fact, MessageReceived):
            cited = self.untold.pop(fact.message_id, None)
            if cited is not None:
                told = fact.wakes is not cited.cut and f" {cited.asked.id} " in fact.message.text
                self.judge.require(told, "NOTICE", f"{fact.message_id} does not tell of {cited.key}")
        elif isinstance(fact, Interrupted):
            for each in self.unresolved():
                each.cut = True
        elif isinstance(
            fact, CallHeld | ApprovalWanted | ApprovalSettled | CallIntended | CallParked | CallResolved
        ):
            key = key_of(fact)
            call = self.calls.get(key)
            known = call is not None and call.resolved is None
            self.judge.require(known, "P33", f"{type(fact).__name__} for {key}, which is not open")
            if call is not None:
                self._book_call(call, fact, in_turn=in_turn)

    def _book_call(
        self,
        call: CallBook,
        fact: CallHeld | ApprovalWanted | ApprovalSettled | CallIntended | CallParked | CallResolved,
        *,
        in_turn: bool,
    ) -> None:
        if isinstance(fact, CallHeld):
            self.judge.require(
                call.outside and fact.held is not call.is_held, "HELD", f"{call.key} held wrongly"
            )
            call.is_held = fact.held
        elif isinstance(fact, ApprovalWanted):
            fresh = call.wanted is None and fits(call.asked) and call.needs_approval
            self.judge.require(
                fresh and fact.call.digest == digest(call.asked), "S14", f"{call.key} wants another approval"
            )
            call.wanted = fact
        elif isinstance(fact, ApprovalSettled):
            wanted = call.wanted is not None and call.wanted.request_id == fact.request_id
            self.judge.require(wanted and call.decision is None, "S14", f"{call.key} is decided twice")
            call.decision = fact.decision
        elif isinstance(fact, CallIntended):
            self._intend(call, fact, in_turn=in_turn)
        elif isinstance(fact, CallParked):
            self.judge.require(
                call.is_asking and not call.outside and call.parked is None,
                "P33",
                f"{call.key} parked wrongly",
            )
            call.parked = fact.message
        else:
            self._resolve(call, fact)

    def _intend(self, call: CallBook, fact: CallIntended, *, in_turn: bool) -> None:
        once = call.intended is None and fits(call.asked)
        self.judge.require(once, "S42", f"{call.key} is intended twice, or though it does not fit")
        if fits(call.asked) and call.needs_approval:
            allowed = call.decision == "approved" and call.wanted is not None
            same = call.wanted is not None and call.wanted.call.digest == fact.call.digest
            self.judge.require(allowed and same, "S16", f"{call.key} is intended without its approval")
        self.judge.require(
            not (call.outside and in_turn), "HELD", f"{call.key} is to run though a turn is open"
        )
        call.intended = fact

    def _resolve(self, call: CallBook, fact: CallResolved) -> None:
        own = fact.message.tool_call_id == call.asked.id
        self.judge.require(own, "P33", f"{call.key} got the result of {fact.message.tool_call_id}")
        if fact.outcome == "pending":
            joined = [
                other
                for other in self.calls.values()
                if other is not call and other.is_asking and not other.outside and not call.outside
                if digest(other.asked) == digest(call.asked)
            ]
            self.judge.require(bool(joined), "NOTICE", f"{call.key} joins a call that does not wait")
        if call.parked is not None:
            self.untold[f"{call.key}:outcome"] = call
        self.artifacts += fact.artifacts
        call.resolved = fact
