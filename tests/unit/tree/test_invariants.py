"""The check of a whole state notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sessiontree.contracts.facts.stimuli import CancelAsked
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.settings.settings import Budget, Limits
from sessiontree.tree.state.state import Alarms, Post, Stop, TreeState, make_initial_tree
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, WORKER, result
from tests.unit.tree.tree_invariant_oracle import check_invariants


def sound() -> TreeState:
    """Return a state with a bit of everything."""
    harness = Harness().open(budget=Budget(tokens=9))
    branch = harness.spawn("main", BRANCH, label="scout")
    harness.spawn(branch, WORKER, budget=Budget(tokens=5))
    harness.ask(branch)
    harness.offer(harness.spawn("main", WORKER, via="model"))
    return harness.state


def widen(state: TreeState) -> None:
    """Give a child a tool its parent lacks."""
    worker = state.sessions["main/b1/w1"]
    worker.spec = replace(worker.spec, tools=("read", "search"))
    branch = state.sessions["main/b1"]
    branch.spec = replace(branch.spec, tools=("read",))


def give_kind_tools(state: TreeState) -> None:
    """Give a Worker a tool its kind lacks."""
    worker = state.sessions["main/b1/w1"]
    worker.spec = replace(worker.spec, tools=("write",))


def let_model_approve(state: TreeState) -> None:
    """Let a model's child own a channel."""
    worker = state.sessions["main/w1"]
    worker.spec = replace(worker.spec, owns_channel=True)


def forget_children(state: TreeState) -> None:
    """Lose a child from its parent's group."""
    state.children.discard("main", "main/b1")


def tighten(state: TreeState) -> None:
    """Have more sessions than may live."""
    state.config = replace(state.charter, limits=Limits(max_live=1))


def outlive(state: TreeState) -> None:
    """Let a session end that has no time to live."""
    branch = state.sessions["main/b1"]
    branch.spec = replace(branch.spec, ttl_s=None)
    branch.expires_at_ms = 2_000_000


def miscount_pending(state: TreeState) -> None:
    """Forget that a session waits."""
    state.sessions["main/b1"].pending = 0


def stray(state: TreeState) -> None:
    """Let a request rest alongside its path."""
    state.requests["r1"].rests_at = "main/w1"


def decide_twice(state: TreeState) -> None:
    """Have a request that is open and decided."""
    state.decisions.put("r1", "denied")


def deny_and_wait(state: TreeState) -> None:
    """Let a request wait that a person said no to."""
    state.denied.put(("d1", "main"), True)


def owe_the_dead(state: TreeState) -> None:
    """Owe something to a session that has ended."""
    state.posts.put("p", Post("main/w1", CancelAsked(0, "", "cancelled")))


def go_on_below_a_stop(state: TreeState) -> None:
    """Stop a parent alone."""
    state.sessions["main"].stop = Stop(SessionStatus.CANCELLED, "", 9)


def hold_for_ever(state: TreeState) -> None:
    """Be active with a final message."""
    state.sessions["main"].held = result()


def count_less_than_set_aside(state: TreeState) -> None:
    """Set aside more than is counted."""
    state.accounts["main"].used["tokens"] = 4


def overspend(state: TreeState) -> None:
    """Go on beyond a cap."""
    state.accounts["main"].used["tokens"] = 10


def lose_bells(state: TreeState) -> None:
    """Forget every alarm."""
    state.alarms = Alarms()


BROKEN: list[tuple[Callable[[TreeState], None], str]] = [
    (widen, "its parent lacks"),
    (give_kind_tools, "its kind or agent lacks"),
    (let_model_approve, "could approve"),
    (forget_children, "live children of main"),
    (tighten, "at most 1"),
    (outlive, "ends at a time that nobody set"),
    (miscount_pending, "open requests"),
    (stray, "outside its path"),
    (decide_twice, "open and decided"),
    (deny_and_wait, "was denied"),
    (owe_the_dead, "who has ended"),
    (go_on_below_a_stop, "goes on below"),
    (hold_for_ever, "word is held"),
    (count_less_than_set_aside, "set aside more"),
    (overspend, "beyond its tokens"),
    (lose_bells, "nothing rings"),
]


@pytest.mark.parametrize(("spoil", "complaint"), BROKEN)
def test_spoilt_state_is_noticed(spoil: Callable[[TreeState], None], complaint: str) -> None:
    """Sound before, named after."""
    state = sound()
    check_invariants(state)
    spoil(state)
    with pytest.raises(AssertionError, match=complaint):
        check_invariants(state)


def test_nothing_at_all_is_sound() -> None:
    """A tree that was never created holds nothing, and has no configuration to ask for."""
    check_invariants(make_initial_tree())
    with pytest.raises(LookupError, match="no tree"):
        make_initial_tree().limits.model_dump()
