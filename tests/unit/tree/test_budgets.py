"""Budgets: set aside whole, charged exactly, returned, and the stop at the cap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import LimitExceeded
from sessiontree.contracts.facts.tree_facts import BudgetSpent, CancelBegun, SessionEnded, UsageCharged
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.decide import react
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.protocol import SessionLost, SpawnAsked, TreeOpened, UsageReported, WakeTreeAt
from sessiontree.tree.state.state import make_initial_tree
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, WORKER, config, result, result_offered


def use(harness: Harness, session: str, **usage: Any) -> None:
    """Report what a session used."""
    harness.feed(UsageReported(harness.now_ms, session, Usage(**usage)))


def test_without_budgets_nothing_is_capped() -> None:
    """Usage is recorded all the same."""
    harness = Harness().open()
    use(harness, "main", input_tokens=10**9, turns=1)
    assert harness.one(UsageCharged).account == "main"
    assert compute_remaining(harness.state, "main") == {}
    assert compute_remaining(harness.state, "main/b4") == {}
    assert harness.session("main").usage == Usage(input_tokens=10**9, turns=1)


def test_childs_budget_is_set_aside_whole_and_the_rest_comes_back() -> None:
    """What it spent is gone for its parent too, no more and no less."""
    harness = Harness().open(budget=Budget(tokens=100, cost_usd=1.0, tool_calls=10, sessions=5))
    child = harness.spawn("main", BRANCH, budget=Budget(tokens=40, cost_usd=0.3, sessions=2))
    assert compute_remaining(harness.state, "main") == {
        "tokens": 60,
        "cost_usd": 0.7,
        "tool_calls": 10,
        "sessions": 2,
    }
    assert compute_remaining(harness.state, child) == {
        "tokens": 40,
        "cost_usd": 0.3,
        "tool_calls": 10,
        "sessions": 2,
    }
    use(harness, child, input_tokens=5, output_tokens=10, cost_usd=0.1, tool_calls=3)
    assert compute_remaining(harness.state, child) == {
        "tokens": 25,
        "cost_usd": 0.2,
        "tool_calls": 7,
        "sessions": 2,
    }
    harness.offer(child)
    assert compute_remaining(harness.state, "main") == {
        "tokens": 85,
        "cost_usd": 0.9,
        "tool_calls": 7,
        "sessions": 4,
    }


def test_child_without_a_budget_draws_on_its_parents() -> None:
    """Through as many levels as there are."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, budget=Budget(tokens=100))
    worker = harness.spawn(harness.spawn(branch, BRANCH), WORKER)
    use(harness, worker, input_tokens=30)
    assert harness.one(UsageCharged).account == branch
    assert compute_remaining(harness.state, branch) == {"tokens": 70}
    assert compute_remaining(harness.state, "main") == {}


@pytest.mark.parametrize(
    ("asked", "limit", "used", "allowed"),
    [
        (Budget(tokens=61), "budget.tokens", 101, 100),
        (Budget(cost_usd=0.71), "budget.cost_usd", 1.01, 1.0),
        (Budget(tool_calls=11), "budget.tool_calls", 11, 10),
        (Budget(sessions=3), "budget.sessions", 6, 5),
    ],
)
def test_more_than_is_left_is_refused(asked: Budget, limit: str, used: float, allowed: float) -> None:
    """The answer names the member; nothing was set aside."""
    harness = Harness().open(budget=Budget(tokens=100, cost_usd=1.0, tool_calls=10, sessions=5))
    harness.spawn("main", BRANCH, budget=Budget(tokens=40, cost_usd=0.3, sessions=1))
    before = compute_remaining(harness.state, "main")
    error = harness.refused("main", BRANCH, budget=asked)
    assert isinstance(error, LimitExceeded)
    assert (error.limit, error.used, error.allowed) == (limit, used, allowed)
    assert compute_remaining(harness.state, "main") == before


def test_sessions_are_counted_for_good() -> None:
    """An end gives none back."""
    harness = Harness().open(budget=Budget(sessions=2))
    harness.offer(harness.spawn("main", WORKER))
    harness.offer(harness.spawn("main", WORKER))
    assert harness.refused("main", WORKER).limit == "budget.sessions"


def test_free_model_runs_on_no_money() -> None:
    """A cap of zero stops the first who spends, and nobody else."""
    harness = Harness().open(budget=Budget(cost_usd=0))
    worker = harness.spawn("main", WORKER)
    use(harness, worker, input_tokens=1000)
    assert harness.found(BudgetSpent) == []
    use(harness, worker, cost_usd=0.0001)
    assert harness.one(BudgetSpent).limit == "budget.cost_usd"


def test_at_its_cap_an_account_stops_with_all_that_draws_on_it() -> None:
    """They fail, the reason names the limit, and the rest of the tree goes on."""
    harness = Harness().open(budget=Budget(tokens=100))
    branch = harness.spawn("main", BRANCH, budget=Budget(tokens=20))
    worker = harness.spawn(branch, WORKER)
    use(harness, worker, input_tokens=19)
    assert harness.found(BudgetSpent) == []
    use(harness, worker, input_tokens=1)
    assert harness.one(BudgetSpent) == BudgetSpent(branch, "budget.tokens", 20, 20)
    begun = harness.one(CancelBegun)
    assert (begun.sessions, begun.status) == ((branch, worker), "failed")
    assert begun.reason == "budget.tokens of 'main/b1' is 20 and 20 is used up"
    harness.pass_s(30)
    assert harness.session(branch).status == "failed"
    assert harness.session("main").stop is None
    assert compute_remaining(harness.state, "main") == {"tokens": 80}


def test_mains_cap_stops_the_whole_tree() -> None:
    """What is set aside for a child is not there to be spent by others."""
    harness = Harness().open(budget=Budget(tokens=100))
    harness.spawn("main", BRANCH, budget=Budget(tokens=60))
    use(harness, "main", input_tokens=40)
    assert harness.one(BudgetSpent).account == "main"
    assert harness.one(CancelBegun).sessions == ("main", "main/b1")


def test_what_was_spent_beyond_a_budget_is_the_parents() -> None:
    """The last report may be too large; the parent pays the difference, and may be at its cap by it."""
    harness = Harness().open(budget=Budget(tokens=100))
    branch = harness.spawn("main", BRANCH, budget=Budget(tokens=60))
    use(harness, branch, input_tokens=70)
    assert compute_remaining(harness.state, branch) == {"tokens": 0}
    harness.offer(branch)
    assert compute_remaining(harness.state, "main") == {"tokens": 30}
    other = harness.spawn("main", BRANCH, budget=Budget(tokens=30))
    use(harness, other, input_tokens=31)
    harness.offer(other)
    assert harness.one(BudgetSpent) == BudgetSpent("main", "budget.tokens", 101, 100)


def test_what_was_set_aside_may_be_spent_to_the_last() -> None:
    """A child at its cap stops alone: others have their own share still."""
    harness = Harness().open(budget=Budget(tokens=100))
    spender = harness.spawn("main", BRANCH, budget=Budget(tokens=60))
    other = harness.spawn("main", BRANCH, budget=Budget(tokens=40))
    use(harness, spender, input_tokens=60)
    harness.offer(spender)
    assert harness.found(BudgetSpent) == []
    use(harness, other, input_tokens=39)
    assert harness.session(other).stop is None
    use(harness, "main", input_tokens=1)
    assert harness.one(BudgetSpent).account == "main"


def test_late_report_is_still_charged() -> None:
    """What an ended session used is gone; whoever lives above it pays."""
    harness = Harness().open(budget=Budget(tokens=100))
    branch = harness.spawn("main", BRANCH, budget=Budget(tokens=60))
    harness.offer(branch)
    use(harness, branch, input_tokens=10)
    assert compute_remaining(harness.state, "main") == {"tokens": 90}
    use(harness, branch, input_tokens=90)
    assert harness.one(BudgetSpent).account == "main"


def test_orphans_of_a_closed_account_are_paid_above() -> None:
    """Their rest comes back and their spending counts, though the account between has closed."""
    harness = Harness().open(budget=Budget(tokens=100))
    branch = harness.spawn("main", BRANCH, budget=Budget(tokens=80))
    inner = harness.spawn(branch, BRANCH, budget=Budget(tokens=50))
    worker = harness.spawn(branch, WORKER)
    harness.feed(SessionLost(0, branch, "gone"))
    assert compute_remaining(harness.state, "main") == {"tokens": 50}
    use(harness, worker, input_tokens=5)
    use(harness, inner, input_tokens=10)
    harness.offer(inner)
    assert compute_remaining(harness.state, "main") == {"tokens": 85}


@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": -5}, {"cost_usd": float("nan")}, {"cost_usd": -1.0}, {"cost_usd": float("inf")}, {}],
)
def test_nonsense_is_not_charged(usage: dict[str, Any]) -> None:
    """A report that is negative or no number gives nothing back and breaks nothing."""
    harness = Harness().open(budget=Budget(tokens=100, cost_usd=1.0))
    use(harness, "main", **usage)
    assert harness.facts == []
    use(harness, "main", **usage, tool_calls=1)
    assert harness.one(UsageCharged).usage == Usage(tool_calls=1)


def test_unknown_sessions_use_nothing() -> None:
    """There is nobody to charge."""
    harness = Harness().open()
    use(harness, "main/b3", input_tokens=1)
    assert harness.facts == []


def test_wall_time_runs_from_the_spawn() -> None:
    """It is a bell, not an amount: it stops its session as spent."""
    harness = Harness().open()
    harness.now_ms = 1000
    branch = harness.spawn("main", BRANCH, budget=Budget(wall_s=5, tokens=9))
    assert harness.one(WakeTreeAt).at_ms == 6000
    worker = harness.spawn(branch, WORKER)
    assert compute_remaining(harness.state, worker) == {"tokens": 9, "wall_s": 5}
    harness.pass_s(5)
    assert harness.one(BudgetSpent) == BudgetSpent(branch, "budget.wall_s", 5, 5)
    assert harness.one(CancelBegun).status == "failed"
    assert compute_remaining(harness.state, worker)["wall_s"] == 0
    harness.pass_s(30)
    assert [fact.session for fact in harness.found(SessionEnded)] == [worker, branch]


def test_whole_tree_has_wall_time() -> None:
    """Main's own budget bounds everything."""
    harness = Harness().open(budget=Budget(wall_s=60))
    assert harness.one(WakeTreeAt).at_ms == 60_000
    harness.spawn("main", WORKER)
    harness.pass_s(60)
    assert harness.one(CancelBegun).sessions == ("main", "main/w1")


@given(st.lists(st.floats(0, 0.01), min_size=1, max_size=30))
def test_cents_never_drift(costs: list[float]) -> None:
    """Set aside, spent and returned any number of times, what is left is what was not spent."""
    state = make_initial_tree()
    react(state, TreeOpened(0, config(budget=Budget(cost_usd=1.0))))
    for number, cost_usd in enumerate(costs, start=1):
        react(state, SpawnAsked(0, "main", WORKER, "task", "handle", budget=Budget(cost_usd=0.1)))
        react(state, UsageReported(0, f"main/w{number}", Usage(cost_usd=cost_usd)))
        react(state, result_offered(0, f"main/w{number}", result(), True))
    assert state.live == 1
    assert compute_remaining(state, "main")["cost_usd"] == pytest.approx(1 - sum(costs), abs=1e-10)


@pytest.mark.parametrize(("outer_s", "inner_s"), [(10.0, 100.0), (100.0, 10.0)])
def test_wall_time_that_is_left_is_the_shorter_one(outer_s: float, inner_s: float) -> None:
    """A child ends with its parent, however long its own budget lets it live."""
    harness = Harness().open()
    outer = harness.spawn("main", BRANCH, budget=Budget(wall_s=outer_s))
    inner = harness.spawn(outer, WORKER, budget=Budget(wall_s=inner_s))
    assert compute_remaining(harness.state, inner)["wall_s"] == 10.0
    assert compute_remaining(harness.state, outer)["wall_s"] == outer_s
