"""Transcripts are read in pages: whole, from a place, up to a number, and bit by bit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree import ConfigError, FunctionModel, ModelRequest, SessionTree, script_call
from sessiontree.api.tree.session_reader import FACTS_PER_PAGE
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.messages import Message
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

MESSAGES = 70
CALLS = 3


def reply(request: ModelRequest) -> Answer:
    """Make some calls in each run."""
    since = [message.to_wire()["role"] for message in request.messages[::-1]].index("user")
    return [script_call("look") for _ in range(CALLS)] if since == 0 else "so"


def shown(messages: list[Message]) -> list[str]:
    """Return messages as they can be compared."""
    return [json.dumps(message.to_wire()) for message in messages]


async def spoken(tree: SessionTree) -> list[str]:
    """Have a conversation of more than a page, and return all of it."""
    for number in range(MESSAGES):
        await tree.main.send(f"message {number}")
    whole = shown(tree.main.history())
    assert len(whole) == MESSAGES * (3 + CALLS)
    assert len(await facts_of(tree, CallResolved)) * 2 > FACTS_PER_PAGE / 2
    return whole


@pytest.mark.slow
async def test_transcript_is_read_from_any_place(open_tree: Opener) -> None:
    """What is left out and what is cut off comes from the whole, wherever pages begin."""
    async with open_tree(FunctionModel(reply), tools=TOOLS) as tree:
        whole = await spoken(tree)
        for after in (0, 1, 5, 200, len(whole) - 1, len(whole), len(whole) + 9):
            for limit in (None, 0, 1, 7, 500):
                found = shown(tree.main.history(after=after, limit=limit))
                assert found == whole[after:][:limit]
            bit_by_bit = shown([message async for message in tree.main.transcript(after=after)])
            assert bit_by_bit == whole[after:]


@pytest.mark.slow
async def test_nobody_reads_more_than_a_page_at_a_time(open_tree: Opener) -> None:
    """Whatever the supervisor is asked for a transcript is bounded; pages put together are all there is."""
    async with open_tree(FunctionModel(reply), tools=TOOLS) as tree:
        await spoken(tree)
        supervisor = tree._backend.supervisor
        every = (await supervisor.record_of(tree.tree_id, "main")).facts
        for most in (1, 7, FACTS_PER_PAGE, len(every), len(every) + 1):
            found: list[str] = []
            seq, pages = 0, 0
            while seq or not pages:
                page = await supervisor.record_of(tree.tree_id, "main", seq, most)
                assert len(page.facts) <= most
                found += page.facts
                seq, pages = page.next_seq, pages + 1
            assert tuple(found) == every
            assert pages <= len(every) // most + 1


@pytest.mark.parametrize("given", [{"after": -1}, {"after": True}, {"limit": -1}, {"limit": "5"}])
async def test_numbers_that_are_none_are_refused(open_tree: Opener, given: Any) -> None:
    """With what to give instead."""
    async with open_tree(FunctionModel(reply), tools=TOOLS) as tree:
        with pytest.raises(ConfigError, match="give a whole number, at least 0"):
            tree.main.history(**given)
