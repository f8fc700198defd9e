"""Commands of one session at a time: the others wait, say so, and can be taken back."""

from __future__ import annotations

import asyncio
import os

import pytest

from sessiontree import Limits, ScriptedModel, script_call
from sessiontree.contracts.reports.events import ToolExecutionUpdate
from sessiontree.contracts.values.messages import ToolCall
from tests.behaviour.fact_fixtures import PATIENCE_S, results
from tests.behaviour.tree_fixtures import Opener

COUNTING = "touch running/{0}; ls running | wc -l; rm running/{0}"


@pytest.mark.slow
async def test_no_more_run_at_a_time_than_the_limit_allows(open_tree: Opener) -> None:
    """All end well, and those that wait report it."""
    (open_tree.workspace / "running").mkdir()
    calls: list[str | ToolCall] = [
        script_call("exec", command=COUNTING.format(number)) for number in range(8)
    ]
    tree = open_tree(ScriptedModel([calls, "done"]), limits=Limits(max_commands=2))
    async with tree:
        reader = tree.progress("main")
        await tree.main.send("go")
        waits: list[ToolExecutionUpdate] = []
        while len(waits) < 6:
            event = (await asyncio.wait_for(reader.next(), PATIENCE_S)).event
            if isinstance(event, ToolExecutionUpdate) and "waiting" in str(event.partial):
                waits.append(event)
        counts = [int(message.text) for message in results(tree, "main")]
    assert len(counts) == 8
    assert set(counts) <= {1, 2}
    assert "at most 2 commands of a session run at a time" in str(waits[0].partial)


@pytest.mark.slow
async def test_waiting_does_not_use_up_a_commands_time(open_tree: Opener) -> None:
    """The first uses all of its time; the second begins when the same time has passed for it too."""
    calls: list[str | ToolCall] = [
        script_call("exec", command="sleep 1000"),
        script_call("exec", command="echo ran"),
    ]
    tree = open_tree(ScriptedModel([calls, "done"]), limits=Limits(max_commands=1, tool_timeout_s=3))
    async with tree:
        await tree.main.send("go")
        assert [message.text.strip() for message in results(tree, "main")][1] == "ran"


@pytest.mark.slow
async def test_what_waits_is_taken_back(open_tree: Opener) -> None:
    """Steering ends the command that runs, and those that wait never begin."""
    os.mkfifo(open_tree.workspace / "pipe")
    calls: list[str | ToolCall] = [script_call("exec", command="echo >pipe; sleep 1000")]
    calls += [script_call("exec", command=f"touch ran-{number}") for number in range(3)]
    tree = open_tree(ScriptedModel([calls, "done"]), limits=Limits(max_commands=1))
    async with tree:
        going = asyncio.ensure_future(tree.main.send("go"))
        pipe = await asyncio.wait_for(asyncio.to_thread((open_tree.workspace / "pipe").open), PATIENCE_S)
        pipe.close()
        await tree.main.send("enough", mode="steer")
        await going
        assert len(results(tree, "main")) == 4
    assert [path.name for path in open_tree.workspace.iterdir()] == ["pipe"]
