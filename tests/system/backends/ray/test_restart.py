"""Processes die; the tree goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessiontree import FunctionModel, ModelRequest, Runtime, SessionKind, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.models.answers import Answer, script_call
from tests.behaviour import household_fakes as household
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import calls

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_runtime")]
"""Runtimes of their own, alongside the run's: they share its Ray, whose start takes seconds."""

STEPS = 30
PATIENCE_S = 200.0


def reply(request: ModelRequest) -> Answer:
    """A Branch appends so many lines, one a turn; Main answers."""
    step = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if request.kind is SessionKind.MAIN:
        return f"answer {step}"
    return script_call("append", text=str(step)) if step < STEPS else "done"


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[SessionTree]:
    """A tree in a runtime of its own, with one host of each pool warm."""
    async with (
        Runtime(state_of(tmp_path), slots=2) as runtime,
        SessionTree(tmp_path, model=FunctionModel(reply), tools=TOOLS, runtime=runtime) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        await tree.main.send("begin")
        yield tree


def state_of(workspace: Path) -> Path:
    """Return a state directory outside the workspace: inside, Workers would not see what appears there."""
    return workspace.with_name(f"{workspace.name}-state")


def backend_of(tree: SessionTree) -> RayBackend:
    """Return the backend a tree runs on."""
    backend = tree._backend
    assert isinstance(backend, RayBackend)
    return backend


async def kill(tree: SessionTree, role: str) -> bool:
    """Kill the process of a role, and say whether it ran."""
    pids = [row.pid for row in await backend_of(tree).actors() if row.role == role and row.pid]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return bool(pids)


async def until_lines(workspace: Path, tree: SessionTree, count: int) -> None:
    """Wait until so many lines are written, by reading the tree's facts."""
    async for _ in tree.events():
        if len(effects(workspace)) >= count:
            return


async def check_effects(tree: SessionTree, workspace: Path, session: str) -> None:
    """Every call ran at most once, and every line was asked for by a call."""
    ran = [call_id for call_id, _ in effects(workspace)]
    assert len(ran) == len(set(ran))
    assert len(calls(tree, session)) == STEPS
    assert len(ran) >= STEPS - 2


async def test_supervisor_killed_amid_work(tree: SessionTree, tmp_path: Path) -> None:
    """It is started again, the journal tells what is owed, nothing runs twice, and who waited is answered."""
    branch = await tree.main.spawn("branch", "go")
    await until_lines(tmp_path, tree, STEPS // 3)
    asked = tree.main.send("are you there?")
    await kill(tree, "supervisor")
    assert (await branch.result()).summary == "done"
    assert (await asked).startswith("answer")
    await check_effects(tree, tmp_path, branch.session_id)


@pytest.mark.covers("C2")
@pytest.mark.long
async def test_host_killed_amid_work(tree: SessionTree, tmp_path: Path) -> None:
    """The session is embodied by another process and ends as if nothing had happened."""
    branch = await tree.main.spawn("branch", "go")
    await until_lines(tmp_path, tree, STEPS // 3)
    rows = await backend_of(tree).actors()
    (pid,) = [row.pid for row in rows if row.session == branch.session_id]
    os.kill(pid, signal.SIGKILL)
    assert (await branch.result()).summary == "done"
    await check_effects(tree, tmp_path, branch.session_id)


@pytest.mark.long
async def test_gateway_killed_amid_a_question(tmp_path: Path) -> None:
    """The question is asked again, whole."""
    async with (
        Runtime(state_of(tmp_path), slots=2) as runtime,
        SessionTree(
            tmp_path, model=household.WAITING, tools=TOOLS, approvals="auto", runtime=runtime
        ) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        tree.main.send("go")
        async for _ in tree.events():
            if await kill(tree, "gateway"):
                break
        await household.finished(tree)
        assert household.outcome(tree) == household.RESULTS
        assert household.done(tmp_path) == household.EFFECTS
