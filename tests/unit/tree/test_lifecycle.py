"""How sessions rest and end by their own word, by their children's, and by crashing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree.contracts.facts.session_facts import ToolGivenUp
from sessiontree.contracts.facts.stimuli import ApprovalAnswered, ApproverAsked, ChildTroubled, Incoming
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    CancelBegun,
    ChannelSaid,
    Posted,
    PostsTaken,
    ResultAwaited,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.protocol import (
    Deliver,
    PostsConsumed,
    ReleaseSession,
    ResultAsked,
    SessionLost,
    Stirred,
    StopAsked,
    UsageReported,
)
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, WORKER, result, result_offered, trouble_reported


def take_all(harness: Harness, session: str) -> None:
    """Let a session take everything it is owed."""
    posts = harness.state.owed_to.list_members(session)
    harness.feed(PostsConsumed(harness.now_ms, session, tuple(posts)))


def test_main_never_completes_by_itself() -> None:
    """It is suspended by its final message and active again by the next message."""
    harness = Harness().open()
    harness.offer("main")
    assert harness.facts == [ResultHeld("main", result())]
    assert harness.session("main").status == "suspended"
    harness.feed(Stirred(0, "main"))
    assert harness.facts == [SessionReactivated("main")]
    assert harness.session("main").status == "active"


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired"])
def test_main_ends_by_any_other_word_and_its_children_stop(status: str) -> None:
    """A Main that cannot go on ends, even above live children; they are informed."""
    harness = Harness().open()
    child = harness.spawn("main", BRANCH)
    harness.offer("main", word=result(status))
    assert harness.one(SessionEnded).status == status
    assert harness.one(CancelBegun).sessions == (child,)


def test_session_ends_by_its_word_when_nothing_is_pending() -> None:
    """Its host is free and who waits for it gets the result."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER)
    word = result(summary="found it", output={"n": 1})
    harness.offer(worker, word=word)
    assert harness.facts == [SessionEnded(worker, word.status, word, 0, False)]
    assert harness.told == [ReleaseSession(worker, word, False)]


def test_failed_word_of_a_branch_waits_as_well() -> None:
    """A child's result may yet bring it further."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    harness.spawn(branch, WORKER)
    harness.offer(branch, word=result("failed"))
    assert harness.session(branch).status == "suspended"


def test_word_that_is_not_quiet_needs_another() -> None:
    """Input is on its way: only a new word, given after it, can end the session."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    worker = harness.spawn(branch, WORKER)
    harness.offer(branch, quiet=False)
    harness.offer(branch, quiet=False)
    assert harness.facts == []
    harness.offer(worker)
    assert harness.session(branch).is_live
    harness.offer(branch)
    assert not harness.session(branch).is_live


def test_branch_ends_with_its_last_child() -> None:
    """It had said its word; a child of a handle tells its parent nothing, so the word holds."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    first, last = harness.spawn(branch, WORKER), harness.spawn(branch, WORKER)
    harness.offer(branch, word=result(summary="both run"))
    harness.offer(first)
    assert harness.session(branch).status == "suspended"
    harness.offer(last)
    assert [fact.session for fact in harness.found(SessionEnded)] == [last, branch]
    ended = harness.session(branch).result
    assert ended is not None and ended.summary == "both run"


def test_whole_branch_ends_with_its_last_leaf() -> None:
    """Every session on the way up that waited for it ends in the same step."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    inner = harness.spawn(branch, BRANCH)
    leaf = harness.spawn(inner, WORKER)
    harness.offer(branch)
    harness.offer(inner)
    harness.offer(leaf)
    assert [fact.session for fact in harness.found(SessionEnded)] == [leaf, inner, branch]


def test_models_child_reports_to_its_parent() -> None:
    """The parent reads compact JSON as a follow-up; letters of every script stay as they are."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER, via="model", label="розвідник")
    artifacts = (Artifact("file", "notes", path="notes.md"), Artifact("reference", "elsewhere", uri="x:1"))
    harness.offer(worker, word=result(summary="готово", output={"n": 1}, artifacts=artifacts))
    incoming = harness.one(Deliver).stimulus
    assert isinstance(incoming, Incoming)
    assert (incoming.mode, incoming.origin, incoming.message_id) == ("follow_up", "child", "main#1")
    assert json.loads(incoming.text) == {
        "session": worker,
        "label": "розвідник",
        "status": "completed",
        "summary": "готово",
        "output": {"n": 1},
        "artifacts": ["notes.md"],
    }
    assert "готово" in incoming.text and ": " not in incoming.text


def test_report_names_only_what_there_is() -> None:
    """Without output and artifacts, neither is in it."""
    harness = Harness().open()
    harness.offer(harness.spawn("main", WORKER, via="model"))
    incoming = harness.one(Deliver).stimulus
    assert isinstance(incoming, Incoming)
    assert set(json.loads(incoming.text)) == {"session", "label", "status", "summary"}


def test_report_withdraws_the_parents_word() -> None:
    """The parent has something new to think about and says its word again after it took it."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    worker = harness.spawn(branch, WORKER, via="model")
    harness.offer(branch)
    harness.offer(worker)
    assert harness.found(SessionReactivated) == [SessionReactivated(branch)]
    take_all(harness, branch)
    assert harness.session(branch).status == "active"
    harness.offer(branch)
    assert not harness.session(branch).is_live


def test_handles_child_tells_its_parent_nothing() -> None:
    """Its result goes to the handle alone."""
    harness = Harness().open()
    harness.offer(harness.spawn("main", WORKER, via="handle"))
    assert harness.found(Posted) == []


def test_word_waits_for_what_is_owed() -> None:
    """Posts not taken hold it; the last one taken ends the session."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    harness.offer(harness.spawn(branch, WORKER, via="model"))
    harness.offer(harness.spawn(branch, WORKER, via="model"))
    harness.offer(branch)
    assert harness.session(branch).status == "suspended"
    first, second = harness.state.owed_to.list_members(branch)
    harness.feed(PostsConsumed(0, branch, (first,)))
    assert harness.session(branch).is_live
    harness.feed(PostsConsumed(0, branch, (first, second)))
    assert harness.found(PostsTaken) == [PostsTaken(branch, (second,))]
    assert not harness.session(branch).is_live


def test_stranger_takes_nothing() -> None:
    """Posts belong to one session; unknown ids and ids taken before are passed over."""
    harness = Harness().open()
    harness.offer(harness.spawn("main", WORKER, via="model"))
    branch = harness.spawn("main", BRANCH)
    harness.feed(PostsConsumed(0, branch, ("main#1", "main#9")))
    assert harness.facts == []
    assert harness.state.owed_to.list_members("main") == ["main#1"]


def test_word_waits_for_its_own_approval() -> None:
    """The answer withdraws it: the outcome is news."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    harness.ask(branch)
    harness.offer(branch)
    assert harness.session(branch).status == "suspended"
    harness.answer()
    assert harness.found(SessionReactivated) == [SessionReactivated(branch)]
    assert isinstance(harness.one(Deliver).stimulus, ApprovalAnswered)


def test_being_consulted_leaves_a_word_standing() -> None:
    """A session answers for others in addition to its own work."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    asker = harness.spawn(wise, BRANCH)
    harness.offer(wise)
    harness.ask(asker)
    assert isinstance(harness.one(Deliver).stimulus, ApproverAsked)
    assert harness.session(wise).status == "suspended"


def test_new_input_withdraws_a_word() -> None:
    """A suspended Branch is active again and does not end with its last child."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    worker = harness.spawn(branch, WORKER)
    harness.offer(branch)
    harness.feed(Stirred(0, branch))
    harness.offer(worker)
    assert harness.session(branch).status == "active"


def test_who_is_active_cannot_be_stirred() -> None:
    """Nothing changes, so nothing is recorded."""
    harness = Harness().open()
    harness.feed(Stirred(0, "main"))
    assert harness.facts == []


def test_crash_names_itself_and_stops_what_is_below() -> None:
    """The session fails by force, its usage so far is in its result, its children are cancelled."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, via="model")
    worker = harness.spawn(branch, WORKER)
    harness.feed(UsageReported(0, branch, Usage(input_tokens=5, turns=1)))
    harness.feed(SessionLost(0, branch, "host3 was killed"))
    ended = harness.one(SessionEnded)
    assert (ended.session, ended.status, ended.forced) == (branch, "failed", True)
    assert "host3 was killed" in ended.result.summary
    assert ended.result.usage == Usage(input_tokens=5, turns=1)
    begun = harness.one(CancelBegun)
    assert (begun.sessions, begun.status) == ((worker,), "cancelled")
    assert "main#1" in harness.state.posts


def test_result_for_a_dead_parent_is_dropped() -> None:
    """The end is in the record; nobody is informed."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    worker = harness.spawn(branch, WORKER, via="model")
    harness.feed(SessionLost(0, branch, "gone"))
    harness.offer(worker)
    assert [type(fact) for fact in harness.facts] == [SessionEnded]


def test_branch_waits_for_orphans_below_it() -> None:
    """Its child crashed, but a grandchild still wraps up: the branch ends after it."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    inner = harness.spawn(branch, BRANCH)
    leaf = harness.spawn(inner, WORKER)
    harness.feed(SessionLost(0, inner, "gone"))
    harness.offer(branch)
    assert harness.session(branch).status == "suspended"
    harness.offer(leaf)
    assert [fact.session for fact in harness.found(SessionEnded)] == [leaf, branch]


def test_end_cancels_requests_and_drops_posts() -> None:
    """Nothing of a session stays pending, and nothing more is posted to it."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    harness.offer(harness.spawn(branch, WORKER, via="model"))
    harness.ask(branch)
    harness.feed(SessionLost(0, branch, "gone"))
    assert harness.one(ApprovalDecided).decision == "cancelled"
    assert harness.found(Posted) == []
    assert harness.state.owed_to.list_members(branch) == []


@pytest.mark.parametrize("name", ["main/b1", "main/b9"])
def test_who_does_not_live_is_heard_no_more(name: str) -> None:
    """Everything late about an ended or unknown session changes nothing."""
    harness = Harness().open()
    harness.offer(harness.spawn("main", BRANCH))
    for stimulus in (
        result_offered(0, name, result(), True),
        SessionLost(0, name, "gone"),
        Stirred(0, name),
        trouble_reported(0, name, "read", 3, None, "no"),
        PostsConsumed(0, name, ("main#1",)),
    ):
        harness.feed(stimulus)
        assert (harness.facts, harness.told) == ([], [])
    harness.ask(name)
    assert (harness.facts, harness.told) == ([], [])


def test_no_session_ends_in_a_state_that_is_not_final() -> None:
    """A result says how a session ended, or it is not valid."""
    harness = Harness().open()
    with pytest.raises(ValueError, match="not a final state"):
        harness.offer("main", word=result("active"))


def test_trouble_goes_to_the_parent() -> None:
    """The parent learns what its child gave up."""
    harness = Harness().open()
    worker = harness.spawn("main", WORKER)
    harness.feed(trouble_reported(4, worker, "read", 3, "/path", "is no text"))
    assert harness.one(Deliver).stimulus == ChildTroubled(
        4, "main#1", worker, ToolGivenUp("read", 3, "/path", "is no text")
    )


def test_trouble_of_an_orphan_is_told_to_nobody() -> None:
    """Its parent has ended."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    worker = harness.spawn(branch, WORKER)
    harness.feed(SessionLost(0, branch, "gone"))
    harness.feed(trouble_reported(0, worker, "read", 3, None, "no"))
    assert harness.facts == []


def test_when_main_crashes_the_tree_ends() -> None:
    """Whatever lives below is informed, and forced after the grace."""
    harness = Harness().open()
    worker = harness.spawn(harness.spawn("main", BRANCH), WORKER)
    harness.feed(SessionLost(0, "main", "gone"))
    assert harness.one(CancelBegun).sessions == ("main/b1", worker)
    harness.pass_s(30)
    assert [fact.session for fact in harness.found(SessionEnded)] == [worker, "main/b1"]
    assert harness.state.live == 0


@pytest.mark.parametrize("owns_channel", [True, False])
def test_trouble_of_main_is_said_on_its_channel(owns_channel: bool) -> None:
    """Main has no parent; where it has a channel, people hear of it."""
    harness = Harness().open(owns_channel=owns_channel)
    harness.feed(trouble_reported(4, "main", "read", 3, "/path", "is no text"))
    assert len(harness.found(ChannelSaid)) == owns_channel
    assert harness.found(Posted) == []


def stays(harness: Harness, parent: str = "main", **given: Any) -> str:
    """Spawn a Branch that stays open for the program."""
    return harness.spawn(parent, BRANCH, via="handle", stays_open=True, **given)


def test_what_stays_open_completes_when_its_result_is_asked_for() -> None:
    """Its word is kept until then; asked first, it ends with the word."""
    harness = Harness().open()
    late, early = stays(harness), stays(harness)
    harness.offer(late)
    assert harness.facts == [ResultHeld(late, result())]
    harness.feed(ResultAsked(0, late))
    assert harness.facts[0] == ResultAwaited(late)
    assert harness.one(SessionEnded).session == late
    harness.feed(ResultAsked(0, early))
    assert harness.facts == [ResultAwaited(early)]
    harness.feed(ResultAsked(0, early))
    assert harness.facts == []
    harness.offer(early)
    assert harness.one(SessionEnded).session == early


def test_what_stays_open_below_is_released_from_above() -> None:
    """One question for a result lets everything below it complete, leaves first."""
    harness = Harness().open()
    top = stays(harness)
    inner = stays(harness, top)
    leaf = stays(harness, inner)
    for name in (leaf, inner, top):
        harness.offer(name)
    harness.feed(ResultAsked(0, top))
    assert [fact.session for fact in harness.facts if isinstance(fact, SessionEnded)] == [leaf, inner, top]


def test_nothing_stays_open_below_what_does_not() -> None:
    """Nor for a model: it can't ask for that."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    below = stays(harness, branch)
    harness.offer(below)
    assert harness.one(SessionEnded).session == below
    spawned = harness.spawn("main", BRANCH, via="model", stays_open=True)
    harness.offer(spawned)
    assert harness.one(SessionEnded).session == spawned


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired"])
def test_only_what_completes_stays_open(status: str) -> None:
    """Any other word is the end."""
    harness = Harness().open()
    branch = stays(harness)
    harness.offer(branch, word=result(status))
    assert harness.one(SessionEnded).status == status


def test_what_stayed_open_is_completed_by_any_stop() -> None:
    """It had done its work; what had not is asked to stop."""
    harness = Harness().open()
    done, busy = stays(harness), stays(harness)
    harness.offer(done)
    harness.feed(StopAsked(0, "main", "enough", SessionStatus.CANCELLED))
    ended = harness.one(SessionEnded)
    assert (ended.session, ended.status) == (done, "completed")
    assert harness.one(CancelBegun).sessions == ("main", busy)
