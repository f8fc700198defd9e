"""Books of whom one session acts for, kept from facts alone.

ASKER: a turn acts for everybody whose words it answers, heard now or since the final message, and for nobody
else but whom its parent acted for; its calls are made for them, and what comes of one later is heard for
them again.
"""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.facts.session_facts import (
    ActsFor,
    Interrupted,
    MessageReceived,
    RunFinished,
    SessionFact,
    TurnReplied,
    TurnStarted,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.session.instructions import PrepareCall
from tests.unit.session.judge_oracle import Judge


class AskerBooks:
    """Who spoke, and for whom the calls are."""

    def __init__(self, judge: Judge, spec: SessionSpec) -> None:
        """Know of those its parent acted for."""
        self.judge = judge
        self.own = spec.asked_by
        self.waiting: list[MessageReceived] = []
        self.unanswered: set[str] = set()
        self.due: set[Principal] = set()
        """Everybody whose words were taken since the last answer."""
        self.acting: tuple[Principal, ...] = ()
        self.calls: dict[str, tuple[Principal, ...]] = {}

    def book(self, fact: SessionFact) -> None:
        """Book one fact."""
        if isinstance(fact, MessageReceived):
            self._hear(fact)
        elif isinstance(fact, ActsFor):
            self.judge.require(len(set(fact.askers)) == len(fact.askers), "ASKER", f"{fact} names one twice")
            self.acting = fact.askers
        elif isinstance(fact, TurnStarted):
            self._start(fact)
        elif isinstance(fact, TurnReplied):
            for index in range(len(fact.message.tool_calls)):
                self.calls[f"{fact.turn}.{index}"] = self.acting
        elif isinstance(fact, Interrupted):
            self.waiting = [replace(heard, wakes=False) for heard in self.waiting]
        elif isinstance(fact, RunFinished):
            self.unanswered.difference_update(fact.answers)

    def _hear(self, heard: MessageReceived) -> None:
        self.waiting.append(heard)
        key = heard.message_id.removesuffix(":outcome")
        if key != heard.message_id:
            right = heard.asked_by == self.calls.get(key, ())
            self.judge.require(right, "ASKER", f"what comes of {key} is heard for {heard.asked_by}")

    def _start(self, started: TurnStarted) -> None:
        taken, self.waiting = self.waiting[: started.took], self.waiting[started.took :]
        if not self.unanswered:
            self.due = set(self.own)
        self.due.update(asker for heard in taken for asker in heard.asked_by)
        self.unanswered.update(heard.message_id for heard in taken if heard.wakes)
        right = set(self.acting) == self.due
        self.judge.require(
            right, "ASKER", f"turn {started.turn} acts for {self.acting} and answers {self.due}"
        )

    def prepared(self, instruction: PrepareCall) -> None:
        """Judge a call that is to be checked."""
        right = instruction.asked_by == self.calls.get(instruction.key, ())
        self.judge.require(right, "ASKER", f"{instruction.key} is made for {instruction.asked_by}")
