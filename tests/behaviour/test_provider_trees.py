"""Trees whose model a provider serves: the real libraries, a fake server, every backend."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from sessiontree import (
    CallLimits,
    Limits,
    PermissionTier,
    ProviderModel,
    Runtime,
    SessionFailed,
    Tool,
    ToolContext,
    ToolResult,
)
from sessiontree.contracts.values.messages import AssistantMessage, ThinkingContent
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import CHARS_PER_TOKEN, FakeProvider, FakeRequest
from sessiontree.testing.fake_provider.wire_forms import WireForm
from tests.behaviour.fact_fixtures import PATIENCE_S
from tests.behaviour.tree_fixtures import Opener

KEY = "sk-sentinel-9xQ4tZ"
WORK = (
    FakeReply(thinking="I must look.", calls=(FakeCall("look", '{"where": "here"}'),)),
    FakeReply("It is fine."),
)


class Look(Tool[BaseModel]):
    """Looks somewhere."""

    name = "look"
    description = "Look somewhere."
    tier = PermissionTier.READ_ONLY

    class Params(BaseModel):
        """Where to look."""

        where: str

    async def execute(self, params: BaseModel, ctx: ToolContext) -> ToolResult:
        return ToolResult("all quiet")


@pytest.fixture
async def fake() -> AsyncIterator[FakeProvider]:
    """A provider on loopback."""
    async with FakeProvider(WORK) as provider:
        yield provider


def served(fake: FakeProvider, name: str = "anthropic:claude-sonnet-5") -> ProviderModel:
    """Return a model that the fake serves."""
    return ProviderModel(name, api_key=KEY, base_url=fake.url(name.partition(":")[0]))


async def test_tree_works_with_a_provider(open_tree: Opener, fake: FakeProvider) -> None:
    """A thought and a call come, the tool runs, its result goes back with the thought's signature."""
    async with open_tree(served(fake), tools=[Look()]) as tree:
        assert await tree.main.send("How is it?") == "It is fine."
        replies = [each async for each in tree.main.transcript() if isinstance(each, AssistantMessage)]
    assert isinstance(replies[0].content[0], ThinkingContent)
    assert [each.model for each in replies] == ["anthropic:claude-sonnet-5"] * 2
    assert all(each.usage.output_tokens > 0 for each in replies)
    assert "all quiet" in str(fake.requests[1].body)


@pytest.mark.on_ray
async def test_words_are_heard_as_they_come(open_tree: Opener, fake: FakeProvider) -> None:
    """Pieces of the reply reach who waits for it, before the reply is whole."""
    fake.script = [FakeReply("one two three four five six", delta_chars=4)]
    async with open_tree(served(fake, "openai:gpt-5")) as tree:
        heard = [piece async for piece in tree.main.send("Count.")]
    assert "".join(heard) == "one two three four five six"
    assert len(heard) > 1


async def test_failure_of_the_provider_is_said(open_tree: Opener, fake: FakeProvider) -> None:
    """The error names the model and what the provider said; the tree goes on, and no key is in it."""
    fake.script = [FakeReply(status=401, error=f"bad key {KEY}"), FakeReply("Better.")]
    async with open_tree(served(fake, "openai:gpt-5")) as tree:
        with pytest.raises(SessionFailed, match=r"openai:gpt-5: status 401.*OPENAI_API_KEY") as caught:
            await tree.main.send("Hi.")
        assert KEY not in str(caught.value)
        assert await tree.main.send("Again.") == "Better."


async def test_provider_that_goes_down_in_a_turn_leaves_the_tree(open_tree: Opener) -> None:
    """The turn is asked again; if nobody answers it fails with a typed error; a later one is answered."""
    async with FakeProvider([WORK[0], FakeReply("half " * 9, cut_after_bytes=300), FakeReply("Up.")]) as fake:
        model = served(fake, "openai:gpt-5")
        tree = open_tree(model, tools=[Look()], limits=Limits(model_retries=1))
        await tree.__aenter__()
        assert await tree.main.send("Look.") == "Up."
        assert fake.counts.requests == 3
    with pytest.raises(SessionFailed, match=r"the model failed \(2 attempts\): openai:gpt-5: "):
        await tree.main.send("Is anybody there?")
    async with FakeProvider([FakeReply("Back.")], port=fake.port):
        assert await tree.main.send("And now?") == "Back."
        await tree.close()


async def test_interrupted_question_leaves_no_connection(open_tree: Opener, fake: FakeProvider) -> None:
    """Who is interrupted in the middle of a reply asks the provider for nothing more."""
    fake.script = [FakeReply("word " * 2000, between_s=0.02), FakeReply("Here.")]
    async with open_tree(served(fake, "openai:gpt-5")) as tree:
        asked = asyncio.ensure_future(tree.main.send("Talk."))
        await fake.until(lambda counts: counts.running_requests == 1)
        await tree.main.interrupt()
        async with asyncio.timeout(PATIENCE_S):
            await fake.until(lambda counts: counts.running_requests == 0)
        assert fake.counts.broken_off == 1
        await asyncio.wait([asked])
        assert asked.exception() is not None
        assert await tree.main.send("Are you there?") == "Here."


class HurriedModel(ProviderModel):
    """A provider's model whose minute is shorter: the rule is the same."""

    window_s = 1.5


@pytest.fixture(scope="module")
def ray_few(ray_runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime of few hosts on the run's Ray; its state is where that of ``ray_runtime`` is."""
    place = Path(tempfile.mkdtemp(prefix="state-", dir=tmp_path_factory.getbasetemp().parent))
    runtime = Runtime(place / "state", slots=HOSTS, backend="ray")
    yield runtime
    asyncio.run(runtime.close())
    shutil.rmtree(place)


HOSTS = 3
MANY = 64
AT_ONCE = 4
PER_WINDOW = 24
ROUNDING_S = 0.001


class CrowdedProvider(FakeProvider):
    """Answers nobody before as many ask at the same time as may."""

    async def _answer(
        self, request: FakeRequest, form: WireForm, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        await self.until(lambda counts: counts.most_running >= AT_ONCE)
        return await FakeProvider._answer(self, request, form, reader, writer)


async def test_sessions_share_a_limit(request: pytest.FixtureRequest, open_tree: Opener) -> None:
    """Of 64 Workers four are answered at a time and 60 a minute, on three hosts; none is left out.

    How the queue spaces questions is tested to the moment in ``tests/unit/models/test_call_queue.py``. Here
    only what no delay on their way can change: none arrives before its window began.
    """
    arrived_s: dict[str, list[float]] = {}

    def reply(asked: FakeRequest) -> FakeReply:
        arrived_s.setdefault(str(asked.body["messages"][-1]["content"]), []).append(loop.time())
        return FakeReply("Done.", first_s=0.1)  # so long that one too many would be there meanwhile

    loop = asyncio.get_running_loop()
    shared = (
        {"runtime": request.getfixturevalue("ray_few")} if open_tree.backend == "ray" else {"slots": HOSTS}
    )
    async with CrowdedProvider(reply) as fake, asyncio.timeout(PATIENCE_S):
        limits = CallLimits(AT_ONCE, PER_WINDOW)
        model = HurriedModel("openai:gpt-5", api_key=KEY, base_url=fake.url("openai"), limits=limits)
        async with open_tree(model, limits=Limits(max_children=MANY), **shared) as tree:
            tasks = [f"Work {number}." for number in range(MANY)]
            begun_s = loop.time()
            results = await tree.main.map("worker", tasks, concurrency=MANY)
    assert [each.summary for each in results] == ["Done."] * MANY
    assert {task: len(times) for task, times in arrived_s.items()} == dict.fromkeys(tasks, 1)
    assert fake.counts.most_running == AT_ONCE
    order_s = sorted(time for times in arrived_s.values() for time in times)
    for windows, arrival_s in enumerate(order_s[::PER_WINDOW]):
        assert arrival_s - begun_s >= windows * HurriedModel.window_s - ROUNDING_S


async def test_another_provider_stands_in(open_tree: Opener, fake: FakeProvider) -> None:
    """Where the first of two models fails the second answers, and the journal says who it was."""
    fake.script = lambda request: (
        FakeReply(status=529) if request.form == "messages" else FakeReply("Here I am.")
    )
    async with open_tree([served(fake), served(fake, "openai:gpt-5")]) as tree:
        assert await tree.main.send("Anybody?") == "Here I am."
        replies = [each async for each in tree.main.transcript() if isinstance(each, AssistantMessage)]
    assert [each.model for each in replies] == ["openai:gpt-5"]
    assert fake.counts.requests == 2


CACHING = ("openai:gpt-5", "openai-responses:gpt-5", "anthropic:claude-sonnet-5")


@pytest.mark.parametrize("name", CACHING)
async def test_what_stays_the_same_is_read_from_the_cache(
    open_tree: Opener, fake: FakeProvider, name: str
) -> None:
    """From turn to turn tools, prompt and conversation stay the same: a question is cached for the next."""
    fake.script = [FakeReply(calls=(FakeCall("look", '{"where": "there"}'),))] * 3 + [FakeReply("Done.")]
    async with open_tree(served(fake, name), tools=[Look()]) as tree:
        assert await tree.main.send("Look three times.") == "Done."
        used = [each.usage async for each in tree.main.transcript() if isinstance(each, AssistantMessage)]
    assert used[0].cache_read_tokens == 0
    for before, after in itertools.pairwise(used):
        assert after.cache_read_tokens == before.input_tokens
        if name.startswith("anthropic"):
            assert after.cache_read_tokens + after.cache_write_tokens == after.input_tokens


@pytest.mark.parametrize("name", CACHING)
async def test_sessions_of_an_agent_share_a_cache(open_tree: Opener, fake: FakeProvider, name: str) -> None:
    """Sessions of one agent and kind show the same tools, byte for byte: the second has them cached."""
    fake.script = [FakeReply("Done.")]
    async with open_tree(served(fake, name), tools=[Look()]) as tree:
        usages = []
        for task in ("Look here.", "Look there."):
            child = await tree.main.spawn("worker", task)
            usages.append((await child.result()).usage)
    first, second = (json.dumps(request.body["tools"]) for request in fake.requests)
    assert first == second
    assert len(first) > 1_000
    assert usages[0].cache_read_tokens == 0
    assert usages[1].cache_read_tokens >= 0.9 * len(first) / CHARS_PER_TOKEN
