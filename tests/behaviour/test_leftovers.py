"""What a session's commands had left running when it was ended by force is ended and counted."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from benchmarks.stubborn import until_alive
from sessiontree import Limits, ScriptedModel, SessionStatus, script_call
from tests.behaviour.fact_fixtures import PATIENCE_S
from tests.behaviour.tree_fixtures import Opener

DEAF = "trap '' TERM; python3 -c 'import signal; signal.signal(15, 1); signal.pause()' {mark}"


@pytest.mark.on_ray
async def test_receipt_counts_the_commands_that_were_ended_by_force(open_tree: Opener) -> None:
    """A command that ignores its end outlives the grace, not the session; others' receipts are clean."""
    mark = f"stubborn-{uuid.uuid4().hex}"
    command = DEAF.format(mark=mark)
    model = ScriptedModel({"main/b1": [script_call("exec", command=command)], "main/b2": ["done"]})
    async with open_tree(model, limits=Limits(cancel_grace_s=0.2)) as tree, asyncio.timeout(PATIENCE_S):
        branch = await tree.main.spawn("branch", "run it")
        other = await tree.main.spawn("branch", "be done")
        await other.result()
        await until_alive(mark, alive=True)
        (line,) = await branch.cancel()
        assert (line.status, line.forced) == (SessionStatus.CANCELLED, True)
        assert line.leftovers >= 1
        assert {each.session_id: each.leftovers > 0 for each in tree.receipt()} == {
            "main": False, "main/b1": True, "main/b2": False,
        }  # fmt: skip
        await until_alive(mark, alive=False)  # killed; the kernel takes a moment
