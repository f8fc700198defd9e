"""Reservations: calls under way together never exceed a budget, whatever they use of what they reserved."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.messages import Usage
from sessiontree.tree.state.budgets import compute_remaining
from sessiontree.tree.state.protocol import UsageReported
from sessiontree.tree.state.reservations import Admitted, MostUsed, Postponed, Reservations, Unaffordable
from tests.example_fixtures import examples
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH

PRICE = ModelPrice(input_per_million=3.0, output_per_million=15.0)
BUDGET = Budget(tokens=40_000, cost_usd=0.25)
SESSIONS = 6


class Forgetful(Reservations):
    """Planted bug: does not count what others have reserved."""

    def _compute_left(self, place: tuple[str, str]) -> int:
        paying = self._state.accounts[place[0]]
        return paying.caps[place[1]] - paying.used[place[1]]


class Rash(Reservations):
    """Planted bug: reserves the reply and not the question."""

    def ask(self, session: str, most: MostUsed) -> Admitted | Postponed | Unaffordable:
        return super().ask(session, MostUsed(0, most.output_tokens, most.price))


def spend(random: Random, make: type[Reservations]) -> None:
    """Let sessions ask and be answered in any order; fails if more is spent than the budgets allow."""
    harness = Harness().open(budget=BUDGET)
    branch = harness.spawn("main", BRANCH, budget=Budget(tokens=15_000))
    sessions = [harness.spawn(random.choice(("main", branch)), BRANCH) for _ in range(SESSIONS)]
    reserved = make(harness.state)
    under_way: dict[str, tuple[int, int]] = {}
    for _ in range(60):
        session = random.choice(sessions)
        if session in under_way:
            inputs, outputs = under_way.pop(session)
            used = Usage(random.choice((inputs, random.randint(0, inputs))), random.choice((0, outputs)))
            cost = (used.input_tokens * 3.0 + used.output_tokens * 15.0) / 10**6
            charged = Usage(used.input_tokens, used.output_tokens, cost)
            harness.feed(UsageReported(harness.now_ms, session, charged))
            reserved.release(session)
        elif harness.session(session).stop is None:
            most = MostUsed(random.randint(1, 3_000), random.randint(1, 8_000), PRICE)
            answer = reserved.ask(session, most)
            if isinstance(answer, Admitted):
                assert answer.output_tokens is not None
                under_way[session] = (most.input_tokens, answer.output_tokens)
            elif isinstance(answer, Postponed):
                assert under_way, "it waits for somebody"
        for account in harness.state.accounts.values():
            for member, cap in account.caps.items():
                assert account.used[member] <= cap, (account, member)


@pytest.mark.covers("LIM11")
@given(st.integers(0, 2**32))
@settings(max_examples=examples(100))
def test_budgets_are_never_exceeded(seed: int) -> None:
    """Tokens and cost of all sessions stay within the tree's budget, and within a Branch's own."""
    spend(Random(seed), Reservations)


@pytest.mark.parametrize("make", [Forgetful, Rash])
def test_planted_bug_exceeds_a_budget(make: type[Reservations]) -> None:
    """Both ways to reserve too little are found."""
    with pytest.raises(AssertionError):
        for seed in range(200):
            spend(Random(seed), make)


@pytest.mark.covers("C12")
def test_call_gets_what_is_left_or_waits_for_more() -> None:
    """A reply is shortened to what is left; if others may leave more, the call waits; then it is refused."""
    harness = Harness().open(budget=Budget(tokens=10_000))
    first, second = (harness.spawn("main", BRANCH) for _ in range(2))
    reserved = Reservations(harness.state)
    assert reserved.ask(first, MostUsed(1_000, 8_000, None)) == Admitted(8_000)
    assert reserved.ask(second, MostUsed(500, 8_000, None)) == Postponed()
    harness.feed(UsageReported(harness.now_ms, first, Usage(1_000, 500)))
    assert reserved.release(first)
    assert reserved.ask(second, MostUsed(500, 8_000, None)) == Admitted(8_000)
    harness.feed(UsageReported(harness.now_ms, second, Usage(500, 7_900)))
    reserved.release(second)
    assert compute_remaining(harness.state, "main") == {"tokens": 100}
    assert reserved.ask(first, MostUsed(60, 8_000, None)) == Admitted(40)
    reserved.release(first)
    assert reserved.ask(first, MostUsed(100, 8_000, None)) == Unaffordable("budget.tokens", "main", 100)


def test_without_a_budget_nothing_is_reserved() -> None:
    """A member that no budget counts bounds nothing, and neither does a price of nothing."""
    harness = Harness().open(budget=Budget(cost_usd=0.01))
    child = harness.spawn("main", BRANCH)
    reserved = Reservations(harness.state)
    free = ModelPrice(input_per_million=0, output_per_million=0)
    assert reserved.ask(child, MostUsed(10**9, 10**9, free)) == Admitted(10**9)
    assert reserved.ask(child, MostUsed(10**9, 10**9, None)) == Admitted(None)
    assert not reserved.release(child)


def test_budget_may_be_used_to_its_last_unit() -> None:
    """A question that takes all of it is asked if its reply is free, and not if one token costs anything."""
    harness = Harness().open(budget=Budget(cost_usd=0.003))
    child = harness.spawn("main", BRANCH)
    reserved = Reservations(harness.state)
    free_replies = ModelPrice(input_per_million=3.0, output_per_million=0)
    assert reserved.ask(child, MostUsed(1_000, 500, free_replies)) == Admitted(500)
    assert reserved.ask(child, MostUsed(1_001, 500, free_replies)) == Unaffordable(
        "budget.cost_usd", "main", 0.003
    )
    assert reserved.ask(child, MostUsed(1_000, 500, PRICE)) == Unaffordable("budget.cost_usd", "main", 0.003)


def test_model_that_thinks_gets_room_for_it_or_nothing() -> None:
    """What it needs before it says anything is no reply; another model's reply is shortened."""
    harness = Harness().open(budget=Budget(tokens=3_000))
    child = harness.spawn("main", BRANCH)
    reserved = Reservations(harness.state)
    assert reserved.ask(child, MostUsed(1_000, 8_000, None, thinking_tokens=900)) == Admitted(2_000)
    assert reserved.ask(child, MostUsed(1_000, 8_000, None, thinking_tokens=1_000)) == Unaffordable(
        "budget.tokens", "main", 3_000
    )
    assert reserved.ask(child, MostUsed(2_500, 8_000, None)) == Admitted(500)
