"""Models and tools of these tests reach another process whole, and share with their test what they should."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest
from ray import cloudpickle

from sessiontree import FunctionModel, ModelRequest, ScriptedModel, script_call
from sessiontree.models.answers import Answer
from tests.behaviour import household_fakes as household
from tests.behaviour.bad_tool_fakes import MISDEEDS, Misbehave
from tests.behaviour.deadly_fakes import Countdown, DeadlyAppend, DeadlyLaunch, DeadlyReply
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Deaf, Held, InThread, Sleeper

PROGRAM = """
import asyncio, pickle, sys
from dataclasses import dataclass

@dataclass
class Context:
    cancelled: bool = False

async def run():
    travelled, sleeper, deaf, others, log = pickle.load(sys.stdin.buffer)
    context = Context()
    log.append([type(each).__name__ for each in travelled])
    sleeping, ignoring = [asyncio.create_task(each.execute(None, context)) for each in (sleeper, deaf)]
    running = [asyncio.create_task(each.execute(None, context)) for each in others]
    await sleeper.started.wait()
    await deaf.started.wait()
    context.cancelled = True
    sleeping.cancel()
    ignoring.cancel()
    await asyncio.wait({sleeping})
    results = [(await each).output for each in (*running, ignoring)]
    log.append(results)

asyncio.run(run())
"""


@pytest.mark.slow
async def test_every_shared_double_works_in_another_process(board: Switchboard) -> None:
    """A fresh interpreter finds all they need by name; flags and logs of the test are theirs too."""
    countdown = Countdown(board, "model", 1)
    travelled = [
        *TOOLS,
        *(Misbehave(name) for name in MISDEEDS),
        household.MODEL,
        household.WAITING,
        FunctionModel(DeadlyReply(countdown)),
        DeadlyAppend(countdown),
        DeadlyLaunch(countdown),
    ]
    sleeper, deaf, held, in_thread = Sleeper(board), Deaf(board), Held(board), InThread(board)
    log = Log(board)
    given = cloudpickle.dumps((travelled, sleeper, deaf, [held, in_thread], log))  # type: ignore[no-untyped-call]
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdin=PIPE)
    async with asyncio.timeout(PATIENCE_S):
        assert program.stdin is not None
        program.stdin.write(given)
        program.stdin.close()
        await deaf.ended.holds(1)
        assert deaf.ended == ["ignored"]
        for tool in (held, in_thread, deaf):
            await tool.started.wait()
            tool.let_go.set()
        assert await program.wait() == 0
    assert log == [[type(each).__name__ for each in travelled], ["through", "late", "too late"]]
    assert sleeper.ended == ["cancelled"]
    assert held.ended == ["through"]
    assert in_thread.saw_cancel.is_set()
    assert deaf.done.is_set()


@pytest.mark.on_ray
async def test_what_a_double_keeps_for_itself_is_not_seen_where_it_was_made(
    open_tree: Opener, board: Switchboard
) -> None:
    """Wherever doubles travel, a plain list of theirs is a copy, and a log is the test's own."""
    kept: list[int] = []
    shared = Log(board)

    def reply(request: ModelRequest) -> Answer:
        kept.append(request.turn)
        shared.append(request.turn)
        return "done"

    async with open_tree(FunctionModel(reply)) as tree:
        assert await tree.main.send("go") == "done"
    assert shared == [1]
    assert kept == ([1] if open_tree.backend == "local" and not open_tree.travels else [])


async def test_trees_of_a_test_may_share_a_runtime(open_tree: Opener) -> None:
    """A tree that asks for slots has its own; the others may be open together, each with its own facts."""
    model = ScriptedModel([script_call("look"), "done"])
    elsewhere = open_tree.elsewhere("other")
    async with open_tree(model, tools=TOOLS, slots=1) as alone, elsewhere(model, tools=TOOLS) as other:
        assert alone.state_dir != other.state_dir
        assert await alone.main.send("go") == await other.main.send("go") == "done"
    if open_tree.shared is not None:
        async with open_tree(model, tools=TOOLS) as first, open_tree(model, tools=TOOLS) as second:
            assert first.state_dir == second.state_dir == open_tree.shared.state_dir
            assert await first.main.send("go") == await second.main.send("go") == "done"
