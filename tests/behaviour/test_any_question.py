"""Any conversation, asked of any provider under any limit: the question can be sent, and the session goes on.

The provider's own library encodes every question; the server behind it refuses what is over its limit in one
of the ways that servers have.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from sessiontree import PermissionTier, ProviderModel, ToolResult, tool
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest
from tests.behaviour.test_sent_images import picture
from tests.behaviour.tree_fixtures import Opener
from tests.unit.models.test_provider_models import MODELS

IMAGE = "iVBORw0KGgo"
"""How a PNG begins in base64: it is once in a question for each image."""
ODD = ("a", "\ud83d", "é ", "\U0001f600", '"\\', "\x00", "word ")
REFUSALS = (
    (413, "Request exceeds the maximum size"),
    (400, "prompt is too long: 9 tokens > 8 maximum"),
    (422, "Input validation error: `inputs` must have less than 9 tokens"),
)
IMAGE_REFUSALS = ((400, "Too many images and documents: 9 + 0 > 8"), (413, "image count exceeds the limit"))


@tool(tier=PermissionTier.READ_ONLY)
def give(size: int, kind: int, pictures: int) -> ToolResult:
    """Give a text and images.

    Args:
        size: Characters of the text.
        kind: What it is made of.
        pictures: How many images.
    """
    text = ODD[kind] * (size // len(ODD[kind]) + 1)
    return ToolResult(text, images=(picture(1),) * pictures)


class Narrow:
    """A server with a limit of bytes and one of images, whose model calls and talks at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.room = self.chance.choice((40_000, 80_000, 200_000))
        """Bytes that a question may have beyond the first one."""
        self.most_images = self.chance.choice((0, 1, 5, 30))
        self.least = 0
        self.refused = 0
        self.calls = 0

    def reply(self, request: FakeRequest) -> FakeReply:
        """Refuse what is over a limit; else call a few times, and talk."""
        body = json.dumps(request.body, ensure_ascii=False)
        size, images = len(body.encode()), body.count(IMAGE)
        self.least = self.least or size
        if images > self.most_images:
            return self._refuse(IMAGE_REFUSALS)
        if size > self.least + self.room:
            return self._refuse(REFUSALS)
        if self.chance.random() < 0.5 and self.calls < 12:
            self.calls += 1
            return FakeReply(calls=tuple(self._call() for _ in range(self.chance.choice((1, 1, 2, 6)))))
        return FakeReply(self.chance.choice(("fine", "fine " * 400)))

    def _refuse(self, ways: tuple[tuple[int, str], ...]) -> FakeReply:
        self.refused += 1
        status, words = self.chance.choice(ways)
        return FakeReply(status=status, error=words)

    def _call(self) -> FakeCall:
        size = self.chance.choice((1, 500, 5_000, 60_000))
        given = {
            "size": size,
            "kind": self.chance.randrange(len(ODD)),
            "pictures": self.chance.choice((0, 0, 1, 4)),
        }
        return FakeCall("give", json.dumps(given))


async def answered_under_limits(open_tree: Opener, provider: str, seed: int, messages: int = 5) -> int:
    """Hold a conversation; return how many questions were refused on the way."""
    narrow = Narrow(seed)
    async with FakeProvider(narrow.reply) as fake:
        model = ProviderModel(MODELS[provider], api_key="key", base_url=fake.url(provider))
        async with open_tree(model, tools=[give], builtin_tools=False, web=None) as tree:
            assert (await tree.main.send("Hi.")).startswith("fine")
            for _ in range(messages):
                size = narrow.chance.choice((1, 300, 50_000))
                text = narrow.chance.choice(("b", "\U0001f600", "x ")) * size
                images = [picture(1)] * narrow.chance.choice((0, 0, 2, 8))
                assert (await tree.main.send(text, images=images)).startswith("fine"), (provider, seed)
    return narrow.refused


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["local"], indirect=True)
async def test_session_goes_on_under_any_limit(open_tree: Opener) -> None:
    """Whatever it says, is given or looks at; one conversation with each provider."""
    refused = [await answered_under_limits(open_tree, provider, n, 2) for n, provider in enumerate(MODELS)]
    assert any(refused)


async def test_question_over_its_provider_s_limit_is_not_sent(open_tree: Opener) -> None:
    """The session leaves out images that were seen, and goes on; the server never hears of it."""
    async with FakeProvider([FakeReply("fine")]) as fake:
        model = ProviderModel(MODELS["openai"], api_key="key", base_url=fake.url("openai"))
        model.is_priced = True  # as at the provider's own address
        model.provider = replace(model.provider, most_images=3)
        async with open_tree(model, builtin_tools=False) as tree:
            for _ in range(3):
                assert await tree.main.send("Look.", images=[picture(1)] * 2) == "fine"
    assert [json.dumps(each.body).count(IMAGE) for each in fake.requests] == [2, 2, 2]


@pytest.mark.long
@pytest.mark.parametrize("variant", ["local"], indirect=True)
@pytest.mark.parametrize("provider", MODELS)
async def test_sessions_go_on_under_any_limit(open_tree: Opener, provider: str) -> None:
    """The same, of twenty conversations each."""
    for seed in range(100, 120):
        await answered_under_limits(open_tree, provider, seed)
