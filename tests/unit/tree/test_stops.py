"""Stops: asked for, by time, and by force; leaves end before what is above them."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.contracts.errors import SessionNotFound
from sessiontree.contracts.facts.stimuli import CancelAsked, WorkInterrupted
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    CancelBegun,
    InterruptBegun,
    LeftoversEnded,
    Posted,
    ResultHeld,
    SessionEnded,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.report import build_receipt
from sessiontree.tree.state.protocol import (
    ClockRang,
    Deliver,
    LeftoversFound,
    ReleaseSession,
    ResultAsked,
    SessionLost,
    Stirred,
    WakeTreeAt,
)
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, WORKER, result


def family() -> Harness:
    """Return a tree of main, main/b1, main/b1/w1 and main/w1."""
    harness = Harness().open(limits=Limits(cancel_grace_s=30))
    harness.spawn("main", BRANCH)
    harness.spawn("main/b1", WORKER)
    harness.spawn("main", WORKER)
    return harness


def ended(harness: Harness) -> list[str]:
    """Return who ended in the last step, in order."""
    return [fact.session for fact in harness.found(SessionEnded)]


def test_stop_reaches_everybody_below_and_sets_one_alarm() -> None:
    """Parents hear before their children; each is owed a cancel."""
    harness = family()
    harness.stop("main", "enough")
    begun = harness.one(CancelBegun)
    assert begun.sessions == ("main", "main/b1", "main/w1", "main/b1/w1")
    assert (begun.status, begun.reason, begun.force_at_ms) == ("cancelled", "enough", 30_000)
    told = {each.session: each.stimulus for each in harness.found(Deliver)}
    assert told == dict.fromkeys(begun.sessions, CancelAsked(0, "enough", "cancelled"))
    assert harness.one(WakeTreeAt).at_ms == 30_000


def test_what_is_stopped_ends_as_told_after_its_children() -> None:
    """Any word ends it, completed or not, but only once nothing lives below."""
    harness = family()
    harness.stop("main")
    harness.offer("main/b1", word=result("failed", "had to break off", output=[1]))
    assert harness.session("main/b1").status == "suspended"
    harness.offer("main", quiet=False)
    harness.offer("main/w1")
    assert ended(harness) == ["main/w1"]
    harness.offer("main/b1/w1")
    assert ended(harness) == ["main/b1/w1", "main/b1", "main"]
    word = harness.session("main/b1").result
    assert word == result("cancelled", "had to break off", output=[1])
    assert not any(fact.forced for fact in harness.found(SessionEnded))


@pytest.mark.covers("STP1")
def test_after_the_grace_all_end_by_force_from_the_leaves() -> None:
    """Nobody is asked any more; who had said its word ends by it."""
    harness = family()
    harness.stop("main")
    harness.offer("main/b1", word=result(summary="my word"))
    harness.pass_s(29.999)
    assert harness.facts == []
    harness.pass_s(0.001)
    assert ended(harness) == ["main/b1/w1", "main/b1", "main/w1", "main"]
    forced = {fact.session: fact.forced for fact in harness.found(SessionEnded)}
    assert forced == {"main/b1/w1": True, "main/b1": False, "main/w1": True, "main": True}
    assert {each.session: each.force for each in harness.found(ReleaseSession)} == forced
    end = harness.session("main").result
    assert end is not None and "without wrapping up: enough" in end.summary


def test_stop_reaches_only_what_is_below() -> None:
    """The rest of the tree goes on."""
    harness = family()
    harness.stop("main/b1")
    assert harness.one(CancelBegun).sessions == ("main/b1", "main/b1/w1")
    assert harness.session("main/w1").stop is None


def test_who_rests_ends_at_once() -> None:
    """It has said its final message: nothing is left to wrap up, and nobody is woken for it."""
    harness = family()
    harness.offer("main")
    harness.offer("main/b1")
    harness.offer("main/b1/w1")
    harness.offer("main/w1")
    assert harness.state.live == 1
    harness.stop("main")
    assert ended(harness) == ["main"]
    assert harness.found(Deliver) == []


def test_who_rests_above_living_children_is_not_asked_again() -> None:
    """Its word holds until they have ended."""
    harness = family()
    harness.offer("main/b1", word=result(summary="my word"))
    harness.stop("main/b1")
    assert [post.session for post in harness.found(Posted)] == ["main/b1/w1"]
    harness.feed(Stirred(0, "main/b1"))
    assert harness.facts == []
    harness.offer("main/b1/w1")
    assert ended(harness) == ["main/b1/w1", "main/b1"]
    assert harness.session("main/b1").result == result("cancelled", "my word")


def test_stop_is_not_asked_twice() -> None:
    """An ended, unknown or stopping session is left alone; a wider stop tells only the others."""
    harness = family()
    harness.stop("main/b1")
    harness.stop("main/b1")
    assert (harness.facts, harness.told) == ([], [])
    harness.now_ms = 1000
    harness.stop("main", "all of it")
    assert harness.one(CancelBegun).sessions == ("main", "main/w1")
    harness.pass_s(29)
    assert ended(harness) == ["main/b1/w1", "main/b1"]
    harness.stop("main/b1")
    harness.stop("main/b7")
    assert harness.facts == []


def test_narrower_stop_does_not_hold_a_wider_one_back() -> None:
    """Each is forced at its own time, leaves first."""
    harness = family()
    harness.stop("main")
    harness.pass_s(30)
    assert harness.state.live == 0


def test_without_grace_force_comes_with_the_next_alarm() -> None:
    """A grace of zero is no grace."""
    harness = Harness().open(limits=Limits(cancel_grace_s=0))
    harness.stop("main")
    assert harness.one(WakeTreeAt).at_ms == 0
    harness.pass_s(0)
    assert ended(harness) == ["main"]


def test_children_of_a_crashed_session_are_forced_after_the_grace() -> None:
    """What nobody is above any more still ends."""
    harness = family()
    harness.feed(SessionLost(0, "main/b1", "gone"))
    harness.pass_s(30)
    assert ended(harness) == ["main/b1/w1"]


def test_crash_while_stopping_is_still_a_failure() -> None:
    """It did not end as it was asked to."""
    harness = family()
    harness.stop("main/w1")
    harness.feed(SessionLost(0, "main/w1", "gone"))
    assert harness.one(SessionEnded).status == "failed"


def test_time_to_live_ends_a_session_like_a_stop() -> None:
    """With its own word for it, and the same grace."""
    harness = Harness().open(limits=Limits(worker_ttl_s=10, cancel_grace_s=5))
    worker = harness.spawn("main", WORKER)
    harness.pass_s(100)
    assert harness.facts == []
    harness.embody(worker)
    harness.pass_s(9.999)
    assert harness.facts == []
    harness.pass_s(0.001)
    assert harness.one(CancelBegun).status == "expired"
    harness.pass_s(5)
    assert harness.one(SessionEnded).status == "expired"
    assert harness.session(worker).status == "expired"


def test_parent_and_child_whose_time_ends_together_are_told_together() -> None:
    """The upper one's stop covers the lower one's."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, ttl_s=5)
    worker = harness.spawn(branch, WORKER, ttl_s=5)
    harness.embody(worker)
    harness.embody(branch)
    harness.pass_s(5)
    assert harness.one(CancelBegun).sessions == (branch, worker)


def test_whatever_is_due_happens_before_a_late_stimulus() -> None:
    """A word that comes after the time to live ended finds the session stopping."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER, ttl_s=1)
    harness.embody(worker)
    harness.now_ms = 1000
    harness.offer(worker)
    assert [type(fact) for fact in harness.facts] == [CancelBegun, Posted, SessionEnded]
    assert harness.session(worker).status == "expired"
    assert harness.found(Deliver) == []


def test_clocks_may_step_back() -> None:
    """What was reported stays reported, and times set later count from the latest time known."""
    harness = Harness().open()
    harness.now_ms = 50_000
    harness.spawn("main", WORKER)
    harness.now_ms = 10
    late = harness.spawn("main", WORKER)
    harness.embody(late)
    assert harness.session(late).expires_at_ms == 350_000
    harness.stop("main")
    assert harness.one(CancelBegun).force_at_ms == 80_000


def test_every_bell_asks_for_the_next_time() -> None:
    """One that rings early, because the clock stepped back, is not the last."""
    harness = Harness().open()
    harness.embody(harness.spawn("main", WORKER, ttl_s=10))
    harness.feed(ClockRang(3))
    assert harness.told == [WakeTreeAt(10_000)]
    harness.offer("main/w1")
    harness.feed(ClockRang(4))
    assert harness.told == []


@pytest.mark.parametrize("status", ["active", "suspended"])
def test_nobody_is_stopped_into_a_state_that_is_not_final(status: Any) -> None:
    """A stop says how a session will have ended."""
    with pytest.raises(ValueError, match="not a final state"):
        Harness().open().stop(status=SessionStatus(status))


def test_owner_finishes_a_tree() -> None:
    """Main completes with the owner's final message; what still runs is cancelled first."""
    harness = family()
    harness.offer("main", word=result(summary="waiting", output=3))
    harness.stop("main", "all merged", status=SessionStatus.COMPLETED)
    first, second = harness.found(CancelBegun)
    assert (first.sessions, first.status) == (("main",), "completed")
    assert (second.sessions, second.status) == (("main/b1", "main/w1", "main/b1/w1"), "cancelled")
    for name in ("main/b1/w1", "main/b1", "main/w1"):
        harness.offer(name)
    assert ended(harness) == ["main/w1", "main"]
    assert harness.session("main").result == result("completed", "all merged", output=3)
    assert harness.session("main/b1").status == "cancelled"


def test_finishing_without_a_word_keeps_the_sessions_own() -> None:
    """The owner may leave the final message to it."""
    harness = Harness().open()
    harness.stop("main", "", status=SessionStatus.COMPLETED)
    assert harness.one(Deliver).stimulus == CancelAsked(0, "", "completed")
    harness.offer("main", word=result("cancelled", "wrapped up"))
    assert harness.session("main").result == result("completed", "wrapped up")


def test_finishing_at_rest_ends_at_once() -> None:
    """Nobody is woken to hear that all is done."""
    harness = Harness().open()
    harness.offer(harness.spawn("main", WORKER))
    harness.offer("main")
    harness.stop("main", "all merged", status=SessionStatus.COMPLETED)
    assert ended(harness) == ["main"]
    assert harness.session("main").result == result("completed", "all merged")


def test_stopping_parent_hears_of_its_children_until_its_own_last_word() -> None:
    """While it wraps up a report may matter to it; afterwards it would only keep it from ending."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    early, late = harness.spawn(branch, WORKER, via="model"), harness.spawn(branch, WORKER, via="model")
    harness.stop(branch)
    harness.offer(early)
    assert [post.session for post in harness.found(Posted)] == [branch]
    harness.offer(branch)
    harness.offer(late)
    assert harness.found(Posted) == []
    assert ended(harness) == [late, branch]


def test_finishing_is_forced_like_any_stop() -> None:
    """Who does not wrap up in time ends with the owner's word all the same."""
    harness = Harness().open()
    harness.stop("main", "all merged", status=SessionStatus.COMPLETED)
    harness.pass_s(30)
    fact = harness.one(SessionEnded)
    assert (fact.status, fact.result.summary, fact.forced) == ("completed", "all merged", True)


def test_stopping_session_may_repeat_its_word() -> None:
    """Only a new one is recorded."""
    harness = family()
    harness.stop("main/b1")
    harness.offer("main/b1", word=result(summary="one"))
    harness.offer("main/b1", word=result(summary="one"))
    assert harness.facts == []
    harness.offer("main/b1", word=result(summary="two"))
    assert harness.one(ResultHeld).result.summary == "two"


def test_receipt_lists_every_descendant_in_path_order() -> None:
    """Branches before Workers, by number and not by letter; who lives has no final message yet."""
    harness = Harness().open(limits=Limits(max_children=20))
    for _ in range(10):
        harness.spawn("main", WORKER)
    harness.spawn("main", BRANCH)
    harness.spawn("main/b1", WORKER)
    harness.offer("main/w2", word=result(summary="two"))
    lines = build_receipt(harness.state, "main")
    names = [line.session_id for line in lines]
    assert names == ["main", "main/b1", "main/b1/w1", *(f"main/w{number}" for number in range(1, 11))]
    assert lines[4][:6] == ("main/w2", WORKER, SessionStatus.COMPLETED, False, "two", 0)
    assert lines[0][:6] == ("main", "main", SessionStatus.ACTIVE, False, "", 0)
    models = {row.name: row.model for row in harness.state.charter.agents}
    assert {(line.agent, line.model) for line in lines} == {
        (name, models[name]) for name in {each.spec.agent for each in harness.state.sessions.values()}
    }
    assert [line.session_id for line in build_receipt(harness.state, "main/b1")] == ["main/b1", "main/b1/w1"]


def test_receipt_counts_what_was_left_behind() -> None:
    """Also what is found after a session's end, and each time it leaves a host."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER)
    harness.feed(LeftoversFound(harness.now_ms, worker, 2))
    harness.offer(worker)
    harness.feed(LeftoversFound(harness.now_ms, worker, 3))
    assert harness.facts == [LeftoversEnded(worker, 3)]
    assert {line.session_id: line.leftovers for line in build_receipt(harness.state, "main")} == {
        "main": 0,
        worker: 5,
    }
    for session, count in ((worker, 0), ("main/w9", 1)):
        harness.feed(LeftoversFound(harness.now_ms, session, count))
        assert harness.facts == []


def test_there_is_no_receipt_for_nobody() -> None:
    """An unknown session is an error, not an empty answer."""
    with pytest.raises(SessionNotFound, match="main/b4"):
        build_receipt(Harness().open().state, "main/b4")


def test_interrupt_keeps_what_the_program_spawned_and_ends_what_a_model_did() -> None:
    """Each hears it once, parents first; nothing ends by it but what was asked to stop."""
    harness = Harness().open(limits=Limits(cancel_grace_s=30))
    harness.spawn("main", BRANCH)
    harness.spawn("main", WORKER, via="model")
    harness.spawn("main/b1", WORKER, via="model")
    harness.spawn("main/b1", WORKER)
    harness.interrupt("main", "enough")
    assert harness.one(InterruptBegun).sessions == ("main", "main/b1", "main/b1/w2")
    told = {each.session: each.stimulus for each in harness.found(Deliver)}
    assert told["main/b1"] == WorkInterrupted(0, "main/b1#1", "enough")
    assert harness.one(CancelBegun).sessions == ("main/w1", "main/b1/w1")
    harness.offer("main/b1", quiet=False)
    assert harness.session("main/b1").status == "suspended"


def test_interrupt_leaves_what_rests_alone() -> None:
    """It has nothing to drop: its result is there for who asks for it."""
    harness = Harness().open(limits=Limits(cancel_grace_s=30))
    harness.spawn("main", BRANCH, stays_open=True)
    harness.offer("main/b1", word=result("completed", "done"))
    harness.interrupt("main")
    assert harness.one(InterruptBegun).sessions == ("main",)
    harness.feed(ResultAsked(harness.now_ms, "main/b1"))
    assert ended(harness) == ["main/b1"]


def test_interrupt_withdraws_requests_and_passes_over_what_stops() -> None:
    """Nobody can approve any more what was wanted before; a session that stops goes on stopping."""
    harness = family()
    harness.stop("main/w1")
    harness.ask("main/b1")
    harness.interrupt("main")
    assert harness.one(InterruptBegun).sessions == ("main", "main/b1", "main/b1/w1")
    assert (harness.one(ApprovalDecided).decision, harness.one(ApprovalDecided).by) == ("cancelled", "stop")
    harness.stop("main")
    harness.interrupt("main")
    assert not harness.found(InterruptBegun)
