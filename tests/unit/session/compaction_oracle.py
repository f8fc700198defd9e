"""COMPACT: what a summary may replace, judged from the conversation before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sessiontree.contracts.facts.session_facts import (
    CompactionBegun,
    CompactionFailed,
    ContextCompacted,
    Interrupted,
    MessagesShortened,
    ModelChanged,
    Opened,
    RunFinished,
    SessionFact,
    Stopping,
    TurnReplied,
    TurnStarted,
)
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    measure_text,
)
from sessiontree.session.cut_messages import shorten_messages
from tests.unit.session.call_oracle import CallBooks
from tests.unit.session.judge_oracle import Judge

MOST_IN_A_ROW = 4


def chars(messages: Sequence[Message]) -> int:
    """Return how much text there is."""
    return sum(len(message.text) for message in messages)


def unpaired(messages: Sequence[Message]) -> list[str]:
    """Return the ids of calls and results that do not stand together, in the order of the calls."""
    wrong: list[str] = []
    owed: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            if owed[:1] == [message.tool_call_id]:
                del owed[0]
            else:
                wrong.append(message.tool_call_id)
            continue
        wrong += owed
        owed = []
        if isinstance(message, AssistantMessage):
            owed = [call.id for call in message.tool_calls]
    return wrong + owed


def is_subsequence(few: Sequence[Message], many: Sequence[Message]) -> bool:
    """Whether all of the few are among the many, in the same order."""
    rest = iter(many)
    return all(any(each is one or each == one for each in rest) for one in few)


def unseen(messages: Sequence[Message]) -> int:
    """Return how many of the newest messages the model has not replied to, its last reply included."""
    count = 0
    for message in reversed(messages):
        count += 1
        if isinstance(message, AssistantMessage):
            break
    return count


class CompactionBooks:
    """Compactions in a row, and what each replaced."""

    def __init__(self, judge: Judge, calls: CallBooks) -> None:
        """Know of none."""
        self.judge = judge
        self.calls = calls
        self.in_a_row = 0
        self.begun: CompactionBegun | None = None
        self.writer = ""
        """The compaction model, if there is one."""
        self.failed = False
        """Whether it failed since the last reply."""
        self.owed = False
        """Whether the session's model has to be asked before the next turn."""

    def book(self, fact: SessionFact) -> None:
        """Count one fact."""
        self._book_writer(fact)
        if isinstance(fact, TurnReplied | RunFinished):
            self.in_a_row = 0
        elif isinstance(fact, CompactionBegun):
            self.in_a_row += 1
            self.begun = fact
            few = self.in_a_row <= MOST_IN_A_ROW
            self.judge.require(few, "COMPACT", f"{self.in_a_row} compactions without a reply in one run")
        elif isinstance(fact, ContextCompacted | CompactionFailed):
            known = self.begun is not None and self.begun.turn == fact.turn
            self.judge.require(known, "COMPACT", f"{fact} ends no compaction")
            named = self.begun is None or self.begun.model == fact.model
            self.judge.require(named, "WRITER", f"{fact} names another model than {self.begun}")
            self.begun = None

    def _book_writer(self, fact: SessionFact) -> None:
        """Judge which model is asked: the compaction model first, the session's if that failed."""
        if isinstance(fact, Opened | ModelChanged):
            self.writer = fact.compaction_model
            if self.begun is not None and self.begun.model:
                self.begun = replace(self.begun, model=self.writer)
        elif isinstance(fact, CompactionBegun):
            right = fact.model == ("" if self.failed else self.writer)
            self.judge.require(right, "WRITER", f"{fact.model!r} is asked, failed: {self.failed}")
            self.owed = False
        elif isinstance(fact, CompactionFailed) and fact.model:
            self.failed = True
            self.owed = self.in_a_row < MOST_IN_A_ROW
        elif isinstance(fact, Interrupted | Stopping | RunFinished | TurnReplied):
            self.owed = False
            self.failed = self.failed and not isinstance(fact, RunFinished | TurnReplied)
        elif isinstance(fact, TurnStarted):
            self.judge.require(not self.owed, "WRITER", "the session's model was not asked for a summary")

    def after(self, before: list[Message], fact: ContextCompacted) -> list[Message]:
        """Return the conversation with the summary, after a judgment of it."""
        kept = [before[at] for at in fact.kept]
        after = [before[0], fact.summary, *kept, *before[fact.upto :]]
        rest = after[:1] + after[2:]
        require = self.judge.require
        require(not unpaired(after), "COMPACT", f"{unpaired(after)} stand alone")
        require(is_subsequence(rest, before), "COMPACT", "messages stand in another order")
        require(chars(after) < chars(before), "COMPACT", "the conversation grows")
        count = unseen(before)
        require(after[-count:] == before[-count:], "COMPACT", "unseen messages are replaced")
        people = [each for each in before if isinstance(each, UserMessage)]
        newest = [each for each in people if each.origin in {"user", "parent"}][-1:]
        require(all(each in rest for each in newest), "COMPACT", "a person's newest message is replaced")
        asked = [call for each in rest if isinstance(each, AssistantMessage) for call in each.tool_calls]
        waiting = [call for call in self.calls.unresolved() if call.parked is not None and not call.outside]
        lost = [call.key for call in waiting if call.asked not in asked]
        require(not lost, "COMPACT", f"{lost} wait, and their calls are replaced")
        return after

    def cut(self, before: list[Message], fact: MessagesShortened) -> list[Message]:
        """Return the conversation with messages cut, after a judgment of it."""
        after = shorten_messages(before, fact)
        require = self.judge.require
        require(bool(fact.at or fact.images), "COMPACT", "nothing is cut")
        require(not unpaired(after), "COMPACT", f"{unpaired(after)} stand alone")
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            is_named = at in fact.at or at in fact.images
            require(is_named or old is new, "COMPACT", f"message {at} is changed, and nobody said so")
            require(type(old) is type(new), "COMPACT", f"message {at} becomes another")
        for at in fact.at:
            require(
                measure_text(after[at]) < measure_text(before[at]), "COMPACT", f"message {at} is not shorter"
            )
        return after
