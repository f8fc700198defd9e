"""How many approval requests of a tree may wait: no more than the limit says, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.facts.stimuli import ApprovalAnswered, ApproverAsked
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ApprovalWaiting
from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.state.protocol import Deliver
from tests.example_fixtures import examples
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "ask", "approve", "deny", "expire"]), st.integers(0, 9)),
    max_size=14,
)
EXPIRY_S = 60.0


def answered(harness: Harness) -> list[str]:
    """Return the requests whose answer the last step delivered."""
    found = [each.stimulus for each in harness.found(Deliver)]
    return [mail.request_id for mail in found if isinstance(mail, ApprovalAnswered)]


def keeps_room(given_limit: int | None, expected: int, steps: list[Step]) -> None:
    """The rule: a request waits while there is room; else it is denied at once, and says why."""
    harness = Harness().open(limits=Limits(max_open_approvals=given_limit, approval_expiry_s=EXPIRY_S))
    branch = harness.spawn("main", BRANCH)
    waiting: list[str] = []
    asked = 0
    for kind, number in steps:
        if kind == "ask":
            name, asked = f"r{asked}", asked + 1
            harness.ask(branch if number % 2 else "main", name, digest=f"d{name}")
            if len(waiting) < expected:
                assert harness.one(ApprovalWaiting).request_id == name
                waiting.append(name)
            else:
                decided = harness.one(ApprovalDecided)
                assert (decided.request_id, decided.decision, decided.by) == (name, "denied", "limit")
                assert f"max_open_approvals is {expected}" in decided.reason
                assert answered(harness) == [name]
                assert harness.found(ApprovalWaiting) == []
        elif kind == "expire":
            harness.pass_s(EXPIRY_S + 1)
            assert sorted(answered(harness)) == sorted(waiting)
            waiting.clear()
        elif waiting:
            name = waiting.pop(number % len(waiting))
            harness.answer(name, approve=kind == "approve")
            assert answered(harness) == [name]
        assert harness.state.open_requests == len(waiting) <= expected


@settings(max_examples=examples(60), database=None)
@given(st.integers(1, 4), STEPS)
def test_requests_wait_while_there_is_room(most: int, steps: list[Step]) -> None:
    """An answer, a denial and the time each free the room of one."""
    keeps_room(most, most, steps)


def test_planted_tree_without_a_limit_is_found() -> None:
    """The rule notices a request too many."""
    with pytest.raises(AssertionError):
        keeps_room(None, 2, [("ask", 0)] * 3)


def test_what_needs_nobody_needs_no_room() -> None:
    """What a mode or an earlier *always* answers is answered, however many wait."""
    harness = Harness().open(limits=Limits(max_open_approvals=1))
    harness.ask("main", "r0", tool="deploy", digest="d0")
    harness.ask("main", "r1", tool="other", digest="d1")
    assert harness.one(ApprovalDecided).by == "limit"
    harness.answer("r0", always=True)
    harness.ask("main", "r2", tool="other", digest="d2")
    harness.ask("main", "r3", tool="deploy", digest="d3")
    assert harness.one(ApprovalDecided).decision == "approved"


def test_approver_is_not_asked_about_a_request_without_room() -> None:
    """The denial says that nobody was asked; a request that has room still asks the function."""
    harness = Harness().open(limits=Limits(max_open_approvals=1))
    wise = harness.spawn("main", BRANCH, approver="house:rules")
    asker = harness.spawn(wise, BRANCH)
    harness.ask(asker, "r0", digest="d0")
    assert asked_approvers(harness) == [wise]
    harness.ask(asker, "r1", digest="d1")
    assert harness.one(ApprovalDecided).by == "limit"
    assert answered(harness) == ["r1"]
    assert asked_approvers(harness) == []


def asked_approvers(harness: Harness) -> list[str]:
    """Return the sessions whose functions the last step asks."""
    found = harness.found(Deliver)
    return [each.session for each in found if isinstance(each.stimulus, ApproverAsked)]
