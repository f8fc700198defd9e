"""What can't be decided on, or not be written down, never changes what the tree knows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    ApprovalAnswer,
    AsyncFunctionModel,
    ModelRequest,
    ScriptedModel,
    SessionTree,
    script_call,
)
from sessiontree.contracts.facts.session_facts import TurnStarted
from sessiontree.contracts.facts.stimuli import ApprovalAsked, ResultOffered
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.transport.frames import Outcome
from sessiontree.session.instructions import SessionInstruction, ToTree
from tests.behaviour.bad_tool_fakes import junk
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, until
from tests.unit.runtime.runtime_fakes import FaultyRuntime
from tests.unit.runtime.test_faults import check_replay

UNFINISHED: SessionResult[Any] = SessionResult(SessionStatus.ACTIVE, "not yet")
UNWRITABLE = CheckedCall("1.0", "launch", {"text": junk(object())}, "d", 3, repeatable=False)
JUNK: dict[str, SessionInstruction] = {
    "a result that is no end": ToTree(ResultOffered(UNFINISHED)),
    "a request that can't be written": ToTree(ApprovalAsked("r1", UNWRITABLE)),
}


async def never(request: ModelRequest) -> str:
    """Never answer a Worker."""
    if request.session_id != "main":
        await asyncio.get_running_loop().create_future()
    return "here"


@pytest.mark.parametrize("name", JUNK)
async def test_host_that_wants_the_impossible_loses_its_session_alone(tmp_path: Path, name: str) -> None:
    """The session has crashed, typed; its tree goes on and its journal is what the supervisor holds."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(workspace, model=AsyncFunctionModel(never), tools=TOOLS, runtime=runtime) as tree,
    ):
        worker = await tree.main.spawn("worker", "look")
        other = await tree.main.spawn("worker", "look")
        await until(tree, TurnStarted, count=2)
        controller = runtime.local.core.tree(tree.tree_id)
        live = controller.live_sessions[worker.session_id]
        wanted = (JUNK[name],)
        controller.on_outcome(
            live, Outcome(live.session, live.epoch, live.taken, (), wanted, True, None, None)
        )
        async with asyncio.timeout(60):
            result = await worker.result()
        assert result.status is SessionStatus.FAILED
        assert "crashed" in result.summary
        assert not other.status().status.is_final
        assert await tree.main.send("and you?") == "here"
        await check_replay(runtime, tree)


async def test_answer_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """Whoever gave it is informed; the request waits as before, and a good answer is taken."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    model = ScriptedModel([script_call("launch"), "done"])
    async with (
        FaultyRuntime(tmp_path / "state") as runtime,
        SessionTree(workspace, model=model, tools=TOOLS, runtime=runtime) as tree,
    ):
        branch = await tree.main.spawn("branch", "go")
        (pending,) = await asked(tree)
        request_id = pending.request.request_id
        with pytest.raises(TypeError):
            await runtime.local.supervisor.decide(
                tree.tree_id, request_id, ApprovalAnswer(True, junk(object())), "x"
            )
        assert tree.approvals.pending() == [pending]
        await check_replay(runtime, tree)
        await pending.approve()
        assert (await branch.result()).summary == "done"
        assert len(effects(workspace)) == 1
        await check_replay(runtime, tree)
