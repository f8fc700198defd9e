"""Limits of questions to a provider: whose they are, and what failures and wishes to wait do to the next."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import (
    CallLimits,
    ConfigError,
    ModelBusy,
    ModelError,
    ModelRequest,
    ModelUnreachable,
    ProviderModel,
    SessionKind,
    UserMessage,
)
from sessiontree.contracts.values.messages import TextContent
from sessiontree.models.fallback_model import FallbackModel
from sessiontree.models.providers.call_limits import FAILURES_IN_A_ROW, get_queue
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider


async def test_provider_that_asks_to_wait_is_left_alone() -> None:
    """After a failure with ``retry-after`` the next question with that key waits so long."""
    question = ModelRequest(
        "main", SessionKind.MAIN, 1, "", (), [UserMessage((TextContent("Hi."),), 0)], None
    )
    async with FakeProvider([FakeReply(status=429, retry_after_s=1), FakeReply("Now.")]) as fake:
        model = ProviderModel("openai:gpt-5", api_key="sk-of-a-test", base_url=fake.url("openai"))
        before_s = asyncio.get_running_loop().time()
        with pytest.raises(ModelBusy):
            await anext(model.stream(question))
        assert [piece async for piece in model.stream(question) if isinstance(piece, str)] == ["Now."]
        assert asyncio.get_running_loop().time() - before_s >= 1
        await model.close()


async def test_key_has_one_queue() -> None:
    """Same system and key share one, with the stricter limits; another key has its own."""
    one = get_queue("system", "key", CallLimits(at_once=4))
    assert get_queue("system", "key", CallLimits(at_once=9, per_minute=7)) is one
    assert one.limits == CallLimits(at_once=4, per_minute=7)
    assert get_queue("system", "other", CallLimits()) is not one
    assert get_queue("elsewhere", "key", CallLimits()) is not one


@pytest.mark.parametrize("bound", [0, -1, 1.5, "4"])
def test_bound_that_is_no_number_is_refused(bound: int) -> None:
    """The error names the bound and what would be accepted."""
    with pytest.raises(ConfigError, match=r"CallLimits: at_once is .*; give a whole number above 0"):
        CallLimits(at_once=bound)


async def test_outage_sends_questions_to_the_next_model() -> None:
    """A provider that is down is asked five times; after that the next model answers at once."""
    question = ModelRequest(
        "main", SessionKind.MAIN, 1, "", (), [UserMessage((TextContent("Hi."),), 0)], None
    )
    async with FakeProvider([FakeReply(status=500)]) as down, FakeProvider([FakeReply("Here.")]) as up:
        first = ProviderModel("openai:gpt-5", api_key="sk-of-a-test", base_url=down.url("openai"))
        second = ProviderModel("anthropic:claude-sonnet-5", api_key="sk-t", base_url=up.url("anthropic"))
        for _ in range(FAILURES_IN_A_ROW):
            with pytest.raises(ModelUnreachable, match="status 500"):
                await anext(first.stream(question))
        with pytest.raises(ModelUnreachable, match=r"openai@127\.0\.0\.1:\d+ was not asked.* in \d+\.\d s"):
            await anext(first.stream(question))
        model = FallbackModel([first, second])
        assert [piece async for piece in model.stream(question) if isinstance(piece, str)] == ["Here."]
        assert down.counts.requests == FAILURES_IN_A_ROW
        await model.close()


async def test_rejected_question_says_nothing_against_its_provider() -> None:
    """Questions that a provider rejects, and its wishes to wait, are not failures in a row."""
    question = ModelRequest(
        "main", SessionKind.MAIN, 1, "", (), [UserMessage((TextContent("Hi."),), 0)], None
    )
    async with FakeProvider([FakeReply(status=400)]) as fake:
        model = ProviderModel("openai:gpt-5", api_key="sk-of-a-test", base_url=fake.url("openai"))
        for status in (400, 401, 400, 429, 500, 400, 500, 500, 500, 500):
            fake.script = [FakeReply(status=status, retry_after_s=0.01 if status == 429 else None)]
            with pytest.raises(ModelError, match=f"status {status}"):
                await anext(model.stream(question))
        await model.close()
