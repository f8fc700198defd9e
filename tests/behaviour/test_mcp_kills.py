"""Kills between what a server asks and the answer: the call ends once, and the server gets its state back."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sessiontree import ScriptedModel
from sessiontree.contracts.facts.session_facts import CallDelegated, CallIntended, CallResolved, InputGiven
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results
from tests.behaviour.mcp_fixtures import accept, asking_options, notes
from tests.behaviour.question_fixtures import waiting
from tests.behaviour.tree_fixtures import BACKENDS, Opener

pytestmark = [pytest.mark.slow, pytest.mark.own_runtime]


@asynccontextmanager
async def killed_program(open_tree: Opener, place: Path, *words: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run the program, and yield what it prints; then kill it, with all that it started."""
    where = (open_tree.backend, open_tree.workspace, open_tree.state_dir, place)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.behaviour.mcp_program", *where, *words, stdout=PIPE
    )
    try:
        assert program.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            yield program.stdout
    finally:
        program.kill()
    assert await program.wait() == -signal.SIGKILL
    for pid in {int(note.split()[0]) for note in notes(place)}:
        await gone(pid)


async def gone(pid: int) -> None:
    """Wait until the kernel has ended a server of a program that was killed."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, over.set)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def read_line(lines: asyncio.StreamReader) -> str:
    """Return what the program printed."""
    return (await lines.readline()).decode().strip()


async def answer_by_command(state_dir: Path, question_id: str, text: str) -> None:
    """Answer as a person at another terminal does, while the tree is live elsewhere."""
    words = ("approvals", "--state-dir", state_dir, "--answer", question_id, "--text", text)
    command = Path(sys.executable).with_name("sessiontree")
    answering = await asyncio.create_subprocess_exec(command, *words, stdout=PIPE)
    said, _ = await answering.communicate()
    assert (answering.returncode, said.decode().startswith("answered")) == (0, True), said


@pytest.mark.parametrize("variant", [*BACKENDS, pytest.param("ray", marks=pytest.mark.long)], indirect=True)
async def test_kills_between_questions_and_answers_lose_nothing(open_tree: Opener, tmp_path: Path) -> None:
    """SIGKILL at each of two questions of one call, each answered after it from another terminal."""
    options = asking_options(tmp_path)
    await accept(open_tree.state_dir, **options["mcp"])
    async with killed_program(open_tree, tmp_path, "modern") as lines:
        tree_id, first = await read_line(lines), await read_line(lines)
    async with killed_program(open_tree, tmp_path, "modern", tree_id) as lines:
        assert [await read_line(lines), await read_line(lines)] == [tree_id, first]
        await answer_by_command(open_tree.state_dir, first, "Ada")
        second = await read_line(lines)
    model: ScriptedModel = options.pop("model")
    async with await open_tree.resume(tree_id, model, **options) as tree, asyncio.timeout(PATIENCE_S):
        (again,) = await waiting(tree, 2)
        assert again.question.question_id == second != first
        await answer_by_command(open_tree.state_dir, second, "Bob")
        assert (await tree.session("main/b1").result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert "booked" in message.text
        asked = [fact.input for fact in await facts_of(tree, CallDelegated)]
        kept = [one.state["request_state"] for one in asked if one is not None]  # type: ignore[index, call-overload]
        assert len(await facts_of(tree, InputGiven)) == len(kept) == 2
        assert len(await facts_of(tree, CallIntended)) == len(await facts_of(tree, CallResolved)) == 1
        assert [fact.surface for fact in await facts_of(tree, ClientCallEnded)] == ["terminal", "terminal"]
        assert kept[0] != kept[1]
    said = [note.split(maxsplit=1)[1] for note in notes(tmp_path)]
    (first_state, second_state) = (words.removeprefix("gave ") for words in said if words.startswith("gave"))
    assert said == [
        "got None",
        f"gave {first_state}",
        f"got {first_state}",
        f"gave {second_state}",
        f"got {second_state}",
        "booked Ada and Bob",
    ]
    assert len({note.split()[0] for note in notes(tmp_path)}) == 3


@pytest.mark.long
@pytest.mark.parametrize("variant", BACKENDS, indirect=True)
async def test_server_that_forgets_its_state_ends_the_call(open_tree: Opener, tmp_path: Path) -> None:
    """It refuses what another process of it gave; the call ends with its error, and nothing is booked."""
    options = asking_options(tmp_path, "forgetful")
    await accept(open_tree.state_dir, **options["mcp"])
    async with killed_program(open_tree, tmp_path, "forgetful") as lines:
        tree_id, first = await read_line(lines), await read_line(lines)
    model: ScriptedModel = options.pop("model")
    async with await open_tree.resume(tree_id, model, **options) as tree, asyncio.timeout(PATIENCE_S):
        await answer_by_command(open_tree.state_dir, first, "Ada")
        assert (await tree.session("main/b1").result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert message.is_error
        assert "refused the call: Invalid or expired requestState" in message.text
    assert len(notes(tmp_path)) == 2
