"""``exec``: what of a command reaches the model, and what is refused before anything runs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.jobs import CommandRequest, JobView
from sessiontree.contracts.handles.ports import Finished, HowEnded
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.sandbox import CommandShell, JobTable, SessionJobs
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.commands.exec import (
    EVERY_S,
    LIMITS,
    SHOWN_CHARS,
    Exec,
    ExecProgress,
    exec_details,
    exec_report,
)

DONE = Finished("exited", 0, None, "", "", 0, 0.5)


class NotingJobs(SessionJobs):
    """Notes what it is asked."""

    def __init__(self) -> None:
        super().__init__(JobTable(), {})
        self.asked: list[tuple[CommandRequest, float]] = []

    async def run(
        self,
        request: CommandRequest,
        *,
        wait_s: float,
        keep_bytes: int,
        on_output: Callable[[str], None] | None = None,
    ) -> Finished | JobView:
        self.asked.append((request, wait_s))
        return DONE


def jobs_in(root: Path) -> SessionJobs:
    """Return the jobs of a session that are confined to a directory."""
    shell = CommandShell(root)
    return SessionJobs(JobTable(), {"gateway": lambda request: shell})


async def run(root: Path, command: str, **more: Any) -> ToolResult:
    """Run a command in a real sandbox."""
    ctx = make_context(root, jobs=jobs_in(root))
    return await call_tool(Exec(), ctx, command=command, **more)


def ended(
    reason: HowEnded,
    *,
    exit_code: int | None = None,
    signal: int | None = 9,
    limit: str | None = None,
    allowed: int | None = None,
) -> Finished:
    """Return how a command ended that did not go well."""
    return Finished(reason, exit_code, signal, "", "", 0, 1.0, limit, allowed)


async def test_output_is_the_result(tmp_path: Path) -> None:
    """Standard output and error, exactly; the details are for the journal."""
    result = await run(tmp_path, "echo ' one'; echo two >&2")
    assert result.output == " one\ntwo\n"
    assert isinstance(result.details, dict)
    elapsed_ms = result.details.pop("elapsed_ms")
    assert isinstance(elapsed_ms, int)
    assert elapsed_ms > 0
    assert result.details == {
        "exit_code": 0,
        "signal": None,
        "dropped_bytes": 0,
        "reason": "exited",
        "limit": None,
        "allowed": None,
        "put_back": [],
    }


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("true", "(no output)"),
        ("exit 3", "(Command exited with code 3)"),
        ("echo partly; exit 1", "partly\n(Command exited with code 1)"),
        ("kill -TERM $$", "(Command was ended by SIGTERM)"),
    ],
)
async def test_end_is_told_behind_the_output(tmp_path: Path, command: str, words: str) -> None:
    """A failing command completes."""
    assert (await run(tmp_path, command)).output == words


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-program", "Command exited with code 127: a program it names was not found"),
        ("/etc/passwd", "Command exited with code 126: a program it names can't be executed"),
    ],
)
async def test_what_failed_to_start_is_told(tmp_path: Path, command: str, words: str) -> None:
    """By the shell's own codes."""
    assert words in str((await run(tmp_path, command)).output)


async def test_it_runs_where_and_with_what_it_is_asked(tmp_path: Path) -> None:
    """Directory and variables reach the command."""
    (tmp_path / "in").mkdir()
    result = await run(tmp_path, "pwd; echo $GREETING", workdir="in", env={"GREETING": "good day"})
    assert result.output == f"{tmp_path}/in\ngood day\n"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"command": ""}, "/command"),
        ({"command": " \n"}, "/command"),
        ({}, "/command"),
        ({"command": "true", "timeout": 0}, "/timeout"),
        ({"command": "true", "timeout": 3601}, "/timeout"),
        ({"command": "true", "env": {"PATH": "."}}, "/env/PATH"),
        ({"command": "true", "env": {"LD_PRELOAD": "x.so"}}, "/env/LD_PRELOAD"),
        ({"command": "true", "env": {"BASH_ENV": "x"}}, "/env/BASH_ENV"),
        ({"command": "true", "env": {"a=b": "x"}}, "/env/a=b"),
        ({"command": "true", "yield_ms": -1}, "/yield_ms"),
        ({"command": "true", "rows": 0}, "/rows"),
        ({"command": "true", "cols": 1001}, "/cols"),
        ({"command": "true", "host": "moon"}, "/host"),
        ({"command": "true", "host": "node"}, None),
        ({"command": "true", "node": "n1"}, None),
        ({"command": "true", "host": "gateway", "elevated": True}, None),
    ],
)
async def test_bad_arguments_are_refused_by_name(
    tmp_path: Path, arguments: dict[str, Any], field: str | None
) -> None:
    """Nothing runs."""
    ctx = make_context(tmp_path, jobs=jobs_in(tmp_path))
    with pytest.raises(ValidationError) as refusal:
        await call_tool(Exec(), ctx, **arguments)
    assert refusal.value.field == field


async def test_outside_and_missing_directories_are_refused(tmp_path: Path) -> None:
    """One is not allowed, the other not there."""
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        await run(tmp_path, "true", workdir="..")
    with pytest.raises(ExecutionError, match="No such file"):
        await run(tmp_path, "true", workdir="missing")


async def test_session_without_jobs_is_refused(tmp_path: Path) -> None:
    """A Worker holds none."""
    with pytest.raises(PermissionDenied, match="holds no jobs"):
        await call_tool(Exec(), make_context(tmp_path, SessionKind.WORKER), command="true")


@pytest.mark.covers("I22")
@pytest.mark.parametrize(
    ("settings", "arguments", "timeout_s"),
    [
        ({}, {}, 120),
        ({"exec_timeout_s": 7}, {}, 7),
        ({"exec_timeout_s": 7}, {"timeout": 3}, 3),
        ({}, {"timeout": 600}, 600),
        ({"exec_max_timeout_s": 300}, {"timeout": 600}, 300),
        ({"exec_max_timeout_s": 60}, {}, 60),
        ({}, {"background": True}, None),
        ({}, {"background": True, "timeout": 9}, 9),
        ({"exec_max_timeout_s": 300}, {"background": True, "timeout": 600}, 300),
    ],
)
async def test_time_out_is_what_was_asked_up_to_the_owners(
    tmp_path: Path, settings: dict[str, Any], arguments: dict[str, Any], timeout_s: float | None
) -> None:
    """Two minutes where nobody says else; the time of the call does not shorten it."""
    jobs = NotingJobs()
    signals = CallSignals(time.monotonic() + 60)
    ctx = make_context(tmp_path, jobs=jobs, signals=signals, config=AgentConfig(**settings))
    await call_tool(Exec(), ctx, command="x", **arguments)
    assert [request.timeout_s for request, _ in jobs.asked] == [timeout_s]


@pytest.mark.covers("I22")
@pytest.mark.parametrize(
    ("settings", "arguments", "left_s", "least", "most"),
    [
        ({}, {}, 600, 30, 30),
        ({"exec_yield_s": 4}, {}, 600, 4, 4),
        ({"exec_yield_s": 4}, {"yield_ms": 1500}, 600, 1.5, 1.5),
        ({}, {"background": True}, 600, 0, 0),
        ({}, {"yield_ms": 900_000}, 600, 593.9, 594),
        ({"exec_cleanup_s": 20}, {"yield_ms": 900_000}, 600, 578.9, 579),
        ({}, {}, 10, 8.9, 9.0),
    ],
)
async def test_call_waits_as_long_as_asked_within_its_own_time(
    tmp_path: Path,
    settings: dict[str, Any],
    arguments: dict[str, Any],
    left_s: float,
    least: float,
    most: float,
) -> None:
    """Some of the call's time is kept back, so that the command goes on before the call is over."""
    jobs = NotingJobs()
    signals = CallSignals(time.monotonic() + left_s)
    ctx = make_context(tmp_path, jobs=jobs, signals=signals, config=AgentConfig(**settings))
    await call_tool(Exec(), ctx, command="x", **arguments)
    ((_, wait_s),) = jobs.asked
    assert least - 0.05 <= wait_s <= most


@pytest.mark.slow
async def test_time_out_tells_the_output_so_far(tmp_path: Path) -> None:
    """And what would help."""
    for timeout in (0.3, 1.2, 4.8, 19.2):
        result = await run(tmp_path, "echo begun; sleep 100", timeout=timeout)
        assert f"(Command timed out after {timeout} s and was ended with all it" in str(result.output)
        assert "give a longer timeout" in str(result.output)
        if str(result.output).startswith("begun\n("):
            break
    else:
        pytest.fail("the command never began")


async def test_long_output_keeps_both_ends_within_what_a_model_gets(tmp_path: Path) -> None:
    """Not even the note about it is cut off."""
    config = AgentConfig(max_result_chars=1000)
    ctx = make_context(tmp_path, jobs=jobs_in(tmp_path), config=config)
    result = await call_tool(Exec(), ctx, command="seq 100000; exit 4")
    output = str(result.output)
    assert len(output) <= 1000
    assert output.startswith("1\n2\n3\n")
    assert output.endswith("\n99999\n100000\n(Command exited with code 4)")
    assert "bytes of output are left out here" in output


@given(
    reason=st.sampled_from(["exited", "signal", "timeout", "limit"]),
    code=st.integers(0, 255),
    signal=st.integers(1, 64),
    text=st.text(max_size=600),
    dropped=st.integers(0, 10**12),
    limit=st.sampled_from([None, *LIMITS]),
)
def test_report_fits_beside_what_is_kept(
    reason: Any, code: int, signal: int, text: str, dropped: int, limit: str | None
) -> None:
    """However it ended, what is said about it takes less room than is kept for it, and names the limit."""
    if reason == "limit" and limit is None:
        limit = "processes"
    finished = Finished(reason, code, signal, text, text if dropped else "", dropped, 1.0, limit, 2**40)
    report = exec_report(finished, 120.0, bounded=True)
    assert len(report) <= 2 * len(text) + 400
    if limit and (reason == "limit" or (reason == "exited" and code)):
        assert LIMITS[limit] in report
    assert isinstance(exec_details(finished), dict)


@pytest.mark.parametrize(
    ("finished", "words"),
    [
        (ended("limit", limit="memory_bytes", allowed=1024), "reached the limit of memory: 1,024 bytes"),
        (ended("limit", limit="processes", allowed=256), "limit of processes and threads at a time: 256)"),
        (ended("limit", limit="cpu_s", allowed=600), "processor time of a process: 600 s"),
        (ended("signal", signal=250), "ended by signal 250"),
        (
            ended("exited", exit_code=1, limit="file_bytes", allowed=64),
            "code 1; it seems to have reached the limit of the size of a file: 64 bytes",
        ),
    ],
)
def test_limits_are_named(finished: Finished, words: str) -> None:
    """For certain where it was ended for it, else as it seems."""
    assert words in exec_report(finished, 10.0, bounded=False)


def test_progress_is_the_latest_now_and_then() -> None:
    """The first piece at once, the rest at intervals and at the end, never more than the end of it."""
    told: list[JsonValue] = []
    now = 100.0
    progress = ExecProgress(told.append, lambda: now)
    progress("a")
    progress("b")
    now += EVERY_S
    progress("c" * 5000)
    expected: list[JsonValue] = [{"output": "a", "chars": 1}, {"output": "c" * SHOWN_CHARS, "chars": 5002}]
    progress.finish()
    assert told == expected
    progress("d")
    assert told == expected
    progress.finish()
    assert told[2:] == [{"output": "c" * (SHOWN_CHARS - 1) + "d", "chars": 5003}]


async def test_progress_reaches_who_watches(tmp_path: Path) -> None:
    """While the command runs: it ends only once it was heard."""
    told: list[JsonValue] = []

    def watch(progress: JsonValue) -> None:
        told.append(progress)
        (tmp_path / "heard").touch()

    signals = CallSignals(time.monotonic() + 60, watch)
    ctx = make_context(tmp_path, jobs=jobs_in(tmp_path), signals=signals)
    await call_tool(Exec(), ctx, command="echo now; until test -e heard; do :; done")
    assert told == [{"output": "now\n", "chars": 4}]


async def test_cancelled_call_leaves_nothing(tmp_path: Path) -> None:
    """The command and all it started are gone when the call is."""
    heard = asyncio.Event()
    signals = CallSignals(time.monotonic() + 60, lambda progress: heard.set())
    ctx = make_context(tmp_path, jobs=jobs_in(tmp_path), signals=signals)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        command = "exec 3>pipe; echo x; sleep 1000 & sleep 1000"
        call = asyncio.ensure_future(call_tool(Exec(), ctx, command=command))
        await asyncio.wait_for(heard.wait(), 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert os.read(reader, 1) == b"", "or BlockingIOError, where somebody holds the other end still"
    finally:
        os.close(reader)
