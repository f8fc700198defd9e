"""Deferred approvals: the model waits while the tree's patience lasts, then goes on and is informed later."""

from __future__ import annotations

import json

import pytest

from sessiontree.contracts.facts.session_facts import ApprovalWanted
from sessiontree.contracts.facts.stimuli import ApprovalAsked, ResultOffered
from sessiontree.session.instructions import AwaitCommit, ToTree, WakeSessionAt
from tests.unit.session.session_fixtures import call, digest, sent
from tests.unit.session.world_fakes import opened


def test_turn_waits_for_an_approval_while_patience_lasts() -> None:
    """With 30 s the session is woken at 30 s; a ring before changes nothing, that one parks the call."""
    world = opened(patience_s=30.0)
    world.at_ms = 1_000
    world.runs(call("wipe"))
    assert world.alarms == {31_000}
    world.ring(29_999)
    assert not world.live.asking
    assert world.found(WakeSessionAt) == [WakeSessionAt(31_000)]
    world.ring(1)
    assert world.live.asking
    assert json.loads(world.live.transcript[-1].text)["status"] == "pending"


def test_no_patience_means_the_model_goes_on_at_once() -> None:
    """With 0 the pending envelope is given as soon as the other calls are done."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe"), call("look"))
    assert not world.live.asking
    world.finish("1.1")
    assert not world.live.asking
    world.report()
    assert world.live.asking
    assert world.shown()[-1] == "result: look 1.1: ok"


def test_what_is_answered_at_once_is_not_pending() -> None:
    """However short the patience: what the owner always allows has its own result, before any bell rings."""
    world = opened(patience_s=0.0)
    world.replies(call("wipe"), call("look"))
    world.prepare("1.0")
    world.prepare("1.1")
    world.at_ms += 5_000
    world.finish("1.1")
    (asked,) = sent(world.held_back, ApprovalAsked)
    (bell,) = [each for each in world.held_back if isinstance(each, WakeSessionAt)]
    assert world.held_back.index(ToTree(asked)) < world.held_back.index(bell)
    assert bell.at_ms <= world.at_ms
    world.requests.append(asked.request_id)
    world.decide(asked.request_id, "approved", by="always")
    world.report()
    assert not world.live.asking
    world.work()
    assert world.result_of("1.0") == "ok"
    assert world.shown()[-2:] == ["result: wipe 1.0: ok", "result: look 1.1: ok"]


def test_endless_patience_sets_no_alarm() -> None:
    """With None no time is long enough."""
    world = opened(patience_s=None)
    world.runs(call("wipe"))
    world.ring(10**9)
    assert not world.live.asking
    assert not world.alarms


@pytest.mark.parametrize("patience_s", [None, 30.0])
def test_new_message_ends_any_patience(patience_s: float | None) -> None:
    """S20: the model goes on at once when somebody says something."""
    world = opened(patience_s=patience_s)
    world.runs(call("wipe"))
    world.hear("m1", "meanwhile")
    assert world.live.asking
    assert world.shown()[-1] == "user: meanwhile"


def test_longest_wait_counts_for_all() -> None:
    """Several approvals are waited for together, until the newest has waited long enough."""
    world = opened(patience_s=30.0)
    world.replies(call("wipe", 0), call("wipe", 1))
    world.prepare("1.0")
    world.at_ms += 10_000
    world.prepare("1.1")
    world.ring(20_000)
    assert not world.live.asking
    world.ring(10_000)
    assert world.live.asking


@pytest.mark.parametrize("decision", ["approved", "denied", "expired", "cancelled"])
def test_decision_in_time_is_the_calls_result(decision: str) -> None:
    """S20: each end of a request unblocks the call; the model never sees an envelope."""
    world = opened(patience_s=None)
    world.runs(call("wipe"))
    world.decide(world.requests[0], decision)
    world.work()
    assert world.result_of("1.0") == ("ok" if decision == "approved" else "denied")
    assert world.live.asking
    assert len(world.shown()) == 3
    assert decision == "approved" or f"wipe was {decision} by ada: because" in world.shown()[-1]


@pytest.mark.parametrize("decision", ["approved", "denied", "expired", "cancelled"])
def test_late_outcome_is_a_notice_that_starts_a_turn(decision: str) -> None:
    """What was pending arrives as a message that cites the call."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe", call_id="c9"))
    world.replies(text="done for now")
    assert world.found(ResultOffered)
    world.decide(world.requests[0], decision)
    world.work()
    assert world.live.asking
    notice = world.live.transcript[-1]
    assert notice.to_wire()["origin"] == "notice"
    assert "The pending call c9 of wipe is settled" in notice.text


def test_approved_call_runs_only_after_its_intent_is_durable() -> None:
    """S16, S43: approval, intent, commit, effect, in this order and bound to one digest."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe", 4))
    world.decide(world.requests[0], "approved")
    assert world.found(AwaitCommit) == [AwaitCommit(("1.0",))]
    assert not world.running
    world.report()
    world.commit()
    assert list(world.running) == ["1.0"]


def test_repeat_of_a_pending_call_joins_it() -> None:
    """One request, one prompt, one effect; the envelope names the call it waits with."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe", call_id="first"))
    world.runs(call("wipe", call_id="second"), call("wipe", 1, call_id="other"))
    assert world.result_of("2.0") == "pending"
    assert len(world.requests) == 2
    joined = json.loads(world.watcher.calls.calls["2.0"].resolved.message.text)  # type: ignore[union-attr]
    assert joined["requestId"] == world.requests[0]
    assert "the same call first already waits" in joined["message"]
    world.decide(world.requests[0], "approved")
    world.work()
    assert world.watcher.effects.begun["1.0"] == 1


def test_repeat_does_not_join_a_call_of_the_program() -> None:
    """The outcome of a program's call is the program's; a model's call asks for itself."""
    world = opened(patience_s=0.0)
    world.replies(text="done")
    world.asks_outside("o1", call("wipe"))
    world.hear("m1")
    world.runs(call("wipe"))
    assert len(world.requests) == 2


def test_request_is_named_alike_on_every_host() -> None:
    """S18: a new host asks again with the same id and digest."""
    world = opened()
    world.runs(call("wipe"))
    before = world.requests[:]
    world.lose_host()
    asked = sent(world.held_back, ApprovalAsked)
    assert [each.request_id for each in asked] == before
    assert [each.call.digest for each in asked] == [digest(call("wipe"))]
    assert not [fact for fact in world.unreported if isinstance(fact, ApprovalWanted)]


def test_last_word_under_a_pending_approval_only_suspends() -> None:
    """The word is offered and holds while only approvals are out; it falls when one lets a call run."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe"))
    world.replies(text="done")
    assert world.found(ResultOffered)
    world.decide(world.requests[0], "approved")
    assert not world.found(ResultOffered)


def test_late_outcome_beyond_max_turns_starts_no_turn() -> None:
    """Notices wait for the next message once a message's turns are used up; the run rests with the reason."""
    world = opened(patience_s=0.0, max_turns=2)
    world.runs(call("wipe"))
    world.replies(text="done")
    world.decide(world.requests[0], "denied")
    assert not world.live.asking
    (offered,) = world.found(ResultOffered)
    assert offered.result.summary.startswith("max_turns is 2 and the work is not done")
    world.hear("m1", "go on")
    assert [line.split(":")[0] for line in world.shown()[-2:]] == ["user", "user"]
