"""Jobs of one session: their output by bytes, their input and terminals, their bounds and their end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.handles.jobs import MAX_RUNNING_JOBS, CommandRequest, ExecHost, JobView, WindowSize
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox import CommandShell, JobTable, SessionJobs
from sessiontree.sandbox.jobs.job_output import JobOutput
from sessiontree_tools.commands.process import encode_key

LONG_S = 30.0


def jobs_in(root: Path) -> SessionJobs:
    """Return the jobs of a session that are confined to a directory."""
    shell = CommandShell(root, cleanup_s=0.3)
    return SessionJobs(JobTable(), {"gateway": lambda request: shell})


async def started(jobs: SessionJobs, command: str, **more: bool | WindowSize) -> str:
    """Start a command in the background; return the job's id."""
    request = CommandRequest(command, takes_input=True, window=WindowSize(5, 40) if more else None)
    view = await jobs.run(request, wait_s=0, keep_bytes=1000)
    assert isinstance(view, JobView)
    return view.job_id


async def whole(jobs: SessionJobs, job_id: str) -> tuple[JobView, str]:
    """Wait for a job's end; return how it ended and its output."""
    said = ""
    while True:
        view, part = await jobs.read(job_id, offset=None, limit=10_000, wait_s=LONG_S)
        said += part.text
        if not view.is_running and part.next_offset == part.total_bytes:
            return view, said


@pytest.mark.covers("I39", "JOB6")
@given(
    pieces=st.lists(st.binary(max_size=40), max_size=20),
    head=st.integers(1, 30),
    ring=st.integers(1, 30),
    limit=st.integers(1, 50),
)
@example([b"0123456789"], 2, 3, 1)
def test_offsets_are_those_of_the_bytes_that_were_written(
    pieces: list[bytes], head: int, ring: int, limit: int
) -> None:
    """Whatever is read was written there; only bytes between the beginning and the end are dropped."""
    output, written = JobOutput(head, ring), b"".join(pieces)
    for piece in pieces:
        output.add(piece)
    assert output.total_bytes == len(written)
    kept_from = max(head, len(written) - ring)
    for asked in range(len(written) + 2):
        data, begin = output.read_range(asked, limit)
        assert written[begin : begin + len(data)] == data
        expected = min(asked, len(written))
        assert begin == (expected if expected < head or expected >= kept_from else kept_from)
        assert data or begin == len(written)
    output.close()


@pytest.mark.covers("JOB4")
async def test_exit_is_the_end_and_not_the_end_of_the_output(tmp_path: Path) -> None:
    """A process that holds the output ends with the command; a poll of an ended job returns at once."""
    jobs = jobs_in(tmp_path)
    job_id = await started(jobs, "(setsid sleep 1000 &); read x; echo said $x; exit 3")
    await jobs.write(job_id, b"it\n")
    async with asyncio.timeout(LONG_S):
        view, said = await whole(jobs, job_id)
        assert (view.status, view.exit_code, said) == ("exited", 3, "said it\n")
        again, part = await jobs.read(job_id, offset=None, limit=10, wait_s=120)
    assert (again.status, part.text) == ("exited", "")
    with pytest.raises(ExecutionError, match="reads nothing any more: it exited with code 3"):
        await jobs.write(job_id, b"x")
    assert jobs.remove(None) == (job_id,)
    with pytest.raises(ExecutionError, match="has no job"):
        await jobs.read(job_id, offset=0, limit=10)


@pytest.mark.covers("I36")
async def test_end_of_the_input_is_the_end_of_what_is_read(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 arrive, and are shown replaced."""
    jobs = jobs_in(tmp_path)
    job_id = await started(jobs, "cat; echo end")
    assert await jobs.write(job_id, b"a\xff\xc3\xa9\0\n", ends=True) == 6
    _, said = await whole(jobs, job_id)
    assert said == "a\ufffdé\ufffd\nend\n"


@pytest.mark.covers("I36", "JOB8")
async def test_terminal_is_the_sandboxs_own_and_its_screen_is_drawn(tmp_path: Path) -> None:
    """Of the size that was asked for; colours and movements are not in its text."""
    jobs = jobs_in(tmp_path)
    drawn = r"tty; stty size; stty -echo; printf '\e[31mred\e[0m\e[5;1Hlow'; read x"
    job_id = await started(jobs, drawn, window=True)
    said = ""
    while "low" not in said:  # by then the terminal echoes nothing, so what is written moves nothing
        _, part = await jobs.read(job_id, offset=None, limit=1000, wait_s=LONG_S)
        said += part.text
    await jobs.write(job_id, b"go\r")
    await whole(jobs, job_id)
    assert said.startswith("/dev/pts/0\n5 40\nred")
    assert "\x1b" not in said
    screen = await jobs.screen(job_id)
    assert screen is not None
    assert screen[2] == "red"
    assert screen[4].startswith("low")


@pytest.mark.covers("JOB7")
async def test_no_more_run_than_may(tmp_path: Path) -> None:
    """One more is refused in the background, and ended after its wait in the foreground."""
    jobs = jobs_in(tmp_path)
    table = jobs._table
    for number in range(MAX_RUNNING_JOBS):
        job = table.add(CommandRequest(f"sleep {number}"))
        job.in_background = True
    with pytest.raises(ExecutionError, match="no more may"):
        await jobs.run(CommandRequest("true"), wait_s=0, keep_bytes=100)
    ended = await jobs.run(CommandRequest("sleep 100"), wait_s=0.4, keep_bytes=100)
    assert isinstance(ended, Finished)
    assert ended.reason == "timeout"


@pytest.mark.parametrize("host", ["host", "node"])
async def test_other_hosts_are_not_there(tmp_path: Path, host: ExecHost) -> None:
    """A handle without them runs nothing."""
    with pytest.raises(PermissionDenied, match=f"on host '{host}'"):
        await jobs_in(tmp_path).run(CommandRequest("true", host=host), wait_s=1, keep_bytes=100)


@pytest.mark.covers("JOB1")
async def test_killed_sandbox_is_an_end(tmp_path: Path) -> None:
    """Somebody outside kills its outer process: the job has failed, and nothing runs."""
    jobs = jobs_in(tmp_path)
    job_id = await started(jobs, "sleep 1000")
    (view,) = jobs.list()
    os.kill(view.pid, signal.SIGKILL)
    async with asyncio.timeout(LONG_S):
        ended, _ = await whole(jobs, job_id)
    assert ended.status == "failed"


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("enter", b"\r"),
        ("ctrl+c", b"\x03"),
        ("C", b"C"),
        ("alt+x", b"\x1bx"),
        ("Up", b"\x1b[A"),
        ("f5", b"\x1b[15~"),
    ],
)
def test_keys_are_those_of_an_xterm(name: str, sent: bytes) -> None:
    """By name, with modifiers, or one character."""
    assert encode_key(name) == sent


@pytest.mark.parametrize("name", ["", "ctrl+", "nokey", "ctrl+é", "alt+", "alt+" * 3000 + "a"])
def test_other_keys_are_refused(name: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="is not a key"):
        encode_key(name)
