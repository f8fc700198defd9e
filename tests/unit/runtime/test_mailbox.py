"""What a host has taken is soon known to its supervisor, whatever else it has to say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ScriptedModel, SessionTree
from sessiontree.runtime.transport.link import HostLost, Mailbox
from tests.unit.runtime.runtime_fakes import FaultyRuntime

AT_ONCE_S = 10.0
"""Half of what a host's own poll may last."""
POLL_S = 600.0


def mailbox() -> Mailbox:
    """Return a mailbox whose frames need no answer."""
    frames: list[Any] = []
    return Mailbox(frames.append)


async def test_frames_without_an_answer_are_told_to_a_poll_that_waits_already() -> None:
    """A host that was asked to let go is free at once, not at the end of a poll."""
    box = mailbox()
    polling = asyncio.create_task(box.poll(0, POLL_S))
    await asyncio.sleep(0)
    box.receive([(1, "let go")])
    async with asyncio.timeout(AT_ONCE_S):
        assert (await polling).received == 1


async def test_what_was_told_in_a_lost_answer_is_told_again() -> None:
    """Frames that are sent again were not known to be received: the next poll does not wait with them."""
    box = mailbox()
    box.receive([(1, "let go")])
    async with asyncio.timeout(AT_ONCE_S):
        lost = await box.poll(0, POLL_S)
    assert lost.received == 1
    polling = asyncio.create_task(box.poll(0, POLL_S))
    await asyncio.sleep(0)
    box.receive([(1, "let go")])
    async with asyncio.timeout(AT_ONCE_S):
        assert (await polling).received == 1


async def test_only_host_serves_the_next_tree_as_soon_as_one_is_closed(tmp_path: Path) -> None:
    """Nobody waits for a host that has nothing to do."""
    model = ScriptedModel(["here"] * 4)
    async with FaultyRuntime(tmp_path / "state", slots=1) as runtime:
        one = SessionTree(tmp_path, model=model, runtime=runtime)
        async with SessionTree(tmp_path, model=model, runtime=runtime) as other:
            async with one:
                assert await one.main.send("hello") == "here"
            async with asyncio.timeout(AT_ONCE_S):
                assert await other.main.send("hello") == "here"


async def test_short_poll_is_not_kept_by_the_patience_of_a_longer_one() -> None:
    """Polls share one timer; it fires for the one that gives up first."""
    box = mailbox()
    long = asyncio.create_task(box.poll(0, POLL_S))
    await asyncio.sleep(0)
    box.put("an answer")
    assert (await long).outcomes == ((1, "an answer"),)
    for _ in range(2):
        async with asyncio.timeout(AT_ONCE_S):
            assert (await box.poll(1, 0.01)).outcomes == ()


async def test_closed_mailbox_leaves_no_bell_behind() -> None:
    """Whoever polled is informed, and no timer keeps the mailbox."""
    box = mailbox()
    polling = asyncio.create_task(box.poll(0, POLL_S))
    await asyncio.sleep(0)
    box.close()
    with pytest.raises(HostLost):
        await polling
    assert box._patience is not None
    assert box._patience.cancelled()
