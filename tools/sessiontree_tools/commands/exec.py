"""``exec``: runs a command line, confined to the workspace; what takes long goes on in the background.

While it runs, its latest output is reported as progress. The result says how it ended: in words for the
model, in fields for the journal. A command that goes on has a job id, which ``process`` takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.handles.jobs import (
    EARLY_END_S,
    MAX_COLUMNS,
    MAX_ROWS,
    CommandRequest,
    ExecHost,
    Jobs,
    JobView,
    OutputPart,
    WindowSize,
    describe_end,
    signal_name,
)
from sessiontree.contracts.handles.ports import MAX_COMMAND_TIMEOUT_S, Finished, UpdateCallback
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import JOBS
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped, Tool
from sessiontree.contracts.values.jsonable import JsonValue

EVERY_S = 0.2
"""Shortest time between two reports."""
SHOWN_CHARS = 2000


class ExecProgress:
    """Takes output piece by piece and reports its end, ``{"output": text, "chars": so far}``.

    Args:
        update: Where reports go.
        clock: Seconds that only grow.
    """

    def __init__(self, update: UpdateCallback, clock: Callable[[], float]) -> None:
        """Begin; the first piece is reported at once."""
        self._update = update
        self._clock = clock
        self._end = ""
        self._chars = 0
        self._reported = 0
        self._next = 0.0

    def __call__(self, text: str) -> None:
        """Take the next piece."""
        # Only the end is kept: a command may print gigabytes, and each report holds what was printed last.
        self._end = (self._end + text)[-SHOWN_CHARS:]
        self._chars += len(text)
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            self._report()

    def finish(self) -> None:
        """Report what was not yet, however short the time since."""
        if self._chars > self._reported:
            self._report()

    def _report(self) -> None:
        self._reported = self._chars
        self._update({"output": self._end, "chars": self._chars})


EXIT_CODES = {
    126: "a program it names can't be executed",
    127: "a program it names was not found",
}
LIMITS = {
    "memory_bytes": "memory",
    "processes": "processes and threads at a time",
    "sessions": "sessions at a time",
    "file_bytes": "the size of a file",
    "disk_bytes": "room on the disk",
    "disk_files": "files on the disk",
    "scratch_bytes": "room in /tmp",
    "cpu_s": "processor time of a process",
    "output_bytes": "output",
    "open_files": "open files of a process",
}
"""What each limit bounds."""


def exec_report(finished: Finished, timeout_s: float, *, bounded: bool) -> str:
    """Return the output and, where there is more to say than that it went well, how the command ended.

    Args:
        finished: What came of it.
        timeout_s: What it was given.
        bounded: Whether it would have gone on in the background if as many as may did not run there.
    """
    output = finished.head
    if finished.dropped_bytes:
        output += f"\n… {finished.dropped_bytes:,} bytes of output are left out here …\n{finished.tail}"
    note = _explain_end(finished, timeout_s, bounded=bounded)
    if finished.put_back:
        said = f"protected and put back as it was: {', '.join(finished.put_back)}"
        note = f"{note}; {said}" if note else said
    if finished.place:
        said = f"it ran {finished.place}"
        note = f"{note}; {said}" if note else said
    if not note:
        return output or "(no output)"
    return f"{output.rstrip()}\n({note})" if output.strip() else f"({note})"


def _explain_end(finished: Finished, timeout_s: float, *, bounded: bool) -> str:
    limit = _limit(finished)
    if finished.reason == "timeout":
        why = (
            "no more commands may go on in the background"
            if bounded
            else "give a longer timeout if it needs one"
        )
        return f"Command timed out after {timeout_s:.1f} s and was ended with all it started; {why}"
    if finished.reason == "limit":
        return f"Command was ended: it reached the limit of {limit}"
    if finished.reason == "signal":
        return f"Command was ended by {signal_name(finished.signal)}"
    if not finished.exit_code:
        return ""
    meaning = EXIT_CODES.get(finished.exit_code, "")
    return (
        f"Command exited with code {finished.exit_code}"
        + (f": {meaning}" if meaning else "")
        + (f"; it seems to have reached the limit of {limit}" if limit else "")
    )


def _describe_outcome(finished: Finished) -> str:
    """Return how it ended, in a word or two for people."""
    if finished.reason == "timeout":
        return "timed out"
    if finished.reason == "limit":
        return "ended at a limit"
    if finished.reason == "signal":
        return f"ended by {signal_name(finished.signal)}"
    return f"exited {finished.exit_code}" if finished.exit_code else "exited"


def _limit(finished: Finished) -> str:
    if finished.limit is None:
        return ""
    unit = " bytes" if finished.limit.endswith("_bytes") else " s" if finished.limit.endswith("_s") else ""
    return f"{LIMITS.get(finished.limit, finished.limit)}: {finished.allowed:,}{unit}"


def exec_details(finished: Finished) -> JsonValue:
    """Return what the journal keeps."""
    return {
        "exit_code": finished.exit_code,
        "signal": finished.signal,
        "elapsed_ms": round(finished.elapsed_s * 1000),
        "dropped_bytes": finished.dropped_bytes,
        "reason": finished.reason,
        "limit": finished.limit,
        "allowed": finished.allowed,
        "put_back": list(finished.put_back),
        **({"place": finished.place} if finished.place else {}),
    }


def format_job_report(view: JobView, part: OutputPart) -> str:
    """Return the output so far of a command that goes on, and how to go on with it."""
    left = part.total_bytes - part.next_offset
    more = f"; {left:,} more bytes of output wait" if left else ""
    where = f"; it runs {view.place}" if view.place else ""
    note = (
        f"(Command goes on in the background as {view.job_id} after {view.elapsed_s:.1f} s{more}{where}; "
        "you are notified when it ends, and process polls, writes to and kills it)"
    )
    return f"{part.text.rstrip()}\n{note}" if part.text.strip() else note


def describe_job(view: JobView, part: OutputPart) -> JsonValue:
    """Return what the journal keeps of a command that goes on."""
    return {
        "job_id": view.job_id,
        "status": view.status,
        "host": view.host,
        "pid": view.pid,
        "started": view.started,
        "elapsed_ms": round(view.elapsed_s * 1000),
        "next_offset": part.next_offset,
        "total_bytes": part.total_bytes,
        **({"place": view.place} if view.place else {}),
    }


KEPT_BACK_S = 1.0
"""Seconds kept back from the call's own time, in addition to the clean-up time.

A command that takes too long can still end in them, and its output is reported."""
MAX_SHARE_KEPT_BACK = 0.1
"""Of a short call's time no more than this."""
NOTE_CHARS = 400
"""Room kept for what is said about the output."""
MAX_YIELD_MS = int(MAX_COMMAND_TIMEOUT_S * 1000)


class ExecParams(BaseModel):
    """What to run, and where."""

    model_config = ConfigDict(extra="forbid")

    command: str = Field(min_length=1)
    workdir: str = Field(
        default=".",
        min_length=1,
    )
    env: dict[str, str] = Field(
        default_factory=dict,
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=MAX_COMMAND_TIMEOUT_S,
        description="Seconds.",
    )
    yield_ms: int | None = Field(
        default=None,
        ge=0,
        le=MAX_YIELD_MS,
    )
    background: bool = Field(default=False, description="At once, with an input.")
    pty: bool = False
    rows: int = Field(default=24, ge=1, le=MAX_ROWS)
    cols: int = Field(default=80, ge=1, le=MAX_COLUMNS)
    host: ExecHost | None = Field(default=None, description="gateway is confined.")
    node: Annotated[str, Stripped()] = Field(default="", max_length=200)
    elevated: bool = False

    @field_validator("command")
    @classmethod
    def _refuse_blank(cls, command: str) -> str:
        if not command.strip():
            raise ValueError("the command contains only white space")
        return command

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.elevated and self.host == "gateway":
            raise ValueError("elevated and host 'gateway' exclude each other: the gateway is confined")
        if (self.host == "node") != bool(self.node):
            raise ValueError("node and host 'node' need each other")
        return self

    @property
    def runs_on(self) -> ExecHost:
        """Where it runs."""
        return self.host or ("host" if self.elevated else "gateway")


def check_host(host: ExecHost, config: AgentConfig) -> None:
    """Refuse a host that the owner does not allow.

    Raises:
        PermissionDenied: says by which setting the owner allows it.
    """
    if host != "gateway" and host not in config.exec_hosts:
        why = "the owner did not allow it to this agent (AgentConfig.exec_hosts)"
        raise PermissionDenied(PermissionTier.ELEVATED, f"can't run it on host {host!r}: {why}")


class Exec(Tool[ExecParams]):
    """Runs a command line in a sandbox."""

    name = "exec"
    description = (
        "Run a bash command in the workspace. It has no network, writes to the workspace, /tmp and its home "
        "only, and what it leaves running ends with it. After yield_ms (30 s) it goes on as a job of process."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ExecParams
    label = "Run command"
    section = "runtime"
    profiles = frozenset({"coding"})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"jobs"})
    command_in = "command"
    aliases: ClassVar[tuple[str, ...]] = ("bash", "shell")
    param_aliases: ClassVar[Mapping[str, str]] = {"columns": "cols"}

    def tier_for(self, params: ExecParams) -> PermissionTier:
        """Return Elevated for a command that is not confined."""
        # Judged by where it runs and not by the flag: both spellings lead to the same unconfined host.
        return self.tier if params.runs_on == "gateway" else PermissionTier.ELEVATED

    def check_allowed(self, params: ExecParams, config: AgentConfig) -> None:
        """Refuse a host that the owner does not allow."""
        check_host(params.runs_on, config)

    def node_for(self, params: ExecParams) -> str | None:
        """Return the node that a call names."""
        return params.node or None

    async def execute(self, params: ExecParams, ctx: ToolContext) -> ToolResult:
        """Run it, or start it.

        Details of a command that ended are ``{exit_code, signal, elapsed_ms, dropped_bytes, reason, limit,
        allowed, put_back}``; of one that goes on ``{job_id, status, host, pid, started, elapsed_ms,
        next_offset, total_bytes}``. A command that fails, is ended or runs into a limit completes: its output
        and how it ended are the result.

        Raises:
            ValidationError: a variable may not be set, or the command is too long.
            PermissionDenied: the working directory is outside the workspace, the session runs nothing, or its
                commands may not run on that host.
            ConfinementUnavailable: this machine can't confine commands.
            ExecutionError: it could not be started, for instance because the directory is missing, or because
                too many commands run.
        """
        return await run_command(params, ctx)


async def run_command(params: ExecParams, ctx: ToolContext) -> ToolResult:
    """Run a command, or start it; as ``Exec.execute``, for a context with the same handle."""
    jobs = ctx.require(JOBS)
    max_chars = ctx.config.max_result_chars
    timeout_s = _choose_timeout_s(params, ctx)
    wait_s = _wait_s(params, ctx)
    request = CommandRequest(
        params.command,
        params.workdir,
        params.env,
        timeout_s,
        WindowSize(params.rows, params.cols) if params.pty else None,
        takes_input=params.background,
        host=params.runs_on,
        node=params.node,
    )
    # Room for the note, so that a later cut of the result does not remove how the command ended.
    keep_bytes = max(max_chars // 2, max_chars - NOTE_CHARS)
    progress = ExecProgress(ctx.update, time.monotonic)
    try:
        ended = await jobs.run(request, wait_s=wait_s, keep_bytes=keep_bytes, on_output=progress)
    except asyncio.CancelledError:
        progress.finish()  # what it said last, which no result will repeat
        raise
    if isinstance(ended, JobView):
        return await _report_job(jobs, ended, keep_bytes)
    given_s = timeout_s if timeout_s is not None and timeout_s <= max(wait_s, EARLY_END_S) else wait_s
    return ToolResult(
        output=exec_report(ended, given_s, bounded=given_s != timeout_s),
        display=f"{_describe_outcome(ended)} after {ended.elapsed_s:.1f} s: {params.command}",
        details=exec_details(ended),
    )


def _choose_timeout_s(params: ExecParams, ctx: ToolContext) -> float | None:
    """Return the command's time limit; None = none, in the background."""
    config = ctx.config
    if params.timeout is not None:
        return min(params.timeout, config.exec_max_timeout_s)
    return None if params.background else min(config.exec_timeout_s, config.exec_max_timeout_s)


def _wait_s(params: ExecParams, ctx: ToolContext) -> float:
    """Return how long the call waits for the command's end, in seconds."""
    if params.background:
        return 0.0
    asked_s = ctx.config.exec_yield_s if params.yield_ms is None else params.yield_ms / 1000
    left_s = ctx.deadline - time.monotonic()
    # The call has a limit of its own: without time kept back it would end first, and the output with it.
    kept_back_s = min(KEPT_BACK_S + ctx.config.exec_cleanup_s, left_s * MAX_SHARE_KEPT_BACK)
    return max(0.0, min(asked_s, left_s - kept_back_s))


async def _report_job(jobs: Jobs, view: JobView, keep_bytes: int) -> ToolResult:
    view, part = await jobs.read(view.job_id, offset=None, limit=keep_bytes)
    if not view.is_running:  # it ended while its output was read
        return ToolResult(
            output=f"{part.text.rstrip()}\n({view.job_id} {describe_end(view)})".lstrip("\n"),
            display=f"{view.job_id} {describe_end(view)}: {view.command}",
            details=describe_job(view, part),
        )
    return ToolResult(
        output=format_job_report(view, part),
        display=f"{view.job_id} runs in the background: {view.command}",
        details=describe_job(view, part),
    )
