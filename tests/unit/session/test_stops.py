"""Stopping: nothing new begins, every call gets a result, then exactly the stop's status is offered."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.contracts.facts.session_facts import TurnReplied
from sessiontree.contracts.facts.stimuli import (
    ApproverAsked,
    ApproverReturned,
    CallAsked,
    CallPrepared,
    CancelAsked,
    ResultOffered,
)
from sessiontree.session.decide import react
from sessiontree.session.instructions import AbortCalls, AnswerMessages, RunApprover
from tests.unit.session.session_fixtures import call, question, verdict
from tests.unit.session.world_fakes import World, opened


def answered(world: World) -> list[tuple[str, str]]:
    """Return the requests that the session's approver has answered, and how."""
    return [(each.reply.request_id, each.reply.answer) for each in world.found(ApproverReturned)]


def offered(world: World) -> list[tuple[str, str]]:
    """Return status and summary of what the last step offers."""
    return [(str(each.result.status), each.result.summary) for each in world.found(ResultOffered)]


@pytest.mark.parametrize("status", ["completed", "cancelled", "expired", "failed"])
def test_idle_session_offers_the_stops_status_at_once(status: Any) -> None:
    """Whatever the final message was, it ends as it was asked to."""
    world = opened()
    world.replies(text="done")
    world.stops(status, "time is up")
    assert offered(world) == [(status, "time is up")]


def test_calls_get_results_before_anything_is_offered() -> None:
    """What waits is aborted, what runs is asked to stop, and the offer follows the last result."""
    world = opened()
    world.replies(call("look"), call("wipe", 1), call("note", 2))
    for key in ("1.0", "1.1", "1.2"):
        world.prepare(key)
    world.stops()
    assert world.found(AbortCalls) == [AbortCalls(("1.0", "1.2"), "enough")]
    assert (world.result_of("1.1"), world.result_of("1.2")) == ("aborted", "skipped")
    assert not world.results
    world.finish("1.0")
    assert offered(world) == [("cancelled", "enough")]
    assert len(world.shown()) == 5


def test_allowed_call_that_waits_for_the_turn_is_ended_at_once() -> None:
    """A call of the program that was approved and has not begun needs no host to end it."""
    world = opened()
    world.replies(text="done")
    world.asks_outside("o1", call("wipe"))
    world.hear("m1")
    world.decide(world.requests[0], "approved")
    world.stops()
    assert not world.found(AbortCalls)
    assert world.result_of("call.o1") == "aborted"


def test_reply_on_its_way_is_not_taken() -> None:
    """The model's answer to a session that stops says nothing any more."""
    world = opened()
    world.stops()
    world.replies(call("wipe"))
    assert not [fact for fact in world.facts if isinstance(fact, TurnReplied)]


def test_first_stop_stands() -> None:
    """A second one changes neither status nor reason."""
    world = opened()
    world.stops("expired", "too late")
    world.stops("completed", "well done")
    assert offered(world) == [("expired", "too late")]


def test_nothing_said_after_it_is_heard() -> None:
    """Messages, calls and approvals that come too late begin nothing."""
    world = opened()
    world.runs(call("wipe"))
    world.stops()
    world.hear("m1")
    world.give(CallAsked(0, "o1", "look", {}))
    world.decide(world.requests[0], "approved")
    assert not world.live.inbox
    assert not world.live.calls


def test_late_check_lets_nothing_run() -> None:
    """A check that ends after the stop is ignored; the host answers for the call it was asked to abort."""
    world = opened()
    world.replies(call("look"))
    late = verdict(0, "1.0", call("look"))
    assert isinstance(late, CallPrepared)
    react(world.live, CancelAsked(0, "enough", "cancelled"))
    assert react(world.live, late) == ([], [])


def test_those_who_wait_for_a_word_are_told() -> None:
    """Messages the model had read are answered with the reason."""
    world = opened()
    world.stops("cancelled", "enough")
    assert world.found(AnswerMessages) == [AnswerMessages(("task",), "", "the session stops: enough")]


def test_approver_is_not_run_any_more() -> None:
    """A request that rests here climbs on instead of waiting for a session that ends."""
    world = opened()
    world.give(ApproverAsked(0, question("r1")))
    world.report()
    world.stops()
    world.give(ApproverAsked(0, question("r2")))
    assert answered(world) == [("r2", "escalate")]
    world.report()
    world.lose_host()
    assert not world.found(RunApprover)
    assert answered(world) == [("r1", "escalate")]


def test_lost_host_leaves_nothing_running() -> None:
    """The next host begins nothing again, not even what may be repeated, and offers the stop's status."""
    world = opened()
    world.runs(call("look"), call("mark", 1), call("note", 2))
    world.stops("failed", "budget")
    world.report()
    world.lose_host()
    assert [world.result_of(f"1.{n}") for n in range(3)] == ["skipped", "unknown", "unknown"]
    assert set(offered(world)) == {("failed", "budget")}
