"""Commands on a named node: where the owner allows them, after an approval, ended with their session."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from sessiontree import AgentConfig, AgentSpec, script_call
from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.facts.session_facts import ApprovalWanted, RunFinished
from tests.behaviour.fact_fixtures import facts_of, results, until
from tests.behaviour.job_fakes import process, steps
from tests.behaviour.test_commands import begun, in_time
from tests.behaviour.tree_fixtures import Opener

HERE = platform.node() or "local"
ALLOWED = AgentConfig(exec_hosts=frozenset({"node"}))
NODE = {"default": AgentSpec(tools=["exec", "process", "nodes"], config=ALLOWED)}
ODD = r"printf 'a\377b'; head -c 300000 /dev/zero | tr '\0' x"
"""Writes bytes that are not UTF-8, and much."""
HOLDING = "exec 3>pipe; echo begun >&3; (setsid sleep 1000 &) ; echo up; exec >&- 2>&-; sleep 1000"


@pytest.mark.covers("S15", "S52", "JOB9", "JOB10")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_approved_command_runs_on_a_node(open_tree: Opener, tmp_path: Path) -> None:
    """In the workspace if it is there, as says the result; without the program's keys; also as a job."""
    outside = tmp_path / "outside"
    os.mkfifo(open_tree.workspace / "pipe")
    command = f"echo ${{SECRET_KEY-none}} > {outside}; pwd -P; exit 3"
    model = steps(
        script_call("exec", command=command, host="node", node=HERE, elevated=True),
        script_call("nodes", action="run", node=HERE, command=ODD),
        script_call("exec", command=f"read it; echo $it; {HOLDING}", host="node", node=HERE, background=True),
        process("write", data="word\n"),
        process("poll", offset=0, wait_ms=60_000),
        process("kill"),
        "done",
    )
    async with open_tree(model, agents=NODE, approvals="auto") as tree:
        tree.main.send("go")
        with await begun(open_tree.workspace / "pipe") as file:
            assert await in_time(file.read) == ""
        await until(tree, RunFinished, session="main")
        first, second, third, _, polled, killed = [each.text for each in results(tree, "main")]
        assert len(await facts_of(tree, ApprovalWanted)) == 3
    assert first.splitlines()[0] == str(open_tree.workspace.resolve())
    assert f"exited with code 3; it ran on node {HERE}" in first
    assert "in the workspace" in first
    assert outside.read_text("utf-8") == "none\n"
    assert second.startswith("a\N{REPLACEMENT CHARACTER}bxxx")
    assert "bytes of output are left out" in second
    assert f"it runs on node {HERE}" in third
    assert "word" in polled
    assert "was ended on request" in killed


STRICT = {**NODE, "strict": AgentSpec()}


@pytest.mark.covers("S52", "JOB10")
async def test_call_that_cannot_run_on_a_node_asks_nobody(open_tree: Opener) -> None:
    """It says what the owner can set, or which nodes there are."""
    async with open_tree(steps("done"), agents=STRICT, approvals="auto") as tree:
        branch = await tree.main.spawn("branch", "work", agent="strict")
        with pytest.raises(PermissionDenied, match="the owner did not allow it"):
            await branch.call("exec", {"command": "true", "host": "node", "node": HERE})
        for name in ("no such node", "loc", f"{HERE}x"):
            with pytest.raises(ValidationError, match=f"no node has the name '{name}'; there are {HERE}"):
                await tree.main.call("exec", {"command": "true", "host": "node", "node": name})
            with pytest.raises(ValidationError, match="no node has the name"):
                await tree.main.call("nodes", {"action": "run", "command": "true", "node": name})
        assert await facts_of(tree, ApprovalWanted) == []
