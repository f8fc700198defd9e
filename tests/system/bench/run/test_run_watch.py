"""What looks after a run: ended programs, samples given back, costs, and what is left on the disk."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sessiontree.bench import Attempt, Suite
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.run.place.progress import RunPace
from sessiontree.bench.run.place.run_place import RunOptions, RunPlace
from sessiontree.bench.run.process_names import own_name
from sessiontree.bench.suite.samples import load_samples
from tests.system.bench.suite_fixtures import Heard, ended, rows, solve, suite

LOCAL = RunOptions(backend="local")


class Failing(Heard):
    """A display that fails for its first rounds.

    Args:
        rounds: How many.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.left = rounds
        self.failed = asyncio.Event()

    def show(self, pace: RunPace) -> None:
        """Fail, or keep the pace."""
        self.left -= 1
        if self.left >= 0:
            self.failed.set()
            raise RuntimeError("planted")
        super().show(pace)


@asynccontextmanager
async def entered(worked: Suite, run_dir: Path, owner: str) -> AsyncIterator[Ledger]:
    """Enter a run as another program would."""
    samples = load_samples(worked)
    place = RunPlace.of(run_dir, worked, samples, LOCAL)
    place.make()
    async with Ledger(run_dir / "ledger.sqlite", owner, beat_s=1e6) as ledger:
        await ledger.prepare(place.identity(), [each.id for each in samples], 1, 3)
        yield ledger


@pytest.mark.slow
async def test_failed_round_does_not_end_the_watch(tmp_path: Path) -> None:
    """A program that ends after it is still noticed, and its sample is solved."""
    program = (sys.executable, "-c", "input()")
    other = await asyncio.create_subprocess_exec(*program, stdin=subprocess.PIPE)
    heard = Failing(1)
    try:
        async with entered(suite(2), tmp_path / "run", own_name(other.pid)) as ledger:
            assert (await ledger.lease(1, 1)).leases
            async with asyncio.TaskGroup() as group:
                run = group.create_task(ended(suite(2), tmp_path / "run", heard=heard))
                await heard.failed.wait()
                other.kill()
                await other.wait()
                assert (await run).scored == 2
    finally:
        if other.returncode is None:
            other.kill()
            await other.wait()


@pytest.mark.slow
@pytest.mark.long
async def test_watch_that_fails_again_and_again_ends_the_run(tmp_path: Path) -> None:
    """With its error; the sample of an open attempt waits for the next command."""

    async def forever(attempt: Attempt[str]) -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    with pytest.raises(RuntimeError, match="planted"):
        await ended(suite(1, solver=forever), tmp_path / "run", heard=Failing(100))
    assert rows(tmp_path / "run", "SELECT state FROM samples") == [("waiting",)]


async def test_failed_clean_up_does_not_end_the_run(tmp_path: Path) -> None:
    """A solver has removed the directory that holds all workspaces."""

    async def removing(attempt: Attempt[str]) -> str:
        said = await solve(attempt)
        shutil.rmtree(attempt.workspace.parent)
        return said

    found = await ended(suite(1, solver=removing), tmp_path / "run")
    assert (found.scored, found.passed) == (1, 1)


@pytest.mark.slow
async def test_sample_that_another_program_gives_back_is_taken(tmp_path: Path) -> None:
    """At once, by a program that has free slots and still works on another sample."""
    begun, solved = asyncio.Event(), asyncio.Event()

    async def waiting(attempt: Attempt[str]) -> str:
        if attempt.sample.id == "s0":
            solved.set()
        else:
            begun.set()
            await solved.wait()
        return await solve(attempt)

    worked = suite(2, solver=waiting)
    async with entered(worked, tmp_path / "run", "elsewhere - - 1 - x") as ledger:
        (lease,) = (await ledger.lease(1, 1)).leases
        async with asyncio.TaskGroup() as group:
            run = group.create_task(ended(worked, tmp_path / "run"))
            await begun.wait()
            await ledger.give_back(lease, "cancelled", 3)
            assert (await run).passed == 2


@pytest.mark.slow
async def test_costs_of_open_attempts_are_written(tmp_path: Path) -> None:
    """Without a maximum too: if the program is killed, a later command with one counts them."""
    may_end = asyncio.Event()

    async def lasting(attempt: Attempt[str]) -> str:
        said = await solve(attempt)
        await may_end.wait()
        return said

    async with asyncio.TaskGroup() as group:
        run = group.create_task(ended(suite(1, solver=lasting), tmp_path / "run"))
        query = "SELECT cost_usd FROM attempts WHERE ended_at_ms IS NULL AND cost_usd > 0"
        while not (tmp_path / "run" / "ledger.sqlite").exists() or not rows(tmp_path / "run", query):
            await asyncio.wait([run], timeout=0.2)
        may_end.set()
        assert (await run).cost_usd == pytest.approx(0.01)
