"""Facts that are journaled as one hold all of what they are made of, and nothing else joins them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.facts.session_facts import (
    ActsFor,
    CallResolved,
    MessageReceived,
    Opened,
    RunFinished,
    Tainted,
    TurnReplied,
    TurnStarted,
)
from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import Posted, PostsTaken, SessionEnded, UsageCharged
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.codec import from_wire, list_parts, pack, pack_joined, to_wire
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import read_fact, read_facts

OPENED = Opened("You are one.", ("look",), "m", "small")
TASK = MessageReceived("task", UserMessage((TextContent("go"),), 5, "parent"), steer=False, wakes=True)
FIRST = TurnStarted(1, 1, fresh_run=True)
NEXT = TurnStarted(2, 0, fresh_run=False)
CALLED = CallResolved("1.0", "ok", ToolResultMessage("c1", "look", (TextContent("seen"),)), resets="look")
REPLY = TurnReplied(2, AssistantMessage((TextContent("done"),)))
FINISHED = RunFinished("done", ("task",), None, None, has_result=False)
CHARGED = UsageCharged("main/b1/w1", "main", Usage(turns=2))
ENDED = SessionEnded(
    "main/b1/w1", SessionStatus.COMPLETED, SessionResult(SessionStatus.COMPLETED, "done"), 9, forced=False
)
REPORT: Any = Posted("main/b1#1", "main/b1", Incoming(9, "main/b1#1", "done", "follow_up", "child"))  # type: ignore[arg-type]
SINGLE = (
    OPENED,
    TASK,
    FIRST,
    NEXT,
    CALLED,
    REPLY,
    FINISHED,
    CHARGED,
    ENDED,
    REPORT,
    Tainted("look"),
    ActsFor(()),
    PostsTaken("main/b1", ("main/b1#1",)),
)


def joined(facts: Sequence[Any]) -> list[Any]:
    """Return facts as the journal gives them back."""
    return [from_wire(json.loads(text)) for text in pack_joined(facts)]


def flat(facts: Sequence[Any]) -> list[Any]:
    """Return the single facts."""
    return [part for fact in facts for part in list_parts(fact)]


@pytest.mark.parametrize(
    "facts",
    [
        [OPENED, TASK, FIRST],
        [OPENED, FIRST],
        [TASK, FIRST],
        [CALLED, NEXT],
        [REPLY, FINISHED],
        [CHARGED, ENDED, REPORT],
        [CHARGED, ENDED],
        [ENDED, REPORT],
    ],
)
def test_what_always_follows_is_one_fact_in_the_journal(facts: list[Any]) -> None:
    """One line, from which all of them come back."""
    (whole,) = joined(facts)
    assert read_fact(pack(whole)) == whole
    assert list(read_facts(pack(whole))) == facts


@given(facts=st.lists(st.sampled_from(SINGLE), max_size=12))
def test_any_facts_come_back_in_their_order(facts: list[Any]) -> None:
    """Whatever follows what: nothing is lost, doubled or moved."""
    whole = joined(facts)
    assert flat(whole) == facts
    assert [part for fact in whole for part in read_facts(pack(fact))] == facts
    stored = [JournalRecord(1, "main", "cause", 0, text) for text in pack_joined(facts)]
    assert [part for record in stored for part in record.to_json_parts()] == [to_wire(fact) for fact in facts]


@pytest.mark.parametrize(
    "facts",
    [
        [CALLED, Tainted("look"), NEXT],
        [TASK, ActsFor(()), FIRST],
        [REPLY, NEXT],
        [CHARGED, PostsTaken("main/b1", ("main/b1#1",)), ENDED],
        [ENDED, CHARGED],
        [ENDED, PostsTaken("main/b1", ("main/b1#1",)), REPORT],
    ],
)
def test_what_does_not_belong_together_stays_apart(facts: list[Any]) -> None:
    """Something in between, or the other order."""
    assert list(joined(facts)) == facts


def test_fact_holds_only_one_of_each() -> None:
    """A second turn or report stays a fact of its own, and what comes first stays first."""
    assert joined([CALLED, NEXT, NEXT])[1:] == [NEXT]
    assert joined([CHARGED, ENDED, REPORT, REPORT])[1:] == [REPORT]
    assert joined([OPENED, FIRST, TASK]) == [*joined([OPENED, FIRST]), TASK]
    assert joined([OPENED, TASK, TASK, FIRST]) == [*joined([OPENED, TASK]), *joined([TASK, FIRST])]


def test_single_facts_are_written_without_the_members_of_others() -> None:
    """The members are there only if they hold something."""
    for fact in (OPENED, TASK, CALLED, REPLY, ENDED):
        assert not {"task", "turn", "finished", "charged", "report"} & (
            json.loads(pack(fact)).keys() - {"turn" if fact is REPLY else ""}
        )
