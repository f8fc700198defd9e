"""However many sessions wait, what a person decides is heard at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sessiontree import FunctionModel, Limits, ModelRequest, Runtime, SessionKind, SessionStatus, SessionTree
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from sessiontree.models.answers import Answer, script_call
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import until

pytestmark = pytest.mark.slow

WAITING = 1_100
"""More than the thousand calls an actor takes at a time where nobody says otherwise."""
HOSTS = 8
AT_ONCE_S = 30.0


def reply(request: ModelRequest) -> Answer:
    """A Branch asks for what needs a person; Main answers."""
    if request.kind is SessionKind.MAIN:
        return "here"
    return script_call("launch", text="now") if request.turn == 1 else "launched"


@pytest.mark.covers("C2")
@pytest.mark.long
async def test_eleven_hundred_waiting_sessions_block_no_decision(tmp_path: Path) -> None:
    """On eight hosts, each result awaited too: an approval, a cancel and a message get through at once."""
    async with (
        Runtime(tmp_path.with_name(f"{tmp_path.name}-state"), slots=HOSTS) as runtime,
        SessionTree(
            tmp_path,
            model=FunctionModel(reply),
            tools=TOOLS,
            runtime=runtime,
            limits=Limits(
                max_children=WAITING,
                max_live=WAITING + 1,
                max_open_approvals=WAITING,
                approval_patience_s=None,
            ),
        ) as tree,
        asyncio.timeout(400),
    ):
        async with asyncio.TaskGroup() as group:
            spawning = [group.create_task(tree.main.spawn("branch", "go")) for _ in range(WAITING)]
        results = [asyncio.create_task(task.result().result()) for task in spawning]
        await until(tree, ApprovalWaiting, count=WAITING, where=lambda fact: fact.how == "show", within_s=300)
        pending = tree.approvals.pending()
        assert len(pending) == WAITING
        began = time.monotonic()
        await pending[WAITING // 2].approve()
        cancelled = pending[-1].request.session_id
        (line,) = await tree.session(cancelled).cancel()
        assert time.monotonic() - began < AT_ONCE_S
        assert line.status is SessionStatus.CANCELLED
        assert await tree.main.send("there?") == "here"
        approved = pending[WAITING // 2].request.session_id
        assert (await tree.session(approved).result()).summary == "launched"
        receipt = await tree.cancel()
        assert all(line.status.is_final for line in receipt)
        await asyncio.wait(results)
