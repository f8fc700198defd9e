"""A program with a tree at work ends in every way: nothing of it stays, and another takes the tree up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sessiontree import AsyncFunctionModel, Runtime, SessionStatus, SessionTree
from sessiontree.backends.ray.engine import engine_home
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.facts.tree_facts import ResultHeld
from tests.behaviour.effect_fakes import Append, effects
from tests.behaviour.fact_fixtures import facts_of, results, until
from tests.system.backends.ray.tree_program import Hold, WatchOnce, reply

START_S = 180.0
GONE_S = 60.0
"""After this no process of a program may be left; where nobody else is at work, 10 s are enough."""


def interrupt(pid: int) -> None:
    """Do what a terminal does on Ctrl-C: tell the whole group."""
    os.killpg(pid, signal.SIGINT)


def kill(pid: int) -> None:
    """End one process without a word."""
    os.kill(pid, signal.SIGKILL)


def nothing(pid: int) -> None:
    """Let it end by itself."""


async def ended(mode: str, end: Callable[[int], None], place: Path) -> tuple[str, int, list[str]]:
    """Bring a program to its end.

    Returns:
        The id of its tree, its exit code, and the last line of its complaints, where there are any.
    """
    (place / "workspace").mkdir()
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.system.backends.ray.tree_program",
        mode,
        str(place),
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        assert running.stdout is not None
        assert running.stderr is not None
        line = await asyncio.wait_for(running.stdout.readline(), START_S)
        assert line, (await running.stderr.read()).decode()
        ready = json.loads(line)
        home = Path(ready["home"])
        assert Path(ready["scratch"]).is_relative_to(home)
        seen = {process for pid in ready["children"] if (process := engine_home.find_process(pid))}
        if mode == "wait":
            root = engine_home.find_process(running.pid)
            assert root is not None
            seen |= engine_home.add_descendants({root}, lambda _: False)
            assert len(seen) >= 10
        end(running.pid)
        code = await asyncio.wait_for(running.wait(), START_S)
        await gone(seen, home)
        complaints = (await running.stderr.read()).decode().splitlines()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    return ready["tree_id"], code, complaints[-1:]


async def gone(seen: set[engine_home.Process], home: Path) -> None:
    """Wait until nothing is left of a program, for the time it has."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GONE_S
    while left := left_of(seen, home):
        assert loop.time() < deadline, f"left: {left}"
        await asyncio.sleep(0.05)


def left_of(seen: set[engine_home.Process], home: Path) -> list[str]:
    """Return what of a program's processes and files there still is."""
    left = [str(process) for process in seen if engine_home.find_process(process.pid) == process]
    return [*left, str(home)] if home.exists() else left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "end", "code", "complaints"),
    [
        pytest.param("wait", interrupt, 1, ["KeyboardInterrupt"], id="Ctrl-C", marks=pytest.mark.long),
        pytest.param("exit", nothing, 0, [], id="exit without close", marks=pytest.mark.long),
    ],
)
async def test_nothing_is_left_of_a_program_that_ends(
    mode: str, end: Callable[[int], None], code: int, complaints: list[str], tmp_path: Path
) -> None:
    """Processes of sessions and tools, and every temporary directory, are gone within 10 s."""
    _, ended_with, said = await ended(mode, end, tmp_path)
    assert (ended_with, said) == (code, complaints)
    assert [text for _, text in effects(tmp_path / "workspace")] == ["one", "two"]


@pytest.mark.slow
async def test_killed_program_leaves_nothing_but_a_tree_that_goes_on(
    tmp_path: Path, ray_runtime: Runtime
) -> None:
    """SIGKILL: what it ran is gone; taken up elsewhere all come home, and no effect is repeated."""
    tree_id, code, _ = await ended("wait", kill, tmp_path)
    assert code == -signal.SIGKILL
    workspace = tmp_path / "workspace"
    assert [text for _, text in effects(workspace)] == ["one", "two"]
    tools = [Append(), Hold(), WatchOnce()]
    async with (
        Runtime(tmp_path / "state") as runtime,  # alongside the run's own, on the same Ray
        await SessionTree.resume(
            tree_id, model=AsyncFunctionModel(reply), tools=tools, runtime=runtime
        ) as tree,
        asyncio.timeout(START_S),
    ):
        assert runtime.backend is not ray_runtime.backend
        await until(
            tree,
            ResultHeld,
            where=lambda fact: fact.session == "main" and fact.result.summary == "2 are home",
        )
        assert {line.session_id: (line.status, line.summary) for line in tree.receipt()[1:]} == {
            "main/b1": (SessionStatus.COMPLETED, "all done"),
            "main/w1": (SessionStatus.COMPLETED, "watched enough"),
        }
        outcomes = Counter(fact.outcome for fact in await facts_of(tree, CallResolved, "main/b1"))
        assert outcomes == {"ok": 2, "unknown": 1}
        assert '"may_have_run":true' in results(tree, "main/b1")[1].text
    assert [text for _, text in effects(workspace)] == ["one", "two", "three"]
