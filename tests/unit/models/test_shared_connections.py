"""Copies of a model share its connections, as far as they are the same; the last one closes them."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import aclosing

import pytest

from sessiontree import ModelRequest, ProviderModel
from sessiontree.models.providers import provider_calls
from sessiontree.models.providers.provider_model import CallTimeouts
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.unit.models.test_provider_models import MODELS, question, said


async def ask(model: ProviderModel) -> None:
    """Ask, and read the reply to its end."""
    asked: ModelRequest = question(said("Hi."))
    assert [piece async for piece in model.stream(asked)]


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_copies_share_connections_until_the_last_is_closed(provider: str) -> None:
    """Each tree has a copy, and closes it when it ends. Other libraries keep no connection open."""
    async with FakeProvider([FakeReply("fine")]) as fake:
        first = ProviderModel(MODELS[provider], api_key="a", base_url=fake.url(provider))
        second = pickle.loads(pickle.dumps(first))
        for model in (first, second, first):
            await ask(model)
        assert fake.counts.connections == 1
        await first.close()
        await first.close()  # a second time says nothing about the other copy
        await ask(second)
        assert fake.counts.connections == 1
        await second.close()
        await fake.until(lambda counts: counts.open_connections == 0)
        await ask(first)
        assert fake.counts.connections == 2
        await first.close()


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_model_closed_during_a_reply_leaves_no_connection(provider: str) -> None:
    """The end of the reply closes them; a loop may end right after it."""
    async with FakeProvider([FakeReply("a few words of a reply", between_s=0.01)]) as fake:
        model = ProviderModel(MODELS[provider], api_key="a", base_url=fake.url(provider))
        async with aclosing(model.stream(question(said("Hi.")))) as pieces:
            assert await anext(pieces)
            await model.close()
            assert [piece async for piece in pieces]
        (calls,) = provider_calls._SHARED[asyncio.get_running_loop()].values()
        assert calls.is_closed


async def test_models_that_differ_have_connections_of_their_own() -> None:
    """By their key, address or times."""
    async with FakeProvider([FakeReply("fine")]) as fake:
        name, url = MODELS["openai"], fake.url("openai")
        models = [
            ProviderModel(name, api_key="a", base_url=url),
            ProviderModel(name, api_key="b", base_url=url),
            ProviderModel(name, api_key="a", base_url=f"{url}/"),
            ProviderModel(name, api_key="a", base_url=url, timeouts=CallTimeouts(connect_s=3)),
        ]
        for model in models:
            await ask(model)
        assert fake.counts.connections == len(models)
        for model in models:
            await model.close()


async def test_what_is_over_is_forgotten() -> None:
    """Connections that are closed, and those of a loop that has ended."""
    ended = asyncio.new_event_loop()
    ended.close()
    provider_calls._SHARED[ended] = {}
    async with FakeProvider([FakeReply("fine")]) as fake:
        for key in ("a", "b"):
            model = ProviderModel(MODELS["openai"], api_key=key, base_url=fake.url("openai"))
            await ask(model)
            assert len(provider_calls._SHARED[asyncio.get_running_loop()]) == 1
            await model.close()
    assert ended not in provider_calls._SHARED
