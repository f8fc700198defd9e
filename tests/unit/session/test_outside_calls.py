"""Calls the creating program makes in a session: not in the transcript, and no effect within a turn."""

from __future__ import annotations

from sessiontree.contracts.facts.stimuli import CallAsked
from sessiontree.session.instructions import AnswerCall, CallModel, PrepareCall
from tests.unit.session.session_fixtures import call
from tests.unit.session.world_fakes import opened


def test_reading_call_runs_in_the_middle_of_a_turn() -> None:
    """ReadOnly calls wait for nothing and leave no trace in the transcript."""
    world = opened()
    before = world.shown()
    world.asks_outside("o1", call("look"))
    world.finish("call.o1")
    assert [each.outcome for each in world.found(AnswerCall)] == ["ok"]
    assert world.shown() == before


def test_effect_waits_for_the_end_of_the_turn() -> None:
    """A call that changes something is held, and checked again when the turn is through."""
    world = opened()
    world.asks_outside("o1", call("note"))
    assert world.live.calls["call.o1"].phase == "held"
    world.replies(text="done")
    assert [each.key for each in world.found(PrepareCall)] == ["call.o1"]
    world.work()
    assert world.answers == {"o1": "ok"}


def test_turn_waits_for_an_effect_under_way() -> None:
    """A message that comes while the program's call runs is answered after it."""
    world = opened()
    world.replies(text="done")
    world.asks_outside("o1", call("note"))
    world.commit()
    world.hear("m1")
    assert not world.live.asking
    world.finish("call.o1")
    assert world.found(CallModel) == [CallModel(2)]


def test_approved_effect_waits_for_the_end_of_the_turn_too() -> None:
    """An approval that comes in the middle of a turn is settled at once and used after it."""
    world = opened()
    world.replies(text="done")
    world.asks_outside("o1", call("wipe"))
    world.hear("m1")
    world.decide(world.requests[0], "approved")
    assert not world.running
    assert world.live.calls["call.o1"].phase == "approved"
    world.report()
    world.lose_host()
    world.report()
    world.questions.clear()
    world.questions.append(2)
    world.replies(text="done")
    world.work()
    assert world.answers == {"o1": "ok"}


def test_denied_call_answers_the_program_and_tells_the_model_nothing() -> None:
    """A program's call never becomes a notice."""
    world = opened()
    world.replies(text="done")
    world.asks_outside("o1", call("wipe"))
    world.decide(world.requests[0], "denied")
    world.report()
    assert world.answers == {"o1": "denied"}
    assert not world.live.inbox


def test_bad_arguments_are_told_at_once() -> None:
    """A program is no model: no attempts, no advice."""
    world = opened()
    world.asks_outside("o1", call("look", bad=True))
    assert world.answers == {"o1": "invalid"}
    assert not world.live.ledger


def test_same_id_is_one_call_for_good() -> None:
    """S46: a call asked again, late or twice, is not made again."""
    world = opened()
    for _ in range(2):
        world.asks_outside("o1", call("look"))
        world.work()
    world.lose_host()
    world.give(CallAsked(world.at_ms, "o1", "look", {}))
    assert world.told == []


def test_held_call_survives_the_host() -> None:
    """What waits for the end of a turn is in the facts."""
    world = opened()
    world.asks_outside("o1", call("note"))
    world.lose_host()
    world.settle("done")
    assert world.answers == {"o1": "ok"}
