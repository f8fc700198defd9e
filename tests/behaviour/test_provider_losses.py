"""A provider's reply that nobody waits for any more: its connection is closed; a turn is asked once more."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from sessiontree import ProviderModel, SessionHandle, SessionStatus, SessionTree
from sessiontree.contracts.facts.session_facts import TurnReplied
from sessiontree.contracts.values.messages import AssistantMessage, UserMessage
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeCounts, FakeProvider
from tests.behaviour.fact_fixtures import PATIENCE_S, until
from tests.behaviour.provider_program import KEY, MODEL
from tests.behaviour.tree_fixtures import Opener

ENDLESS = FakeReply("word " * 100_000, between_s=0.02)


def is_silent(counts: FakeCounts) -> bool:
    """Whether the provider has no open connection, and so answers nobody."""
    return counts.open_connections + counts.running_requests == 0


@pytest.mark.slow
@pytest.mark.own_runtime
@pytest.mark.parametrize("variant", ["local", "ray"], indirect=True)
async def test_program_killed_in_the_middle_of_a_reply(open_tree: Opener) -> None:
    """SIGKILL: its connections are closed; resumed, that turn is asked once more and nothing said is lost."""
    script = [FakeReply("One."), ENDLESS, FakeReply("Two."), FakeReply("Three.")]
    async with FakeProvider(script) as fake, asyncio.timeout(3 * PATIENCE_S):
        url = fake.url("openai")
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.behaviour.provider_program"),
            *(open_tree.backend, open_tree.workspace, open_tree.state_dir, url),
            stdout=PIPE,
        )
        assert program.stdout is not None
        try:
            told = [(await program.stdout.readline()).decode().strip() for _ in range(3)]
            await fake.until(lambda counts: counts.requests == 2)
        finally:
            program.kill()
        assert await program.wait() == -signal.SIGKILL
        tree_id, *acknowledged = told
        assert acknowledged == ["One.", "asked"]
        await fake.until(is_silent)
        assert fake.counts.broken_off == 1
        model = ProviderModel(MODEL, api_key=KEY, base_url=url)
        async with await open_tree.resume(tree_id, model) as tree:
            await until(tree, TurnReplied, count=2)
            assert await tree.main.send("And now?") == "Three."
            said = [each async for each in tree.main.transcript()]
        assert [each.text for each in said if isinstance(each, UserMessage)] == [
            "First.",
            "Talk.",
            "And now?",
        ]
        assert [each.text for each in said if isinstance(each, AssistantMessage)] == [
            "One.",
            "Two.",
            "Three.",
        ]
        assert fake.counts.requests == 4
        assert fake.requests[2].body == fake.requests[1].body


async def interrupt(tree: SessionTree, talking: SessionHandle) -> None:
    """End the turn."""
    await talking.interrupt()


async def cancel(tree: SessionTree, talking: SessionHandle) -> None:
    """End the session."""
    (line,) = await talking.cancel("enough")
    assert line.status is SessionStatus.CANCELLED


async def cancel_all(tree: SessionTree, talking: SessionHandle) -> None:
    """End the tree."""
    await tree.cancel("enough")


async def close(tree: SessionTree, talking: SessionHandle) -> None:
    """Leave it to the journal."""
    await tree.close()


ENDS = {each.__name__: each for each in (interrupt, cancel, cancel_all, close)}


@pytest.mark.short(2)
@pytest.mark.parametrize("how", sorted(ENDS))
async def test_reply_that_is_cut_short_leaves_no_connection(open_tree: Opener, how: str) -> None:
    """The provider has none open then, whoever ended the reply, and is asked nothing more."""
    async with FakeProvider([ENDLESS]) as fake, asyncio.timeout(PATIENCE_S):
        model = ProviderModel(MODEL, api_key=KEY, base_url=fake.url("openai"))
        async with open_tree(model) as tree:
            talking = await tree.main.spawn("branch", "Talk.")
            await fake.until(lambda counts: counts.running_requests == 1)
            await ENDS[how](tree, talking)
            await fake.until(is_silent)
        assert (fake.counts.requests, fake.counts.broken_off) == (1, 1)
