"""What a session hears from below: children in trouble, and requests that rest at its approver."""

from __future__ import annotations

import pytest

from sessiontree.contracts.facts.session_facts import (
    ApproverReplied,
    ChildTroubleNoted,
    MessageReceived,
    RunFinished,
    ToolGivenUp,
    TurnStarted,
)
from sessiontree.contracts.facts.stimuli import (
    ApproverAnswered,
    ApproverAsked,
    ApproverReturned,
    ChildTroubled,
    ResultOffered,
)
from sessiontree.session.instructions import CallModel, RunApprover
from tests.unit.session.session_fixtures import question
from tests.unit.session.world_fakes import opened

TROUBLE = ChildTroubled(5, "p1", "main/b1/w1", ToolGivenUp("look", 3, "/path", "must be a string"))


@pytest.mark.covers("A29")
def test_childs_trouble_wakes_nobody_and_stands_in_the_next_turn() -> None:
    """A notice waits in the inbox; the final message holds and is offered still."""
    world = opened()
    world.replies(text="done")
    world.give(TROUBLE)
    assert world.found(ChildTroubleNoted)
    assert world.found(ResultOffered)
    assert not world.found(CallModel)
    world.hear("m1", "go on")
    assert world.shown()[-2:] == [
        "user: Session main/b1/w1 could not call look in 3 attempts at /path: must be a string",
        "user: go on",
    ]


@pytest.mark.covers("A29")
def test_childs_trouble_is_told_once() -> None:
    """S46: the same post brought twice is one notice."""
    world = opened()
    world.give(TROUBLE)
    world.give(TROUBLE)
    assert not world.found(MessageReceived)


def test_childs_trouble_begins_no_new_run() -> None:
    """It rides along with a turn and resets neither turns nor attempts."""
    world = opened()
    world.give(TROUBLE)
    world.replies(text="done")
    assert not world.found(CallModel)


def test_reports_that_arrive_together_make_one_turn() -> None:
    """All of them are in the transcript before the model is asked, and one final message answers them."""
    world = opened()
    world.replies(text="done")
    for number in range(3):
        world.hear_report(f"p{number}", f"report {number}", followed=number < 2)
        assert len(world.found(CallModel)) == (number == 2)
    assert world.found(TurnStarted) == [TurnStarted(2, 3, fresh_run=True)]
    assert world.shown()[-3:] == ["user: report 0", "user: report 1", "user: report 2"]
    world.replies(text="all heard")
    assert world.found(RunFinished)[-1].answers == ("p0", "p1", "p2")


def test_approver_is_run_once_and_its_answer_returned() -> None:
    """A request is consulted once; an answer nobody asked for is passed over."""
    world = opened()
    asked = ApproverAsked(0, question("r1", n=1))
    world.give(asked)
    assert world.found(RunApprover) == [RunApprover(question("r1", n=1))]
    world.give(asked)
    assert not world.found(RunApprover)
    world.consult("r1", "deny")
    assert world.found(ApproverReturned) == [ApproverReturned(ApproverReplied("r1", "deny", "so"))]
    world.say(ApproverAnswered(0, ApproverReplied("r1", "approve", "")))
    assert not world.found(ApproverReturned)
