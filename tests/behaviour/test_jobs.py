"""Commands in the background: what a session does with them, and that none outlives its session."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from sessiontree import AgentConfig, AgentSpec, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import JobEnded, JobStarted, MessageReceived, RunFinished
from sessiontree.contracts.values.messages import UserMessage
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results, until
from tests.behaviour.job_fakes import job_of, process, steps, text_of
from tests.behaviour.test_commands import HOLDING, begun, in_time
from tests.behaviour.tree_fixtures import BACKENDS, Opener

DOUBLE_FORK = (
    "trap '' TERM; exec 3>pipe; echo begun >&3; (setsid sleep 1000 >&- 2>&- &) ; echo up; "
    "exec >&- 2>&- <&-; sleep 1000"
)
"""Ignores SIGTERM, closes its outputs, and leaves a process without its parent; all hold the other end of the
pipe."""
UP = process("poll", offset=0, wait_ms=60_000)
"""Waits until the command has said something, at once if it has, so that it is not ended before."""


def notices(tree: SessionTree, session: str = "main") -> list[str]:
    """Return what the runtime said to a session about its jobs."""
    said = [each.text for each in tree.session(session).history() if isinstance(each, UserMessage)]
    return [text for text in said if text.startswith("job-")]


@pytest.fixture
def pipe(open_tree: Opener) -> Path:
    """A pipe in the workspace."""
    path = open_tree.workspace / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.covers("S6", "I36", "I39", "JOB2", "JOB5")
@pytest.mark.on_ray
async def test_job_is_written_to_and_its_end_wakes_its_session(open_tree: Opener) -> None:
    """It goes on while nobody waits; its session stays on its host, says so, and hears of the end once."""
    model = steps(
        script_call("exec", command="read x; echo got $x; read y; echo bye $y", background=True),
        process("submit", data="blue"),
        process("poll", wait_ms=60_000),
        script_call("session_status"),
        process("submit", data="now"),
        "it runs",
        lambda request: f"heard: {text_of(request.messages[-1])}",
    )
    async with open_tree(model) as tree:
        await tree.main.send("go")
        (finished,) = await until(
            tree, RunFinished, session="main", where=lambda fact: fact.text.startswith("heard")
        )
        (started,) = await facts_of(tree, JobStarted)
        (ended,) = await facts_of(tree, JobEnded)
        assert (ended.job_id, ended.status, ended.exit_code) == (started.job_id, "exited", 0)
        assert min(started.pid, started.started) > 0
        assert ended.total_bytes == len("got blue\nbye now\n")
        _, _, polled, status, _ = [message.text for message in results(tree, "main")]
        assert polled.startswith("got blue\n(")
        assert started.job_id in status
        assert f"{started.job_id} exited with code 0" in finished.text
        assert finished.text.endswith("bye now\n")
        heard = [fact.message_id for fact in await facts_of(tree, MessageReceived, "main")]
        assert heard.count(f"job.{started.job_id}") == 1


@pytest.mark.covers("I36")
async def test_what_takes_long_goes_on_and_is_not_run_again(open_tree: Opener) -> None:
    """The call returns the output so far, and the command's end is heard with the rest."""
    command = "echo one; until test -e on; do sleep 0.02; done; echo two; exit 3"
    model = steps(
        script_call("exec", command=command, yield_ms=1500),
        script_call("write", path="on", content=""),
        "waits",
        lambda request: text_of(request.messages[-1]),
        lambda request: text_of(request.messages[-1]),
    )
    async with open_tree(model) as tree:
        await tree.main.send("go")
        await until(tree, RunFinished, session="main", where=lambda fact: "exited with code 3" in fact.text)
        first = results(tree, "main")[0].text
        assert first.startswith("one\n(Command goes on in the background as job-")
        (notice,) = notices(tree)
        assert notice.endswith("two\n")
        assert "one" not in notice.partition("Its output")[2]


@pytest.mark.covers("S6")
async def test_killed_jobs_are_gone_with_all_they_started(open_tree: Opener, pipe: Path) -> None:
    """Also what ignores the request, has lost its parent, or has closed its output."""
    model = steps(script_call("exec", command=DOUBLE_FORK, background=True), UP, process("kill"), "done")
    agents = {"default": AgentSpec(config=AgentConfig(exec_cleanup_s=0.3))}
    async with open_tree(model, agents=agents) as tree:
        tree.main.send("go")
        with await begun(pipe) as file:
            assert await in_time(file.read) == ""
        await until(tree, RunFinished, session="main")
        assert "was ended on request" in results(tree, "main")[2].text
        (ended,) = await facts_of(tree, JobEnded)
        assert ended.status == "killed"
        assert notices(tree) == []


@pytest.mark.covers("S6")
async def test_jobs_end_with_their_session(open_tree: Opener, pipe: Path) -> None:
    """A Branch that has said its last has no command left when its result is there."""
    model = steps(script_call("exec", command=DOUBLE_FORK, background=True), UP, "done")
    async with open_tree(model) as tree:
        branch = await tree.main.spawn("branch", "go")
        with await begun(pipe) as file:
            await branch.result()
            assert await in_time(file.read) == ""


@pytest.mark.covers("S6", "JOB1", "JOB3")
@pytest.mark.own_runtime
@pytest.mark.slow
@pytest.mark.parametrize("variant", BACKENDS, indirect=True)
async def test_after_a_killed_host_a_job_is_gone_and_reported_lost(open_tree: Opener, pipe: Path) -> None:
    """SIGKILL of the program: the kernel ends the job, and the resumed session reads once that it is lost."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.behaviour.jobs_program", open_tree.backend),
        *(str(open_tree.workspace), str(open_tree.state_dir), HOLDING),
        stdout=PIPE,
    )
    try:
        with await begun(pipe) as file:
            async with asyncio.timeout(PATIENCE_S):
                assert program.stdout is not None
                tree_id = (await program.stdout.readline()).decode().strip()
            program.kill()
            assert await program.wait() == -signal.SIGKILL
            assert await in_time(file.read) == ""
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    model = steps(
        "never", "never", lambda request: script_call("process", action="poll", job_id=job_of(request)), "so"
    )
    async with await open_tree.resume(tree_id, model) as tree:
        await until(tree, RunFinished, session="main", where=lambda fact: fact.text == "so")
        (ended,) = await facts_of(tree, JobEnded)
        assert ended.status == "lost"
        (notice,) = notices(tree)
        assert "was lost: its host ended" in notice
        assert "on an earlier host" in results(tree, "main")[-1].text
