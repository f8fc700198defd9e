"""Commands of sessions: who may run them, what they reach, and that none outlives what it was run for."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from sessiontree import (
    FunctionModel,
    Limits,
    ModelRequest,
    ScriptedModel,
    SessionKind,
    SessionTree,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.models.answers import Answer
from sessiontree.testing.force import force_register
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results
from tests.behaviour.tree_fixtures import Opener

HOLDING = "exec 3>pipe; echo begun >&3; setsid sleep 1000 & (sleep 1000 &) ; sleep 1000"
"""Tells that it has begun; whatever it starts holds the other end of the pipe while it lives."""
STUBBORN = "trap '' TERM; exec 3>pipe; for n in $(seq 60); do sleep 1000 & done; echo begun >&3; sleep 1000"
SLEEPING = "while :; do sleep 0.1; done"
"""A shell that is asked right before it begins to wait hears of it when that wait is over."""


@pytest.fixture
def pipe(open_tree: Opener) -> Path:
    """A pipe in the workspace."""
    path = open_tree.workspace / "pipe"
    os.mkfifo(path)
    return path


async def in_time(read: Callable[[], str]) -> str:
    """Return what is read, in a thread, within a test's patience."""
    return await asyncio.wait_for(asyncio.to_thread(read), PATIENCE_S)


async def begun(path: Path) -> TextIO:
    """Wait until the holding command has begun; return the pipe, which ends with its last process."""
    file = await asyncio.wait_for(asyncio.to_thread(path.open), PATIENCE_S)
    assert await in_time(file.readline) == "begun\n"
    return file


def runs_a_command(request: ModelRequest) -> Answer:
    """Run a command that the task names, then say that it is done."""
    if isinstance(request.messages[-1], AssistantMessage) or len(request.messages) > 1:
        return "done"
    return script_call("exec", command=request.messages[0].text)


@pytest.mark.covers("S6", "S54")
@pytest.mark.slow
async def test_main_and_branches_run_commands_in_the_workspace(open_tree: Opener) -> None:
    """The model reads the output, the journal keeps how it ended, the file stays."""
    script: list[Answer] = [script_call("exec", command="echo hello | tee -a said; exit 3"), "done"]
    tree = open_tree(ScriptedModel(script))
    async with tree:
        await tree.main.send("go")
        branch = await tree.main.spawn("branch", "go")
        await branch.result()
        for session in ("main", branch.session_id):
            (message,) = results(tree, session)
            assert (message.text, message.is_error) == ("hello\n(Command exited with code 3)", False)
            assert isinstance(message.details, dict)
            details = message.details["details"]
            assert isinstance(details, dict)
            assert (details["exit_code"], details["reason"], details["limit"]) == (3, "exited", None)
    assert (open_tree.workspace / "said").read_text() == "hello\nhello\n"


@pytest.mark.covers("S6")
@pytest.mark.parametrize("name", ["bash", "shell", "Exec"])
@pytest.mark.on_ray
async def test_other_names_lead_to_it(open_tree: Opener, name: str) -> None:
    """What models call it elsewhere."""
    tree = open_tree(ScriptedModel([script_call(name, command="echo $((6*7))"), "done"]))
    async with tree:
        await tree.main.send("go")
        assert [message.text for message in results(tree, "main")] == ["42\n"]


@pytest.mark.covers("A34")
@pytest.mark.parametrize(("forced", "words"), [(False, "does not hold exec"), (True, "holds no jobs")])
async def test_worker_runs_none(open_tree: Opener, forced: bool, words: str) -> None:
    """It does not hold the tool; forced to hold it, it has no shell; nothing ran."""
    tree = open_tree(ScriptedModel([script_call("exec", command="touch ran"), "done"]))
    if forced:
        force_register(tree, "exec", SessionKind.WORKER)
    async with tree:
        worker = await tree.main.spawn("worker", "look")
        await worker.result()
        assert words in results(tree, worker.session_id)[0].text
        assert [fact.outcome for fact in await facts_of(tree, CallResolved, worker.session_id)] == ["denied"]
    assert list(open_tree.workspace.iterdir()) == []


async def test_cancelling_a_session_ends_its_command_and_all_it_started(
    open_tree: Opener, pipe: Path
) -> None:
    """Also what went into sessions and the background of its own."""
    tree = open_tree(FunctionModel(runs_a_command))
    async with tree:
        branch = await tree.main.spawn("branch", HOLDING)
        with await begun(pipe) as file:
            await branch.cancel("enough")
            assert await in_time(file.read) == ""


async def test_when_a_stop_is_over_a_stubborn_command_is_gone(open_tree: Opener, pipe: Path) -> None:
    """EXE8, STP5: its session is ended by force; not one of its processes is there when `cancel` returns."""
    tree = open_tree(FunctionModel(runs_a_command), limits=Limits(cancel_grace_s=0.05))
    async with tree:
        branch = await tree.main.spawn("branch", STUBBORN)
        with await begun(pipe) as file:
            os.set_blocking(file.fileno(), False)
            (line,) = await branch.cancel("enough")
            assert os.read(file.fileno(), 1) == b"", "or BlockingIOError, where somebody holds it still"
        assert line.forced


@pytest.mark.covers("I23")
async def test_command_that_is_cut_short_has_its_last_words_told(open_tree: Opener, pipe: Path) -> None:
    """A message stops it; what it says when it is asked to end is in the result."""
    command = f"trap 'echo saved; exit' TERM; echo half; exec 3>pipe; echo begun >&3; {SLEEPING}"
    tree = open_tree(ScriptedModel([script_call("exec", command=command), "went on"]))
    async with tree, asyncio.timeout(PATIENCE_S):
        sent = asyncio.ensure_future(tree.main.send("go"))
        with await begun(pipe) as file:
            await tree.main.send("enough", mode="steer")
            assert await sent == "went on"
            assert await in_time(file.read) == ""
        (message,) = results(tree, "main")
        assert [fact.outcome for fact in await facts_of(tree, CallResolved, "main")] == ["aborted"]
        output = json.loads(message.text)["partial"]["output"]
        assert output.startswith("half\n")
        assert output.endswith("saved\n")


@pytest.mark.on_ray
async def test_closing_a_tree_ends_its_commands(open_tree: Opener, pipe: Path) -> None:
    """Nothing of a command outlives the tree it was run for, and nobody waits for what it would say."""
    async with open_tree(FunctionModel(runs_a_command)) as tree:
        await tree.main.spawn("branch", f"trap 'echo asked >&3' TERM; {HOLDING}")
        file = await begun(pipe)
    with file:
        assert await in_time(file.read) == ""


@pytest.mark.covers("I22")
@pytest.mark.slow
async def test_time_out_of_the_call_ends_the_command(open_tree: Opener, pipe: Path) -> None:
    """The model reads what it said so far."""
    for timeout in (1, 4, 16, 64):
        script: list[Answer] = [
            script_call("exec", command=f"echo so far; {HOLDING}", timeout=timeout),
            "done",
        ]
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            async with open_tree(ScriptedModel(script)) as tree:
                await tree.main.send("go")
                (message,) = results(tree, "main")
            if os.read(reader, 100) == b"begun\n":  # else the machine was so busy that it never began
                assert os.read(reader, 1) == b"", "or BlockingIOError, where something holds it still"
                assert message.text.startswith(f"so far\n(Command timed out after {timeout}.0 s")
                return
        finally:
            os.close(reader)
    pytest.fail("the command never began")


@pytest.mark.covers("REL-L18")
@pytest.mark.slow
async def test_runtimes_own_is_out_of_sight(open_tree: Opener) -> None:
    """Neither its environment nor its processes, sockets and files are there for a command."""
    command = "env | grep -ci '^ray_\\|^pytest'; ls -d /proc/[0-9]* | wc -l; ls -A ~ | wc -l; ls /tmp"
    tree = open_tree(ScriptedModel([script_call("exec", command=command), "done"]))
    async with tree:
        await tree.main.send("go")
        (message,) = results(tree, "main")
        ray, processes, home, *temporary = message.text.split()
        assert (int(ray), int(home)) == (0, 0)
        assert int(processes) < 8
        ways = [open_tree.workspace, Path(sys.prefix), Path(sys.base_prefix)]
        assert {Path("/tmp", name) for name in temporary} <= {
            parent for way in ways for parent in way.parents
        }


@pytest.mark.covers("REL-L18")
async def test_state_directory_in_the_workspace_is_hidden(tmp_path: Path) -> None:
    """A command finds nothing there, and can't move it away."""
    state = tmp_path / "runtime" / "state"
    command = "find runtime -type f | wc -l; mv runtime other; mv runtime/state other; ls"
    model = ScriptedModel([script_call("exec", command=command), "done"])
    async with SessionTree(tmp_path, model=model, state_dir=state, backend="local") as tree:
        await tree.main.send("go")
        (message,) = results(tree, "main")
        lines = message.text.splitlines()
    assert (lines[0], lines[-1]) == ("0", "runtime")
    assert any(state.iterdir())
