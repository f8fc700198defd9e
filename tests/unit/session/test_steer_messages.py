"""Steering: a message that overtakes what runs, and the turn it forces."""

from __future__ import annotations

import pytest

from sessiontree.session.instructions import AbortCalls, CallModel, ExecuteCall, PrepareCall
from tests.unit.session.session_fixtures import call, reply
from tests.unit.session.world_fakes import opened


def test_running_calls_are_aborted_and_the_next_turn_hears_why() -> None:
    """The turn after holds the results of all calls, then the steering message."""
    world = opened()
    world.runs(call("look", 0, call_id="a"), call("note", 1, call_id="b"))
    world.hear("m1", "stop that", "steer")
    assert world.found(AbortCalls) == [AbortCalls(("1.0", "1.1"), "a new message came in")]
    world.finish("1.1")
    world.finish("1.0")
    assert world.found(CallModel) == [CallModel(2)]
    assert world.shown()[2:] == ["result: look 1.0: aborted", "result: note 1.1: aborted", "user: stop that"]


def test_calls_not_begun_are_skipped() -> None:
    """A call whose intent is on its way to the disk never runs."""
    world = opened()
    world.replies(call("note"), call("look"))
    world.prepare("1.0")
    world.hear("m1", "stop that", "steer")
    assert (world.result_of("1.0"), world.result_of("1.1")) == ("skipped", "skipped")
    world.report()
    world.commit()
    assert not world.running


def test_message_during_the_models_turn_cuts_it_short() -> None:
    """The model is asked again at once; what it said without having read the message counts nothing."""
    world = opened()
    world.report()
    world.hear("m1", "not that", "steer")
    assert world.found(CallModel) == [CallModel(2)]
    world.answer(reply(call("look"), call("wipe"), text="I will"), 0)
    assert not world.found(PrepareCall)
    world.replies(text="then not")
    world.report()
    assert world.shown() == ["user: compare the two", "user: not that", "model: then not"]
    assert world.words == {"task": "then not", "m1": "then not"}


def test_call_that_waits_for_approval_is_parked_at_once() -> None:
    """An approval that comes while running calls still stop keeps the next turn waiting no longer."""
    world = opened(patience_s=None)
    world.runs(call("wipe"), call("look"))
    world.hear("m1", "stop that", "steer")
    world.decide(world.requests[0], "approved")
    world.finish("1.1")
    assert world.live.asking
    assert [line.split(":")[0] for line in world.shown()[2:]] == ["result", "result", "user"]
    world.report()
    world.commit()
    assert world.found(ExecuteCall)


def test_parked_call_that_runs_is_left_alone() -> None:
    """Its pending envelope is its result already; the message overtakes only what the turn waits for."""
    world = opened(patience_s=None)
    world.runs(call("wipe"), call("look"))
    world.hear("m1", "stop that", "steer")
    world.decide(world.requests[0], "approved")
    world.work_on("1.0")
    world.hear("m2", "really", "steer")
    assert "1.0" not in {key for each in world.found(AbortCalls) for key in each.keys}


def test_follow_up_waits_for_the_end_of_the_turn() -> None:
    """A follow-up aborts nothing and is after the results."""
    world = opened()
    world.runs(call("look"))
    world.hear("m1", "and then")
    assert world.told == []
    world.finish("1.0")
    assert world.shown()[2:] == ["result: look 1.0: ok", "user: and then"]


def test_steered_host_that_is_lost_begins_nothing_again() -> None:
    """S42: what was to stop is skipped on the next host, or its outcome is unknown."""
    world = opened()
    world.runs(call("look"), call("mark", 1), call("note", 2))
    world.hear("m1", "stop that", "steer")
    world.report()
    world.lose_host()
    assert not world.running
    assert [world.result_of(f"1.{n}") for n in range(3)] == ["skipped", "unknown", "unknown"]
    assert world.shown()[-1] == "user: stop that"


@pytest.mark.covers("REL-S46", "ORD1")
def test_messages_stand_in_the_order_heard_each_once() -> None:
    """S45, S46: steering does not jump the queue in the transcript, and an id counts once."""
    world = opened()
    world.hear("m1", "one")
    world.hear("m2", "two", "steer")
    world.hear("m1", "one again")
    world.hear("m3", "three")
    world.replies(text="done")
    assert world.shown()[1:] == ["user: one", "user: two", "model: done", "user: three"]
