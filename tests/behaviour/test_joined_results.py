"""A session that only waits for children is asked once for all of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sessiontree import AsyncFunctionModel, ModelRequest, script_call
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import PATIENCE_S
from tests.behaviour.signal_fixtures import Log, Turnstile
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

CHILDREN = 8


class Lead(AsyncFunctionModel):
    """Starts Workers in one reply and then only listens; each Worker ends when it is let through."""

    def __init__(self, board: Switchboard, **spawn: Any) -> None:
        """Give each spawn these further arguments."""
        super().__init__(self._reply, "lead")
        self.spawn = spawn
        self.asked = Log(board)
        """For each question to the lead, how many results it shows."""
        self.ends = [Turnstile(board) for _ in range(CHILDREN)]

    async def _reply(self, request: ModelRequest) -> Answer:
        if request.session_id == "main/b1":
            shown = sum(
                json.loads(message.text).get("status") == "completed"
                for message in request.messages
                if getattr(message, "origin", "") == "child"
            )
            self.asked.append(shown)
            if request.turn == 1:
                tasks = [f"part {number}" for number in range(CHILDREN)]
                return [
                    script_call("sessions_spawn", kind="worker", task=task, **self.spawn) for task in tasks
                ]
            return "noted"
        await self.ends[int(request.session_id.rpartition("w")[2]) - 1].acquire()
        return f"done {request.session_id}"


async def let_end(tree: Any, lead: Lead, number: int) -> None:
    """Let one Worker end, and wait until its parent has its result."""
    lead.ends[number].release()
    await tree.session(f"main/b1/w{number + 1}").result()


@pytest.mark.parametrize(("spawn", "most"), [({}, 3), ({"wait": "all"}, 3)], ids=["default", "all"])
async def test_lead_with_eight_workers_is_asked_three_times(
    open_tree: Opener, board: Switchboard, spawn: dict[str, Any], most: int
) -> None:
    """Whether they end one by one or together: to start them, once they are started, and with all results."""
    lead = Lead(board, **spawn)
    async with asyncio.timeout(PATIENCE_S), open_tree(lead) as tree:
        branch = await tree.main.spawn("branch", "lead")
        await lead.asked.holds(2)
        for number in range(CHILDREN):
            await let_end(tree, lead, number)
        await branch.result()
    assert len(lead.asked) <= most
    assert lead.asked.items()[-1] == CHILDREN


async def test_message_brings_what_has_arrived(open_tree: Opener, board: Switchboard) -> None:
    """A parent that is spoken to is not kept waiting, and the rest still comes together."""
    lead = Lead(board)
    async with asyncio.timeout(PATIENCE_S), open_tree(lead) as tree:
        branch = await tree.main.spawn("branch", "lead")
        await lead.asked.holds(2)
        for number in range(3):
            await let_end(tree, lead, number)
        assert (await branch.send("how far are you?")) is not None
        assert lead.asked.items()[-1] == 3
        for number in range(3, CHILDREN):
            await let_end(tree, lead, number)
        await branch.result()
    assert list(lead.asked) == [0, 0, 3, CHILDREN]


async def test_each_result_is_shown_at_once_where_that_is_asked_for(
    open_tree: Opener, board: Switchboard
) -> None:
    """``wait="each"``: the parent works on while others still run."""
    lead = Lead(board, wait="each")
    async with asyncio.timeout(PATIENCE_S), open_tree(lead) as tree:
        branch = await tree.main.spawn("branch", "lead")
        await lead.asked.holds(2)
        for number in range(CHILDREN):
            await let_end(tree, lead, number)
            await lead.asked.holds(3 + number)
        await branch.result()
    assert list(lead.asked) == [0, *range(CHILDREN + 1)]
