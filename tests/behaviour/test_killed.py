"""A process that is killed loses nothing that anybody was informed of, and repeats nothing."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from sessiontree.contracts.facts.session_facts import CallResolved
from tests.behaviour import household_fakes as household
from tests.behaviour.deadly_fakes import Countdown
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import BACKENDS, Opener

POINTS = [
    *(("model", number) for number in (1, 2, 5, 9, 14)),
    *(("before", number) for number in (1, 4, 6)),
    *(("after", number) for number in (1, 3, 6)),
]


@pytest.mark.short(2)
@pytest.mark.covers("DUR1")
@pytest.mark.slow
@pytest.mark.own_runtime
@pytest.mark.parametrize("variant", BACKENDS, indirect=True)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]} {point[1]}")
async def test_killed_process_leaves_a_tree_that_comes_to_its_end(
    open_tree: Opener, board: Switchboard, point: tuple[str, int]
) -> None:
    """REL-S40, REL-S42: SIGKILL at any point; resumed elsewhere, every effect happened at most once."""
    countdown = Countdown(board, *point)
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.behaviour.killed_program",
        open_tree.backend,
        open_tree.workspace,
        open_tree.state_dir,
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(pickle.dumps(countdown))
            program.stdin.close()
            tree_id = (await program.stdout.readline()).decode().strip()
            await countdown.reached.wait()
    finally:
        program.kill()
    assert await program.wait() == -signal.SIGKILL
    before = household.done(open_tree.workspace)
    async with (
        await open_tree.resume(tree_id, household.MODEL, tools=TOOLS) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        if not tree.main.history():
            tree.main.send("go")
        await household.finished(tree)
        assert household.outcome(tree) == household.RESULTS
        done = household.done(open_tree.workspace)
        unknown = [fact for fact in await facts_of(tree, CallResolved) if fact.outcome == "unknown"]
        assert max(done.values()) == 1
        assert before <= done <= household.EFFECTS
        assert len(household.EFFECTS - done) <= len(unknown)
        if point[0] != "model":
            assert unknown
