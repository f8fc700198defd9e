"""Commands without confinement: where the owner allows them, after an approval, ended with their session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sessiontree import AgentConfig, AgentSpec, script_call
from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.facts.session_facts import ApprovalWanted, RunFinished
from tests.behaviour.fact_fixtures import facts_of, results, until
from tests.behaviour.job_fakes import process, steps
from tests.behaviour.test_commands import begun, in_time
from tests.behaviour.tree_fixtures import Opener

HOST = {"default": AgentSpec(config=AgentConfig(exec_hosts=frozenset({"host"})))}
HOLDING = "exec 3>pipe; echo begun >&3; (setsid sleep 1000 &) ; echo up; exec >&- 2>&-; sleep 1000"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside the workspace, which is not there yet."""
    return tmp_path / "outside"


@pytest.mark.covers("I37", "S51", "JOB9")
@pytest.mark.parametrize("arguments", [{"host": "host"}, {"elevated": True}], ids=str)
async def test_approved_command_leaves_the_confinement(
    open_tree: Opener, outside: Path, arguments: dict[str, str | bool]
) -> None:
    """It is Elevated, writes outside the workspace, and has none of the program's keys."""
    command = f"echo ${{SECRET_KEY-none}} > {outside}; exit 3"
    model = steps(script_call("exec", command=command, **arguments), "done")
    async with open_tree(model, agents=HOST, approvals="auto") as tree:
        await tree.main.send("go")
        assert results(tree, "main")[0].text == "(Command exited with code 3)"
        (wanted,) = await facts_of(tree, ApprovalWanted)
        assert wanted.call.tool == "exec"
    with open(outside) as file:  # noqa: ASYNC230, PTH123 - nothing else runs
        assert file.read() == "none\n"


@pytest.mark.covers("I37", "S51")
@pytest.mark.parametrize(
    ("agents", "approvals", "words"),
    [
        (HOST, "never", "denied"),
        ({}, "auto", "the owner did not allow it"),
    ],
    ids=["not approved", "not the owner's"],
)
async def test_no_command_leaves_the_confinement_otherwise(
    open_tree: Opener, outside: Path, agents: dict[str, AgentSpec], approvals: str, words: str
) -> None:
    """Neither without the owner's setting nor without an approval."""
    model = steps(script_call("exec", command=f"touch {outside}", elevated=True), "done")
    async with open_tree(model, agents=agents, approvals=approvals) as tree:
        await tree.main.send("go")
        (refused,) = results(tree, "main")
        assert refused.is_error
        assert words in refused.text
        assert len(await facts_of(tree, ApprovalWanted)) == len(agents), "nobody is asked in vain"
    assert outside.name not in os.listdir(outside.parent)  # noqa: PTH208 - a name


@pytest.mark.covers("S51", "JOB9")
async def test_agent_allows_its_children_no_host_that_those_above_have_not(open_tree: Opener) -> None:
    """An agent's own setting widens nothing."""
    agents = {"default": AgentSpec(), "lax": HOST["default"]}
    async with open_tree(steps("done"), agents=agents, approvals="auto") as tree:
        branch = await tree.main.spawn("branch", "work", agent="lax")
        with pytest.raises(PermissionDenied, match="the owner did not allow it"):
            await branch.call("exec", {"command": "true", "elevated": True})


@pytest.mark.covers("S51")
async def test_unconfined_job_ends_with_its_session(open_tree: Opener) -> None:
    """Also what it left in a session of its own, without a parent."""
    os.mkfifo(open_tree.workspace / "pipe")
    model = steps(
        script_call("exec", command=HOLDING, background=True, elevated=True),
        process("poll", offset=0, wait_ms=60_000),
        process("kill"),
        "done",
    )
    async with open_tree(model, agents=HOST, approvals="auto") as tree:
        tree.main.send("go")
        with await begun(open_tree.workspace / "pipe") as file:
            assert await in_time(file.read) == ""
        await until(tree, RunFinished, session="main")
        assert "was ended on request" in results(tree, "main")[2].text
