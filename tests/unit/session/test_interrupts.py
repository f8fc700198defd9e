"""Interrupting: what is under way ends, who waits is informed, and nothing begins before the next message."""

from __future__ import annotations

from sessiontree.contracts.facts.session_facts import Interrupted, RunFinished, TurnCut
from sessiontree.contracts.facts.stimuli import ResultOffered
from sessiontree.contracts.kinds import SessionKind
from sessiontree.session.instructions import AbortCalls, AnswerMessages, CallModel, WithdrawQuestion
from tests.unit.session.session_fixtures import call, reply
from tests.unit.session.world_fakes import opened

PROBLEM = "the session was interrupted: enough"


def test_model_is_waited_for_no_more() -> None:
    """Its question is withdrawn, its late reply counts nothing, and the next message is asked about."""
    world = opened()
    world.hear("m1", "and that")
    world.interrupts()
    assert world.found(TurnCut) == [TurnCut(1, "enough")]
    assert world.found(WithdrawQuestion) == [WithdrawQuestion(1)]
    assert world.found(AnswerMessages) == [AnswerMessages(("task", "m1"), "", PROBLEM, interrupted=True)]
    world.answer(reply(text="late"), 0)
    assert world.facts == []
    world.hear("m2", "again")
    assert world.found(CallModel) == [CallModel(2)]
    world.replies(text="well")
    assert [line.split(":")[0] for line in world.shown()] == ["user", "user", "user", "model"]


def test_running_calls_are_aborted_and_begin_no_turn() -> None:
    """Calls of the program too; the last result only lets the session rest."""
    world = opened()
    world.runs(call("look"), call("note", 1))
    world.asks_outside("o1", call("look", 2))
    world.interrupts()
    assert world.found(AbortCalls) == [AbortCalls(("1.0", "1.1", "call.o1"), PROBLEM)]
    for key in ("1.0", "1.1", "call.o1"):
        assert not world.found(ResultOffered)
        world.finish(key)
    assert not world.found(CallModel)
    assert [(offer.stays, offer.result.summary) for offer in world.found(ResultOffered)] == [(True, PROBLEM)]


def test_late_outcome_and_a_childs_report_wait_for_the_next_message() -> None:
    """They are heard, and shown with what is said next."""
    world = opened(patience_s=0)
    world.runs(call("wipe"))
    world.replies(text="it waits")
    world.interrupts()
    world.hear("c1", "the child is done", origin="child")
    assert not world.live.asking
    world.hear("m1", "go on")
    assert world.live.asking
    assert [line.split(":")[0] for line in world.shown()[-3:]] == ["user"] * 3


def test_word_that_stands_is_kept() -> None:
    """A session that rests has nothing to drop; what it said last stays its final message."""
    world = opened(SessionKind.MAIN, task="")
    world.hear("m1")
    world.replies(text="done")
    world.interrupts()
    assert not world.found(RunFinished)
    assert [offer.result.summary for offer in world.found(ResultOffered)] == ["done"]


def test_it_counts_once_and_not_when_the_session_stops() -> None:
    """Posted twice after a loss it is one; a session that stops has nothing left to drop."""
    world = opened()
    world.interrupts("p1")
    world.hear("m1", "again")
    world.interrupts("p1")
    assert world.live.asking
    world.stops()
    world.interrupts("p2")
    assert not world.found(Interrupted)


def test_lost_host_begins_nothing_again() -> None:
    """What was to stop is skipped on the next host, or its outcome is unknown, and the session rests."""
    world = opened()
    world.runs(call("look"), call("mark", 1), call("note", 2))
    world.interrupts()
    world.report()
    world.lose_host()
    assert not world.running
    assert [world.result_of(f"1.{n}") for n in range(3)] == ["skipped", "unknown", "unknown"]
    assert not world.live.asking
