"""Budgets in tokens and USD hold while sessions ask at once, and agree with what the provider counted."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    Budget,
    ConfigError,
    Limits,
    ModelPrice,
    PermissionTier,
    ProviderModel,
    SessionFailed,
    SessionStatus,
    SessionTree,
    Usage,
    UserMessage,
    tool,
)
from sessiontree.contracts.facts.session_facts import CompactionFailed, ContextCompacted
from sessiontree.contracts.values.jsonable import dump_json, to_json_value
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import CHARS_PER_TOKEN, FakeProvider, FakeRequest
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

KEY = "sk-sentinel-2mW8pD"
PRICE = ModelPrice(input_per_million=10.0, output_per_million=50.0)
MANY = {"local": 16, "ray": 6}
WIDE = Limits(max_children=64)


def served(fake: FakeProvider, name: str = "openai:gpt-5", price: ModelPrice | None = PRICE) -> ProviderModel:
    """Return a model that the fake serves."""
    url = fake.url(name.partition(":")[0])
    return ProviderModel(name, api_key=KEY, base_url=url, price=price)


def talking(request: FakeRequest) -> FakeReply:
    """Talk as long as the question allows, up to 2,000 tokens."""
    body = request.body
    bound = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    allowed = 2_000 if bound is None else min(2_000, int(bound))
    text = "x" * (CHARS_PER_TOKEN * allowed)
    return FakeReply(text, delta_chars=len(text), first_s=0.02, finish="length" if allowed < 2_000 else "")


def cost_of(fake: FakeProvider) -> float:
    """Return what everything that the fake has said costs."""
    counts = fake.counts
    return (
        counts.input_tokens * PRICE.input_per_million + counts.output_tokens * PRICE.output_per_million
    ) / 10**6


async def ask_many(tree: SessionTree, many: int) -> Usage:
    """Let Workers ask at once until the budget is spent; return the usage of the tree."""
    results = await tree.main.map("worker", [f"Talk, {number}." for number in range(many)], concurrency=many)
    ended = {each.status for each in results}
    assert ended == {SessionStatus.COMPLETED, SessionStatus.FAILED}, "enough for some, not enough for all"
    refused = [each for each in results if each.status is SessionStatus.FAILED]
    assert all("budget." in each.summary or "tokens were used up" in each.summary for each in refused)
    return tree.usage()


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-sonnet-5"])
@pytest.mark.on_ray
async def test_budget_in_tokens_holds(open_tree: Opener, name: str) -> None:
    """Sessions that ask at once use no token beyond the budget; the sums are the provider's."""
    many = MANY[open_tree.backend]
    budget = Budget(tokens=many * 2_500)
    async with FakeProvider(talking) as fake:
        async with open_tree(served(fake, name), limits=WIDE, budget=budget, builtin_tools=False) as tree:
            used = await ask_many(tree, many + 8)
        assert fake.counts.input_tokens + fake.counts.output_tokens <= many * 2_500
        assert (used.input_tokens, used.output_tokens) == (
            fake.counts.input_tokens,
            fake.counts.output_tokens,
        )


@pytest.mark.covers("LIM11")
async def test_budget_in_usd_holds(open_tree: Opener) -> None:
    """Sessions that ask at once cost no more than the budget, at the price that was given for the model."""
    many = MANY[open_tree.backend]
    budget = Budget(cost_usd=many * 0.11)
    async with FakeProvider(talking) as fake:
        async with open_tree(served(fake), limits=WIDE, budget=budget, builtin_tools=False) as tree:
            used = await ask_many(tree, many + 8)
        assert 0 < cost_of(fake) <= many * 0.11
        assert used.cost_usd == pytest.approx(cost_of(fake))
        assert used.unpriced_tokens == 0


async def test_unknown_price_is_said_before_the_first_question(open_tree: Opener) -> None:
    """A budget in USD needs a price: the tree's is refused at once, a child's before anything is asked."""
    async with FakeProvider() as fake:
        model = served(fake, price=None)
        with pytest.raises(
            ConfigError, match=r"cost_usd can't be kept.*'openai:gpt-5' is not known; give Pro"
        ):
            open_tree(model, budget=Budget(cost_usd=1))
        async with open_tree(model) as tree:
            child = await tree.main.spawn("worker", "Talk.", budget=Budget(cost_usd=1))
            result = await child.result()
            assert result.status is SessionStatus.FAILED
            assert "the price of 'openai:gpt-5' is not known" in result.summary
            assert fake.counts.requests == 0
            assert await tree.main.send("Hi.") == "Hello."
            assert tree.usage().unpriced_tokens == tree.usage().tokens > 0


async def test_question_that_nothing_pays_for_is_not_asked(open_tree: Opener) -> None:
    """The sender reads how much is left; the provider is not asked."""
    async with FakeProvider() as fake, open_tree(served(fake), budget=Budget(tokens=200)) as tree:
        with pytest.raises(SessionFailed, match=r"budget\.tokens of 'main' has 200 left"):
            await tree.main.send("Hi.")
        assert fake.counts.requests == 0


CHEAP_PRICE = ModelPrice(input_per_million=1.0, output_per_million=2.0)
LONG = "w" * 6_000


class Bills:
    """Talks, summarises when asked, and calls a tool first; counts what each model was paid for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: FakeRequest) -> FakeReply:
        """Answer at once."""
        self.asked.append(request.model)
        if "Stop here: this question comes from the runtime" in dump_json(to_json_value(request.body)):
            return FakeReply("They talked.")
        looks = (FakeCall("look", '{"n": 1}'),) if len(self.asked) == 1 else ()
        return FakeReply("" if looks else "Well.", calls=looks)


@tool(tier=PermissionTier.READ_ONLY)
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def with_writer(fake: FakeProvider, **settings: Any) -> dict[str, Any]:
    """Return the settings of a tree whose summaries a cheaper model of another provider writes."""
    return {
        "models": {"cheap": served(fake, "anthropic:claude-haiku-4-5", CHEAP_PRICE)},
        "agents": {"default": AgentSpec(compaction_model="cheap", context_tokens=9_000)},
        "tools": [look],
        "builtin_tools": False,
        **settings,
    }


async def test_summary_costs_what_the_compaction_model_costs(open_tree: Opener) -> None:
    """Its tokens count for session and tree, at its own price; it sees calls and tools in its own form."""
    bills = Bills()
    async with FakeProvider(bills) as fake:
        async with open_tree(served(fake), **with_writer(fake, budget=Budget(cost_usd=50))) as tree:
            for number in range(7):
                assert await tree.main.send(f"{number} {LONG}") == "Well."
            (written,) = await facts_of(tree, ContextCompacted)
            used = tree.usage()
        summary = written.usage
        assert bills.asked.count("claude-haiku-4-5") == 1
        assert written.model == "anthropic:claude-haiku-4-5"
        assert summary.input_tokens > 5_000
        paid = summary.input_tokens * 1.0 + summary.output_tokens * 2.0
        assert summary.cost_usd == pytest.approx(paid / 10**6)
        rest = (used.input_tokens - summary.input_tokens) * 10.0
        rest += (used.output_tokens - summary.output_tokens) * 50.0
        assert used.cost_usd == pytest.approx((paid + rest) / 10**6)
        assert (used.input_tokens, used.output_tokens) == (
            fake.counts.input_tokens,
            fake.counts.output_tokens,
        )


async def test_budget_that_pays_no_summary_ends_the_run_and_keeps_the_conversation(
    open_tree: Opener,
) -> None:
    """Neither model is asked; the sender reads what is left; with more to spend the session would go on."""
    bills = Bills()
    async with FakeProvider(bills) as fake:
        settings = with_writer(fake, budget=Budget(tokens=34_000))
        async with open_tree(served(fake), **settings) as tree:
            with pytest.raises(SessionFailed, match=r"budget\.tokens of 'main' has \d+ left"):
                for number in range(20):
                    await tree.main.send(f"{number} {LONG}")
            failed = await facts_of(tree, CompactionFailed)
            assert [each.model for each in failed] == ["anthropic:claude-haiku-4-5", ""]
            assert all("budget.tokens of 'main' has" in each.reason for each in failed)
            asked = [each.text for each in tree.main.history() if isinstance(each, UserMessage)]
            assert asked == [f"{number} {LONG}" for number in range(len(asked))]
            assert tree.usage().tokens <= 34_000
            assert tree.main.status().status is SessionStatus.SUSPENDED
            assert fake.counts.input_tokens + fake.counts.output_tokens == tree.usage().tokens
        assert "claude-haiku-4-5" not in bills.asked


async def test_unknown_price_of_the_compaction_model_is_said(open_tree: Opener) -> None:
    """A budget in USD needs its price too: the tree's is refused, a child falls back to its model."""
    async with FakeProvider() as fake:
        settings = with_writer(fake, models={"cheap": served(fake, "openai:gpt-small", None)})
        with pytest.raises(ConfigError, match=r"cost_usd can't be kept.*'openai:gpt-small' is not known"):
            open_tree(served(fake), budget=Budget(cost_usd=1), **settings)
