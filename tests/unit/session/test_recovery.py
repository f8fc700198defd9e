"""Recovery: what a new host owes is read from the state, call phase by call phase."""

from __future__ import annotations

import json

import pytest

from sessiontree.contracts.facts.session_facts import Opened
from sessiontree.contracts.facts.stimuli import Adopted, ApprovalAsked, ApproverAsked
from sessiontree.contracts.values.session_ids import SessionIds
from sessiontree.session.instructions import CallModel, ExecuteCall, PrepareCall, RunApprover
from tests.unit.session.session_fixtures import call, question
from tests.unit.session.world_fakes import World, opened


def lost(world: World) -> World:
    """Report and lose the host."""
    world.report()
    world.lose_host()
    return world


def test_open_call_is_checked_again() -> None:
    """A call of which only the reply is known is prepared again, a reading one that ran as well."""
    world = opened()
    world.replies(call("look"), call("look", 1))
    world.prepare("1.0")
    lost(world)
    assert [each.key for each in world.found(PrepareCall)] == ["1.0", "1.1"]


def test_asking_call_is_asked_again() -> None:
    """The tree knows the id and shows nothing twice."""
    world = opened()
    world.runs(call("wipe"))
    lost(world)
    assert [each.call.key for each in world.found(ApprovalAsked)] == ["1.0"]


@pytest.mark.covers("EFF2")
def test_begun_effect_is_unknown_and_never_repeated() -> None:
    """S42: what may have run is reported as unknown, once, on any number of hosts."""
    world = opened()
    world.runs(call("note"))
    lost(world)
    lost(world)
    told = json.loads(world.live.transcript[-1].text)
    assert (told["status"], told["may_have_run"]) == ("unknown", True)
    assert world.watcher.effects.begun["1.0"] == 1
    assert not world.found(ExecuteCall)


@pytest.mark.covers("EFF9")
def test_call_whose_intent_came_with_the_approval_runs_at_once() -> None:
    """The answer is all it waits for; nothing of its intent is written again."""
    world = opened()
    world.runs(call("wipe"))
    world.decide(world.requests[0], "approved", at_once=True)
    assert [each.call.key for each in world.found(ExecuteCall)] == ["1.0"]
    assert [type(fact).__name__ for fact in world.unreported] == ["ApprovalSettled"]
    world.finish("1.0")
    assert world.result_of("1.0") == "ok"


@pytest.mark.covers("EFF9")
def test_effect_intended_with_its_approval_is_unknown_after_a_loss() -> None:
    """S42: the lost host had the answer or not; either way the call may have run, and is not repeated."""
    world = opened()
    world.runs(call("wipe"))
    world.decide(world.requests[0], "approved", at_once=True)
    lost(world)
    told = json.loads(world.live.transcript[-1].text)
    assert (told["status"], told["may_have_run"]) == ("unknown", True)
    assert world.watcher.effects.begun["1.0"] == 1
    assert not world.found(ExecuteCall)


def test_repeatable_effect_is_repeated_under_the_same_id() -> None:
    """A tool that says repeating changes nothing more is run again, with the call id it had."""
    world = opened()
    world.runs(call("mark"))
    lost(world)
    assert [each.call_id for each in world.found(ExecuteCall)] == [SessionIds("main/b1", "").call("1.0")]
    world.finish("1.0")
    assert world.result_of("1.0") == "ok"


def test_late_commit_does_not_begin_a_repeated_call_twice() -> None:
    """The word that an intent is durable reaches the new host after it began the call: it runs on."""
    world = opened()
    world.replies(call("mark"))
    world.prepare("1.0")
    world.report()
    world.lose_host()
    world.commit()
    world.finish("1.0")
    assert world.watcher.effects.begun["1.0"] == 1


def test_parked_effect_of_a_lost_host_becomes_a_notice() -> None:
    """The call has its one result already; that its outcome is unknown is reported."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe"))
    world.decide(world.requests[0], "approved")
    world.report()
    world.commit()
    lost(world)
    assert world.live.inbox[-1].message.text.startswith("The pending call c1 of wipe is settled (unknown)")


def test_model_is_asked_again_for_an_open_turn() -> None:
    """The question that was lost is put again, under the same number."""
    world = lost(opened())
    assert world.found(CallModel) == [CallModel(1)]
    world.questions.append(1)
    world.replies(text="done")
    world.replies(text="done")
    assert world.shown()[1:] == ["model: done"]


def test_unreported_turn_is_taken_again() -> None:
    """Facts that were not reported never happened; what the supervisor had sent comes again."""
    world = opened()
    world.replies(text="done")
    world.report()
    world.hear("m1", "and now")
    assert world.live.turn == 2
    world.lose_host()
    assert world.live.turn == 2
    assert world.shown()[-1] == "user: and now"


def test_prompt_stands_from_the_first_adoption_on() -> None:
    """Another host with another prompt or other tools changes that a session had learned."""
    world = opened()
    before = world.live.system_prompt
    world.say(Adopted(0, (), "other", "Something else."))
    assert not world.found(Opened)
    assert world.live.system_prompt == before


def test_approver_is_run_again() -> None:
    """A consultation of a lost host is begun again."""
    world = opened()
    world.give(ApproverAsked(0, question("r1")))
    lost(world)
    assert [each.question.request_id for each in world.found(RunApprover)] == ["r1"]


def test_patience_goes_on_after_a_loss() -> None:
    """The time asked at is a fact: the wait is not begun again."""
    world = opened(patience_s=30.0)
    world.runs(call("wipe"))
    world.at_ms += 29_000
    lost(world)
    world.ring(1_000)
    assert world.live.asking


@pytest.mark.covers("REL-P33", "ORD7")
@pytest.mark.parametrize("steps", range(12))
def test_reply_cut_anywhere_ends_with_one_result_per_call(steps: int) -> None:
    """P33: whichever step a host is lost after, each call has one result, in call order."""
    world = opened(patience_s=0.0)
    world.replies(call("look"), call("note", 1), call("wipe", 2), call("mark", 3), call("look", 4, bad=True))
    world.work(steps)
    world.lose_host()
    world.settle("done")
    kinds = [line.split(":")[0] for line in world.shown()]
    assert kinds[1:7] == ["model", "result", "result", "result", "result", "result"]
    assert not world.live.calls
