"""Approvals: strictly upward, decided once, bound to the call, gone with who asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sessiontree.contracts.errors import AnswerTooLate, PermissionDenied
from sessiontree.contracts.facts.stimuli import ApprovalAnswered, ApproverAsked
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalStepRecorded,
    ApprovalWaiting,
    DecisionRefused,
    DigestDenied,
    Posted,
    ToolAlwaysAllowed,
)
from sessiontree.contracts.recorded.approvals import ApprovalMode, ApprovalRequest, Rule
from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.report import show_request
from sessiontree.tree.state.protocol import Decided, Deliver, LiftAsked, RefuseDecision, WakeTreeAt
from tests.unit.tree.harness_fixtures import STRANGER, Harness
from tests.unit.tree.tree_fixtures import (
    BRANCH,
    IN_DOUBT,
    LOOKS,
    REMOVES,
    WORKER,
    approver_returned,
    question,
)

YES, NO = (Rule(answer="approve"),), (Rule(answer="deny"),)


def answer_of(harness: Harness) -> ApprovalAnswered:
    """Return the one answer delivered in the last step."""
    found = [each.stimulus for each in harness.found(Deliver)]
    answers = [mail for mail in found if isinstance(mail, ApprovalAnswered)]
    assert len(answers) == 1
    return answers[0]


def hops(harness: Harness) -> list[tuple[str, str, str]]:
    """Return who answered what by what in the last step."""
    return [(hop.session, hop.answer, hop.by) for hop in harness.found(ApprovalStepRecorded)]


@pytest.mark.covers("A13", "APP2")
def test_request_climbs_to_the_human() -> None:
    """Every session on the way escalates by default; the first with a channel shows it."""
    harness = Harness().open(limits=Limits(approval_expiry_s=60))
    inner = harness.spawn(harness.spawn("main", BRANCH), BRANCH)
    harness.now_ms = 5
    harness.ask(inner, n=1)
    assert hops(harness) == [("main/b1", "escalate", "rule")]
    assert harness.one(ApprovalWaiting) == ApprovalWaiting("r1", "main", "show")
    assert harness.told == [WakeTreeAt(60_005)]
    shown = ApprovalRequest(
        "r1", inner, "deploy", {"n": 1}, "d1", "Elevated", 60_005, "main", None, (STRANGER,)
    )
    assert show_request(harness.state, "r1") == shown
    harness.answer()
    assert hops(harness) == [("main", "approve", "person")]
    assert harness.one(ApprovalDecided) == ApprovalDecided("r1", "approved", "ada", "because")
    assert answer_of(harness) == ApprovalAnswered(5, "r1", "approved", "ada", "because")
    assert show_request(harness.state, "r1") is None


@pytest.mark.covers("S55", "APP13")
@pytest.mark.parametrize(("mode", "decision"), [("never", "denied"), ("auto", "approved")])
def test_two_modes_answer_at_once(mode: ApprovalMode, decision: str) -> None:
    """Nobody is asked, and the record says it was the mode."""
    harness = Harness().open(mode=mode, rules=NO if mode == "auto" else YES)
    harness.ask(harness.spawn("main", BRANCH))
    decided = harness.one(ApprovalDecided)
    assert (decided.decision, decided.by) == (decision, "mode")
    assert hops(harness) == []
    assert answer_of(harness).decision == decision


@pytest.mark.parametrize(("tool", "decision"), [("read", "approved"), ("write", "denied"), ("deploy", None)])
def test_smart_asks_a_person_only_for_what_no_rule_knows(tool: str, decision: str | None) -> None:
    """The owner's smart rules answer at the channel, before a person is asked."""
    rules = (Rule(tool="read", answer="approve"), Rule(tool="write", answer="deny"))
    harness = Harness().open(mode="smart", smart_rules=rules)
    harness.ask(harness.spawn("main", BRANCH), tool=tool)
    found = [fact.decision for fact in harness.found(ApprovalDecided)]
    assert found == ([] if decision is None else [decision])
    assert len(harness.shown()) == (decision is None)


def test_smart_rules_sleep_in_every_other_mode() -> None:
    """``always`` asks each time."""
    harness = Harness().open(mode="always", smart_rules=YES)
    harness.ask(harness.spawn("main", BRANCH))
    assert [fact.session for fact in harness.shown()] == ["main"]


def test_rules_of_the_nearest_ancestor_answer_first() -> None:
    """Main's rules say no, the parent's say yes: the parent is asked first."""
    harness = Harness().open(rules=NO)
    parent = harness.spawn("main", BRANCH, rules=YES)
    harness.ask(harness.spawn(parent, BRANCH))
    assert hops(harness) == [(parent, "approve", "rule")]
    assert answer_of(harness).decision == "approved"


def test_rules_look_at_the_arguments() -> None:
    """A rule that does not fit lets the request climb."""
    rules = (Rule(tool="dep*", where={"/n": "1"}, answer="approve"),)
    harness = Harness().open()
    asker = harness.spawn(harness.spawn("main", BRANCH, rules=rules), BRANCH)
    harness.ask(asker, "r1", n=2)
    assert [fact.session for fact in harness.shown()] == ["main"]
    harness.ask(asker, "r2", digest="d2", n=1)
    assert answer_of(harness).decision == "approved"


def test_nobody_answers_for_itself() -> None:
    """Rules and function of the session that asks are left out."""
    harness = Harness().open(owns_channel=False)
    asker = harness.spawn("main", BRANCH, rules=YES, approver="house:rules")
    harness.ask(asker)
    assert hops(harness) == [("main", "escalate", "rule")]
    assert harness.one(ApprovalDecided).by == "nobody"


def test_mains_rules_are_the_owners_and_answer_for_main() -> None:
    """The human is above Main."""
    harness = Harness().open(rules=(Rule(tool="read", answer="approve"),))
    harness.ask("main", "r1", tool="read")
    assert hops(harness) == [("main", "approve", "rule")]
    harness.ask("main", "r2", digest="d2")
    assert harness.shown() == [ApprovalWaiting("r2", "main", "show")]


def test_session_with_a_channel_of_its_own_asks_there() -> None:
    """A person sits at it: the first channel at or above who asks."""
    harness = Harness().open(rules=YES)
    asker = harness.spawn("main", BRANCH, rules=YES, owns_channel=True)
    harness.ask(asker)
    assert [fact.session for fact in harness.shown()] == [asker]
    harness.ask(harness.spawn(asker, WORKER), "r2", tool="read", digest="d2")
    assert hops(harness) == [(asker, "approve", "rule")]


def test_nobody_means_no_at_once() -> None:
    """Without a channel on the way nothing can be waited for, and the reason says so."""
    harness = Harness().open(owns_channel=False)
    inner = harness.spawn(harness.spawn("main", BRANCH), BRANCH)
    harness.ask(inner)
    assert [session for session, _, _ in hops(harness)] == ["main/b1", "main"]
    answer = answer_of(harness)
    assert (answer.decision, answer.by) == ("denied", "nobody")
    assert "nobody above 'main/b1/b1'" in answer.reason
    assert harness.state.open_requests == 0


def test_function_is_consulted_in_its_session() -> None:
    """The climb rests there; the rules of the same session come first."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules", rules=(Rule(tool="read", answer="deny"),))
    asker = harness.spawn(wise, BRANCH)
    harness.ask(asker, "r1", tool="read", digest="d0")
    assert hops(harness) == [(wise, "deny", "rule")]
    harness.ask(asker, "r2", n=1)
    assert harness.one(ApprovalWaiting) == ApprovalWaiting("r2", wise, "consult")
    wanted = question("r2", asker, "deploy", {"n": 1}, "d1", key="key of r2", asked_by=(STRANGER,))
    asked = ApproverAsked(0, wanted)
    assert harness.one(Deliver).stimulus == asked
    assert show_request(harness.state, "r2") is None
    harness.feed(approver_returned(0, wise, "r2", "approve", "small"))
    assert hops(harness) == [(wise, "approve", "function")]
    assert answer_of(harness) == ApprovalAnswered(0, "r2", "approved", "function", "small")


def test_function_that_escalates_lets_the_request_climb_on() -> None:
    """The next session up is asked, its own function too."""
    harness = Harness().open()
    outer = harness.spawn("main", BRANCH, approver="house:rules")
    inner = harness.spawn(outer, BRANCH, approver="house:rules")
    harness.ask(harness.spawn(inner, WORKER), tool="read")
    harness.feed(approver_returned(0, inner, "r1", "escalate", ""))
    assert harness.one(ApprovalWaiting) == ApprovalWaiting("r1", outer, "consult")
    harness.feed(approver_returned(0, outer, "r1", "escalate", ""))
    assert harness.one(ApprovalWaiting) == ApprovalWaiting("r1", "main", "show")


def test_function_beside_a_channel_comes_first() -> None:
    """What it does not answer is shown right there."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules", owns_channel=True)
    harness.ask(harness.spawn(wise, WORKER), tool="read")
    harness.feed(approver_returned(0, wise, "r1", "escalate", ""))
    assert [fact.session for fact in harness.shown()] == [wise]


@pytest.mark.parametrize("answer", ["", "yes", "APPROVE", "error"])
def test_function_that_babbles_says_no(answer: str) -> None:
    """Anything but the three words is a denial that names what came."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    harness.ask(harness.spawn(wise, BRANCH))
    harness.feed(approver_returned(0, wise, "r1", answer, "it raised"))
    got = answer_of(harness)
    assert got.decision == "denied"
    assert repr(answer) in got.reason and "it raised" in got.reason


def test_function_is_heard_once_and_only_where_it_is_asked() -> None:
    """Answers of strangers, for nothing, and after the decision change nothing."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    harness.ask(harness.spawn(wise, BRANCH))
    for session, request_id in (("main", "r1"), (wise, "r9")):
        harness.feed(approver_returned(0, session, request_id, "approve", ""))
        assert harness.facts == []
    harness.feed(approver_returned(0, wise, "r1", "deny", ""))
    harness.feed(approver_returned(0, wise, "r1", "approve", ""))
    assert harness.facts == []


@pytest.mark.covers("REL-L19", "APP6")
def test_one_decision_for_each_request() -> None:
    """Every later answer is refused with the state it came too late for."""
    harness = Harness().open()
    harness.ask(harness.spawn("main", BRANCH))
    harness.answer(approve=False)
    harness.answer(approve=True)
    assert harness.facts == []
    error = harness.one(RefuseDecision).error
    assert isinstance(error, AnswerTooLate)
    assert (error.request_id, error.state) == ("r1", "denied")


def test_person_answers_only_what_is_shown() -> None:
    """What rests at a function, or was never asked, is not theirs to decide."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    harness.ask(harness.spawn(wise, BRANCH))
    for request_id, state in (("r1", "waiting for a function"), ("r9", "unknown to this tree")):
        harness.answer(request_id)
        error = harness.one(RefuseDecision).error
        assert isinstance(error, AnswerTooLate) and error.state == state
        assert harness.facts == []


def test_request_is_asked_once() -> None:
    """The same id, from whomever, open or decided, is the same request."""
    harness = Harness().open()
    first, second = harness.spawn("main", BRANCH), harness.spawn("main", BRANCH)
    harness.ask(first)
    for asker in (first, second):
        harness.ask(asker)
        assert (harness.facts, harness.told) == ([], [])
    harness.answer()
    harness.ask(first)
    assert (harness.facts, harness.told) == ([], [])


def test_unanswered_request_expires() -> None:
    """The session hears of it with the reason; a person who comes later is informed."""
    harness = Harness().open(limits=Limits(approval_expiry_s=60))
    harness.ask(harness.spawn("main", BRANCH))
    harness.pass_s(59.999)
    assert harness.facts == []
    harness.pass_s(0.001)
    assert harness.one(ApprovalDecided).decision == "expired"
    assert answer_of(harness).reason == "nobody answered within 60 s"
    harness.answer()
    assert harness.one(RefuseDecision).error.args == ("approval", "r1", "expired")


def test_answer_that_comes_too_late_finds_the_request_expired() -> None:
    """Nobody rang, but the answer's own time says it is over; stepping back does not bring it back."""
    harness = Harness().open(limits=Limits(approval_expiry_s=60))
    harness.ask(harness.spawn("main", BRANCH))
    harness.now_ms = 60_000
    harness.answer()
    assert harness.one(ApprovalDecided).decision == "expired"
    assert harness.one(RefuseDecision).error.args == ("approval", "r1", "expired")
    harness.now_ms = 0
    harness.answer()
    assert harness.facts == []


@pytest.mark.covers("A13", "APP11")
def test_persons_no_binds_the_call_for_everybody_on_the_path() -> None:
    """The same digest is denied without asking again, for who asked and for all that climb through."""
    harness = Harness().open()
    first, second = harness.spawn("main", BRANCH), harness.spawn("main", BRANCH)
    harness.ask(first)
    harness.answer(approve=False)
    denied = harness.one(DigestDenied)
    assert (denied.digest, denied.sessions) == ("d1", (first, "main"))
    for number, asker in enumerate((first, second, "main")):
        harness.ask(asker, f"again{number}")
        assert hops(harness)[0][1:] == ("deny", "denial")
        assert answer_of(harness).decision == "denied"
    harness.ask(first, "other", digest="d2")
    assert [fact.request_id for fact in harness.shown()] == ["other"]


def test_no_binds_only_up_to_where_it_was_said() -> None:
    """A branch with its own channel says no for its part of the tree alone."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, owns_channel=True)
    asker, cousin = harness.spawn(branch, BRANCH), harness.spawn("main", BRANCH)
    harness.ask(asker)
    harness.answer(approve=False)
    assert harness.one(DigestDenied).sessions == (asker, branch)
    harness.ask(harness.spawn(branch, BRANCH), "r2")
    assert harness.one(ApprovalDecided).by == "denial"
    harness.ask(cousin, "r3")
    assert [fact.session for fact in harness.shown()] == ["main"]


@pytest.mark.covers("A13")
def test_no_reaches_equal_calls_that_wait() -> None:
    """They are denied in the same step, wherever on the path they rest; other calls wait on."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    first, second = harness.spawn("main", BRANCH), harness.spawn(wise, BRANCH)
    harness.ask(second, "r2")
    harness.ask(first, "r3", digest="d3")
    harness.ask(first, "r1")
    harness.answer("r1", approve=False)
    decided = {fact.request_id: (fact.decision, fact.by) for fact in harness.found(ApprovalDecided)}
    assert decided == {"r1": ("denied", "ada"), "r2": ("denied", "denial")}
    assert (
        ApprovalStepRecorded("r2", wise, "deny", "denial", "a person said no to this same call before")
        in harness.facts
    )


@pytest.mark.parametrize("by", ["rule", "function"])
def test_only_a_persons_no_binds(by: str) -> None:
    """Rules and functions answer again each time."""
    harness = Harness().open()
    given: dict[str, Any] = {"rules": NO} if by == "rule" else {"approver": "house:rules"}
    parent = harness.spawn("main", BRANCH, **given)
    harness.ask(harness.spawn(parent, BRANCH))
    if by == "function":
        harness.feed(approver_returned(0, parent, "r1", "deny", ""))
    assert harness.one(ApprovalDecided).decision == "denied"
    assert harness.found(DigestDenied) == []


def test_always_allows_a_tool_for_good() -> None:
    """What waits for it is approved too, and nobody is asked for it again; a bound no still holds."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    first, second = harness.spawn("main", BRANCH), harness.spawn(wise, BRANCH)
    harness.ask(first, "no", digest="d0")
    harness.answer("no", approve=False)
    harness.ask(first, "r1")
    harness.ask(second, "r2", digest="d2")
    harness.ask(second, "r3", tool="write", digest="d3")
    harness.answer("r1", always=True)
    assert harness.one(ToolAlwaysAllowed).tool == "deploy"
    decided = {fact.request_id: (fact.decision, fact.by) for fact in harness.found(ApprovalDecided)}
    assert decided == {"r1": ("approved", "ada"), "r2": ("approved", "always")}
    harness.ask(second, "r4", digest="d4")
    assert (harness.one(ApprovalDecided).by, hops(harness)) == ("always", [])
    harness.ask(first, "r5", digest="d0")
    assert harness.one(ApprovalDecided).by == "denial"


def test_always_for_a_command_covers_its_shape_alone() -> None:
    """REL-L14: the same programs with arguments of the same shape, waiting or later; nothing else."""
    harness = Harness().open()
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker, "r1", precedent=LOOKS)
    harness.ask(asker, "r2", digest="d2", precedent=LOOKS)
    harness.ask(asker, "r3", digest="d3", precedent=REMOVES)
    harness.answer("r1", always=True)
    assert harness.one(ToolAlwaysAllowed) == ToolAlwaysAllowed("deploy", ("ls",))
    assert {fact.request_id: fact.by for fact in harness.found(ApprovalDecided)} == {
        "r1": "ada",
        "r2": "always",
    }
    harness.ask(asker, "r4", digest="d4", precedent=LOOKS)
    assert (harness.one(ApprovalDecided).by, "ls" in harness.one(ApprovalDecided).reason) == ("always", True)
    for name, precedent in {"r5": REMOVES, "r6": IN_DOUBT, "r7": None}.items():
        harness.ask(asker, name, digest=name, precedent=precedent)
        assert harness.one(ApprovalWaiting).how == "show"
    harness.ask(asker, "r8", tool="write", digest="d8", precedent=LOOKS)
    assert harness.one(ApprovalWaiting).how == "show"
    shown = {name: show_request(harness.state, name) for name in ("r3", "r6", "r7")}
    assert [each and each.covers for each in shown.values()] == [("ls", "rm x"), (), None]
    harness.answer("r3", always=True)
    assert harness.one(ToolAlwaysAllowed).covers == ("ls", "rm x")


def test_always_for_a_command_in_doubt_is_a_plain_yes() -> None:
    """What can't be judged is asked about each time."""
    harness = Harness().open()
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker, "r1", precedent=IN_DOUBT)
    harness.answer("r1", always=True)
    assert harness.found(ToolAlwaysAllowed) == []
    assert harness.one(ApprovalDecided).decision == "approved"
    harness.ask(asker, "r2", precedent=IN_DOUBT)
    assert harness.one(ApprovalWaiting).how == "show"


@pytest.mark.parametrize("mode", ["smart", "always"])
def test_smart_says_yes_to_harmless_commands(mode: ApprovalMode) -> None:
    """And shows the others; the mode that asks each time asks about harmless ones too."""
    harness = Harness().open(mode=mode)
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker, "r1", precedent=LOOKS)
    assert len(harness.found(ApprovalDecided)) == (1 if mode == "smart" else 0)
    for name, precedent in {"r2": REMOVES, "r3": IN_DOUBT}.items():
        harness.ask(asker, name, digest=name, precedent=precedent)
        assert harness.one(ApprovalWaiting).how == "show"


def test_smart_rule_comes_before_what_is_known() -> None:
    """The owner may forbid even what is harmless."""
    harness = Harness().open(mode="smart", smart_rules=NO)
    harness.ask(harness.spawn("main", BRANCH), precedent=LOOKS)
    assert (harness.one(ApprovalDecided).decision, harness.one(ApprovalDecided).by) == ("denied", "mode")


def test_no_for_always_is_a_plain_no() -> None:
    """Denying every later call of a tool is not on offer."""
    harness = Harness().open()
    harness.ask(harness.spawn("main", BRANCH))
    harness.answer(approve=False, always=True)
    assert harness.found(ToolAlwaysAllowed) == []


def test_stop_cancels_what_waits_and_says_so() -> None:
    """The session hears of it, so that it can wrap up; nothing stays on the screen."""
    harness = Harness().open()
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker)
    harness.stop(asker)
    assert harness.one(ApprovalDecided).decision == "cancelled"
    assert answer_of(harness).decision == "cancelled"


def test_stopping_session_gets_no_approval() -> None:
    """Its request is taken in and cancelled at once, without a climb."""
    harness = Harness().open(rules=YES)
    asker = harness.spawn("main", BRANCH)
    harness.stop(asker)
    harness.ask(asker)
    assert [type(fact) for fact in harness.facts] == [ApprovalRequested, ApprovalDecided, Posted]
    assert answer_of(harness).decision == "cancelled"


def test_consulted_ancestor_that_stops_takes_its_askers_along() -> None:
    """Whoever is below it stops as well, so nothing is left to climb on; late answers change nothing."""
    harness = Harness().open()
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    harness.ask(harness.spawn(wise, BRANCH))
    harness.stop(wise)
    assert harness.one(ApprovalDecided).decision == "cancelled"
    harness.feed(approver_returned(0, wise, "r1", "approve", ""))
    assert harness.facts == []


@pytest.mark.parametrize(("approve", "always"), [(True, False), (True, True), (False, False)])
def test_only_an_owner_decides(approve: bool, always: bool) -> None:
    """Another person's answer is recorded and refused; the request waits on, and an owner decides it."""
    harness = Harness().open()
    harness.ask(harness.spawn("main", BRANCH))
    harness.feed(Decided(0, "r1", approve, always, "bob", "", STRANGER))
    assert harness.facts == [DecisionRefused("r1", STRANGER, approve)]
    refusal = harness.one(RefuseDecision).error
    assert isinstance(refusal, PermissionDenied)
    assert "'bob' answered approval r1, and owns nothing" in str(refusal)
    assert show_request(harness.state, "r1") is not None
    harness.feed(Decided(0, "r1", approve, always, "ada", "", replace(STRANGER, id="ada", is_owner=True)))
    assert harness.one(ApprovalDecided).decision == ("approved" if approve else "denied")
    assert len(harness.found(ToolAlwaysAllowed)) == always


@pytest.mark.parametrize(
    ("approve", "state"), [(True, "approved"), (None, "unknown to this tree")], ids=["approved", "unknown"]
)
def test_only_a_denial_is_lifted(approve: bool | None, state: str) -> None:
    """Anything else is refused with what became of the request."""
    harness = Harness().open()
    if approve is not None:
        harness.ask(harness.spawn("main", BRANCH))
        harness.answer(approve=approve)
    harness.feed(LiftAsked(0, "r1", "ada"))
    assert harness.facts == []
    error = harness.one(RefuseDecision).error
    assert isinstance(error, AnswerTooLate)
    assert (error.request_id, error.state) == ("r1", state)


def test_smart_answers_where_nobody_is_left_to_ask() -> None:
    """Without a channel, its rules and what is known to be harmless count at the top of the tree."""
    harness = Harness().open(
        mode="smart", smart_rules=(Rule(tool="read", answer="approve"),), owns_channel=False
    )
    asker = harness.spawn("main", BRANCH)
    harness.ask(asker, "r1", tool="read", digest="d1")
    assert hops(harness)[-1] == ("main", "approve", "mode")
    harness.ask(asker, "r2", digest="d2", precedent=LOOKS)
    assert hops(harness)[-1] == ("main", "approve", "mode")
    harness.ask(asker, "r3", digest="d3")
    decided = harness.one(ApprovalDecided)
    assert (decided.decision, decided.by) == ("denied", "nobody")
