"""Processes that die in the middle of a provider's reply: nothing acknowledged is lost, one question more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path

import pytest

from sessiontree import AgentSpec, ProviderModel, Runtime, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.contracts.reports.events import TextDelta
from sessiontree.contracts.values.messages import AssistantMessage, UserMessage
from sessiontree.journal.record import JournalRecord
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeCounts, FakeProvider, FakeRequest
from tests.behaviour.fact_fixtures import PATIENCE_S, records

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_runtime")]
"""Runtimes of their own, alongside the run's: they share its Ray, whose start takes seconds."""

SLOW = FakeReply("word " * 4_000, between_s=0.02)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A runtime whose processes may be killed."""
    async with Runtime(tmp_path.with_name(f"{tmp_path.name}-state"), slots=2) as runtime:
        yield runtime


async def kill(runtime: Runtime, role: str) -> None:
    """Kill the process of a role."""
    backend = runtime.backend
    assert isinstance(backend, RayBackend)
    (pid,) = [row.pid for row in await backend.actors() if row.role == role]
    os.kill(pid, signal.SIGKILL)


def known(found: Iterable[JournalRecord]) -> list[tuple[int, str, str]]:
    """Return records as values: number, session and text."""
    return [(record.seq, record.session, record.text) for record in found]


@pytest.mark.long
async def test_processes_killed_in_the_middle_of_replies(tmp_path: Path, runtime: Runtime) -> None:
    """The gateway, then the supervisor: the provider gets that question once more, and the tree goes on.

    Every record that was durable before is there afterwards, unchanged; the part of a reply that had arrived
    is not in the conversation; the provider sends to nobody who has gone.
    """

    def answer(request: FakeRequest) -> FakeReply:
        """Take long over a question that is new, and answer one that comes again."""
        asked = [each.body for each in fake.requests]
        return FakeReply("Done.", first_s=0.05) if asked.count(request.body) > 1 else SLOW

    async with FakeProvider(answer) as fake:
        model = ProviderModel("openai:m", api_key="sk-sentinel-2mR7", base_url=fake.url("openai"))
        async with (
            SessionTree(tmp_path, model=model, builtin_tools=False, runtime=runtime) as tree,
            asyncio.timeout(2 * PATIENCE_S),
        ):
            for number, role in enumerate(("gateway", "supervisor"), 1):
                reader = tree.progress()
                asked = tree.main.send(f"Talk, number {number}.")
                await fake.until(lambda counts: counts.running_requests == 1)
                while not isinstance((await reader.next()).event, TextDelta):
                    pass
                before = known(await records(tree))
                await kill(runtime, role)
                assert await asked == "Done."
                reader.close()
                assert fake.counts.requests == 2 * number
                assert known(await records(tree))[: len(before)] == before
                await fake.until(lambda counts: counts.running_requests == 0)
                assert fake.counts.broken_off == number
            transcript = [each async for each in tree.main.transcript()]
            said = [each.text for each in transcript if isinstance(each, AssistantMessage)]
            assert said == ["Done.", "Done."]
            fake.script = [FakeReply("Here.")]
            assert await tree.main.send("And now?") == "Here."
    assert fake.counts.requests == 5


LONG = "w" * 6_000


def summaries(fake: FakeProvider) -> list[FakeRequest]:
    """Return the questions for a summary that came."""
    return [each for each in fake.requests if "Stop here: this question comes" in repr(each.body)]


def has_come(least: int, counts: FakeCounts) -> bool:
    """Whether so many questions have come."""
    return counts.requests >= least


@pytest.mark.parametrize("role", ["gateway", pytest.param("supervisor", marks=pytest.mark.long)])
async def test_process_killed_in_the_middle_of_a_summary(tmp_path: Path, runtime: Runtime, role: str) -> None:
    """The summary is asked for once more, in one compaction; records stay, and every message is answered."""

    def answer(request: FakeRequest) -> FakeReply:
        """Take long over the first summary."""
        if request not in summaries(fake):
            return FakeReply("Done.")
        return SLOW if len(summaries(fake)) == 1 else FakeReply("They talked.")

    async with FakeProvider(answer) as fake:
        key, url = "sk-sentinel-2mR7", fake.url("openai")
        model = ProviderModel("openai:m", api_key=key, base_url=url, context_tokens=9_000)
        agents = {"default": AgentSpec(compaction_model="cheap")}
        models = {"cheap": ProviderModel("openai:cheap", api_key=key, base_url=url)}
        async with (
            SessionTree(
                tmp_path, model=model, models=models, agents=agents, builtin_tools=False, runtime=runtime
            ) as tree,
            asyncio.timeout(PATIENCE_S),
        ):
            number, asked = 1, tree.main.send(f"1 {LONG}")
            while True:
                await fake.until(partial(has_come, number))
                if summaries(fake):
                    break
                assert await asked == "Done."
                number += 1
                asked = tree.main.send(f"{number} {LONG}")
            before = known(await records(tree))
            await kill(runtime, role)
            assert await asked == "Done."
            assert len(summaries(fake)) == 2
            assert [each.model for each in summaries(fake)] == ["cheap", "cheap"]
            assert known(await records(tree))[: len(before)] == before
            facts = [record.text for record in await records(tree)]
            assert sum('"kind":"compaction_begun"' in text for text in facts) == 1
            assert sum('"kind":"context_compacted"' in text for text in facts) == 1
            said = [each.text async for each in tree.main.transcript() if isinstance(each, UserMessage)]
            assert [text for text in said if not text.startswith("Summary")] == [
                f"{each} {LONG}" for each in range(1, number + 1)
            ]
            await fake.until(lambda counts: counts.running_requests == 0)
            assert fake.counts.broken_off == 1
            assert await tree.main.send("And now?") == "Done."
