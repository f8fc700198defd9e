"""The handle behind ``jobs``: a session's commands that may go on in the background.

A job is a task of the session's host around one command. The command's process ends with that host, by the
kernel's means; its identity, process id and start time, is recorded and never looked up again: after a lost
host its jobs are reported ``lost``.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ToolError, describe_error
from sessiontree.contracts.handles.jobs import (
    EARLY_END_S,
    JOB_KEPT_S,
    MAX_KEPT_JOBS,
    MAX_RUNNING_JOBS,
    CommandRequest,
    ExecHost,
    JobStatus,
    JobView,
    OutputPart,
    describe_end,
)
from sessiontree.contracts.handles.ports import Finished
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_process import OnOutput, decode_output, trim_partial_end
from sessiontree.sandbox.jobs.job_output import JobOutput, can_draw, draw_screen, strip_controls

COMMAND_CHARS: Final = 400
NOTICE_BYTES: Final = 2000
"""How much of a job's output its notice quotes."""
SCREEN_BYTES: Final = 128 * 1024
"""How much output a screen is drawn from."""


class JobShell(Protocol):
    """Runs one command on one kind of host."""

    async def run(
        self,
        command: str,
        *,
        workdir: str = ".",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        keep_bytes: int = 50_000,
        on_output: OnOutput | None = None,
        channel: CommandChannel | None = None,
    ) -> Finished:
        """Run it to its end; as ``Shell.run``, with a channel."""
        ...


class JobListener(Protocol):
    """Is informed about the jobs of a session."""

    def on_job_began(self, view: JobView) -> None:
        """Take that a command goes on in the background."""
        ...

    def on_job_ended(self, view: JobView, notice: str) -> None:
        """Take that a job has ended, and what its session reads about that; empty = it knows already."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """A command that runs or has ended."""

    job_id: str
    request: CommandRequest
    channel: CommandChannel
    output: JobOutput
    began_s: float
    ended_s: float | None = None
    status: JobStatus = "running"
    finished: Finished | None = None
    error: Exception | None = None
    """Why it could not be run."""
    in_background: bool = False
    was_asked: bool = False
    """Whether the session asked for its end."""
    cursor: int = 0
    """Where the next part of the output begins that was not read yet."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with new output, and with its end."""
    task: asyncio.Task[None] | None = None

    def view(self) -> JobView:
        """Return what is known of it."""
        identity, ended = self.channel.identity, self.finished
        return JobView(
            self.job_id,
            cut_command(self.request.command),
            self.status,
            self.request.host,
            pid=identity.pid if identity else 0,
            started=identity.started if identity else 0,
            elapsed_s=(self.ended_s or time.monotonic()) - self.began_s,
            total_bytes=self.output.total_bytes,
            exit_code=ended.exit_code if ended else None,
            signal=ended.signal if ended else None,
            limit=ended.limit if ended else None,
            allowed=ended.allowed if ended else None,
            window=self.request.window,
            takes_input=self.channel.takes_input,
            reason=describe_error(self.error) if self.error else "",
            put_back=ended.put_back if ended else (),
            place=self.channel.place,
        )

    def take(self, data: bytes) -> None:
        """Take output."""
        self.output.add(data)
        self.changed.set()

    def close(self) -> None:
        """Drop its output."""
        self.output.close()


class JobTable:
    """The jobs of one session on its host."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        """Those that run or have ended here, oldest first, also in the foreground while they run."""
        self.past: dict[str, JobView] = {}
        """Those that ended on an earlier host, or with it; nothing of their output is kept."""
        self.listener: JobListener | None = None
        """Informed about jobs; None = nobody any more."""

    @property
    def running(self) -> tuple[Job, ...]:
        """The jobs that run in the background."""
        if not self.jobs:
            return ()
        return tuple([job for job in self.jobs.values() if job.in_background and job.status == "running"])

    @property
    def shown(self) -> tuple[str, ...]:
        """The jobs that run in the background, as a person reads of them."""
        return tuple(f"{job.job_id}: {cut_command(job.request.command, 80)}" for job in self.running)

    def remember(self, past: Sequence[JobView]) -> None:
        """List jobs of earlier hosts."""
        self.past = {view.job_id: view for view in past if view.job_id not in self.jobs}

    def add(self, request: CommandRequest) -> Job:
        """Return a new job, which has not begun."""
        self.prune()
        job_id = f"job-{secrets.token_hex(3)}"
        while job_id in self.jobs or job_id in self.past:
            job_id = f"job-{secrets.token_hex(3)}"
        channel = CommandChannel(
            window=request.window,
            takes_input=request.takes_input,
            # A lambda, because the job is made from the channel and does not exist yet.
            on_bytes=lambda data: job.take(data),
            on_start=lambda: job.changed.set(),
        )
        job = Job(job_id, request, channel, JobOutput(), time.monotonic())
        self.jobs[job_id] = job
        return job

    def drop(self, job: Job) -> None:
        """Forget a job."""
        self.jobs.pop(job.job_id, None)
        job.close()

    def prune(self) -> None:
        """Forget the jobs that ended long ago, and the oldest that have ended if there are too many."""
        now_s = time.monotonic()
        ended = [job for job in self.jobs.values() if job.ended_s is not None]
        excess = len(self.jobs) - MAX_KEPT_JOBS
        for number, job in enumerate(ended):
            if number < excess or now_s - (job.ended_s or now_s) > JOB_KEPT_S:
                self.drop(job)

    def find(self, job_id: str) -> Job:
        """Return a job whose output is kept.

        Raises:
            ExecutionError: the session has none of that id.
        """
        self.prune()
        job = self.jobs.get(job_id)
        if job is not None and job.in_background:
            return job
        if (gone := self.past.get(job_id)) is not None:
            raise ExecutionError(
                f"nothing of the output of {job_id} is kept: it {describe_end(gone)}, on an earlier host of "
                "this session"
            )
        names = [each.job_id for each in self.jobs.values() if each.in_background]
        raise ExecutionError(
            f"this session has no job {job_id[:80]!r}; it has {', '.join((*self.past, *names)) or 'none'}"
        )

    def close(self) -> None:
        """Inform nobody any more; the session's shells end the processes."""
        self.listener = None


class SessionJobs:
    """Starts and manages jobs; see :class:`~sessiontree.contracts.handles.jobs.Jobs`.

    Args:
        table: The session's jobs.
        hosts: What runs commands, by host; a call that needs another host is refused.
        refusals: Why the other hosts are refused.
    """

    def __init__(
        self,
        table: JobTable,
        hosts: Mapping[ExecHost, Callable[[CommandRequest], JobShell]],
        refusals: Mapping[ExecHost, str] | None = None,
    ) -> None:
        self._table = table
        self._hosts = hosts
        self._refusals = refusals or {}

    async def run(
        self,
        request: CommandRequest,
        *,
        wait_s: float,
        keep_bytes: int,
        on_output: OnOutput | None = None,
    ) -> Finished | JobView:
        """Run a command; after ``wait_s`` it goes on as a job."""
        shell = self._choose_shell(request)
        is_full = sum(job.status == "running" for job in self._table.jobs.values()) >= MAX_RUNNING_JOBS
        if is_full and wait_s <= 0:
            raise ExecutionError(
                f"{MAX_RUNNING_JOBS} commands of this session run, and no more may; end one of "
                f"{', '.join(job.job_id for job in self._table.running)}"
            )
        limit_s = math.inf if request.timeout_s is None else request.timeout_s
        # With no place in the background left, a command may only run while its caller waits, and ends then.
        limit_s = min(limit_s, wait_s) if is_full else limit_s
        job = self._table.add(request)

        def show(text: str) -> None:
            if on_output is not None and not job.in_background:
                on_output(text)

        command = shell.run(
            request.command,
            workdir=request.workdir,
            env=request.env,
            timeout_s=limit_s,
            keep_bytes=keep_bytes,
            on_output=None if on_output is None else show,
            channel=job.channel,
        )
        job.task = task = asyncio.create_task(self._follow(job, command))
        try:
            await _wait_for(job, task, None if is_full else max(wait_s, EARLY_END_S))
        except asyncio.CancelledError:
            # The table forgets the job only after its process is gone; otherwise a command would run that no
            # list shows.
            await _end(task)
            self._table.drop(job)
            raise
        # The task can't end between this look and the next line: nothing is awaited in between, so the
        # listener gets the beginning before the end.
        if not task.done():
            self._put_in_background(job)
            return job.view()
        self._table.drop(job)
        if job.finished is not None:
            return job.finished
        raise job.error or ExecutionError("the command was ended before it could run")

    def _choose_shell(self, request: CommandRequest) -> JobShell:
        make = self._hosts.get(request.host)
        if make is None:
            reason = self._refusals.get(request.host) or "this session's commands are confined"
            raise PermissionDenied(
                PermissionTier.ELEVATED, f"can't run a command on host {request.host!r}: {reason}"
            )
        return make(request)

    async def _follow(self, job: Job, command: Awaitable[Finished]) -> None:
        try:
            job.finished = await command
            job.status = job.finished.reason
        except asyncio.CancelledError:
            job.status = "killed"
        except ToolError as error:
            job.status, job.error = "lost" if job.channel.is_lost else "failed", error
        except Exception as error:  # noqa: BLE001 - whatever ends a command, its job has an end
            job.status, job.error = "failed", error
        job.ended_s = time.monotonic()
        job.changed.set()
        # In the foreground the caller of the command has the result, and a notice would repeat it.
        if job.in_background and self._table.listener is not None:
            self._table.listener.on_job_ended(job.view(), "" if job.was_asked else _write_notice(job))

    def _put_in_background(self, job: Job) -> None:
        job.in_background = True
        if job.channel.leave_turn is not None:
            job.channel.leave_turn()
        if self._table.listener is not None:
            self._table.listener.on_job_began(job.view())

    def list(self) -> tuple[JobView, ...]:
        """Return the session's jobs, oldest first."""
        self._table.prune()
        here = [job.view() for job in self._table.jobs.values() if job.in_background]
        return (*self._table.past.values(), *here)

    async def read(
        self, job_id: str, *, offset: int | None, limit: int, wait_s: float = 0.0
    ) -> tuple[JobView, OutputPart]:
        """Return a part of a job's output."""
        job = self._table.find(job_id)
        asked = job.cursor if offset is None else offset
        if asked < 0:
            asked = max(0, job.output.total_bytes + asked)
        deadline = time.monotonic() + wait_s
        while job.status == "running" and job.output.total_bytes <= asked:
            left_s = deadline - time.monotonic()
            # Cleared before waiting and after the condition was checked, without an await in between: no
            # output can be missed.
            job.changed.clear()
            if left_s <= 0 or not await _is_set_within(job.changed, left_s):
                break
        part = _read_part(job, asked, limit)
        if offset is None:
            job.cursor = part.next_offset
        return job.view(), part

    async def screen(self, job_id: str) -> tuple[str, ...] | None:
        """Return the lines of a job's screen as they are now."""
        job = self._table.find(job_id)
        window = job.request.window
        if window is None or not can_draw():
            return None
        data, _ = job.output.read_range(job.output.total_bytes - SCREEN_BYTES, SCREEN_BYTES)
        return await run_in_thread(lambda: draw_screen(data, window))

    async def write(self, job_id: str, data: bytes, *, ends: bool = False) -> int:
        """Write to a running job and return how many bytes it took."""
        job = self._table.find(job_id)
        if job.status != "running":
            raise ExecutionError(f"{job_id} reads nothing any more: it {describe_end(job.view())}")
        if not job.channel.takes_input:
            raise ExecutionError(
                f"{job_id} has no input now; a command has one that is started with background or pty"
            )
        written = await job.channel.write(data)
        if ends and written == len(data):
            job.channel.end_input()
        return written

    async def kill(self, job_id: str) -> JobView:
        """End a job with everything it started; returns once it has ended."""
        job = self._table.find(job_id)
        if job.task is not None and not job.task.done():
            # Set before the cancellation, because the notice is written when the task ends, maybe before this
            # function runs again.
            job.was_asked = True
            job.task.cancel()
            await asyncio.wait({job.task})
        return job.view()

    def remove(self, job_id: str | None) -> tuple[str, ...]:
        """Forget a job that has ended, or all of them for None; return their ids."""
        table = self._table
        if job_id is not None and table.past.pop(job_id, None) is not None:
            return (job_id,)
        found = [table.find(job_id)] if job_id is not None else list(table.jobs.values())
        ended = [job for job in found if job.in_background and job.status != "running"]
        if job_id is not None and not ended:
            raise ExecutionError(f"{job_id} runs; end it first")
        for job in ended:
            table.drop(job)
        past = () if job_id is not None else tuple(table.past)
        if job_id is None:
            table.past.clear()
        return (*past, *(job.job_id for job in ended))


async def _wait_for(job: Job, task: asyncio.Task[None], wait_s: float | None) -> None:
    """Wait until a command has ended, or has run for so long; the time before its start does not count."""
    if wait_s is not None:
        # A command that waits for its turn has not begun, and must not be sent to the background for that.
        while job.channel.identity is None and not task.done():
            job.changed.clear()
            changed = asyncio.create_task(job.changed.wait())
            try:
                await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
    await asyncio.wait({task}, timeout=wait_s)


async def _end(task: asyncio.Task[None]) -> None:
    """End a command that nobody waits for any more; a second cancellation ends it at once."""
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # The first cancellation lets the command clean up; whoever cancels again does not want to wait
            # for that.
            task.cancel()


async def _is_set_within(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _read_part(job: Job, asked: int, limit: int) -> OutputPart:
    """Return a part of the output; a character that is not complete yet is left for the next one."""
    data, begin = job.output.read_range(asked, max(4, limit))
    kept = trim_partial_end(data)
    if not kept or (job.status != "running" and begin + len(data) == job.output.total_bytes):
        kept = data
    text = decode_output(kept)
    if job.request.window is not None:
        text = strip_controls(text)
    total = job.output.total_bytes
    return OutputPart(text, begin, begin + len(kept), max(0, begin - min(asked, total)), total)


def _write_notice(job: Job) -> str:
    """Return what the session reads about the end of a job: how it ended, and the output it has not read."""
    view = job.view()
    begin = max(job.cursor, job.output.total_bytes - NOTICE_BYTES)
    part = _read_part(job, begin, NOTICE_BYTES)
    job.cursor = max(job.cursor, part.next_offset)
    words = f"{view.job_id} {describe_end(view)} after {view.elapsed_s:.1f} s: {view.command}"
    if not part.text.strip():
        return f"{words}\n(no further output)"
    cut = f" (bytes {part.offset:,} to {part.next_offset:,})" if part.offset else ""
    return f"{words}\nIts output{cut}:\n{part.text}"


def cut_command(command: str, most: int = COMMAND_CHARS) -> str:
    """Return a command line as lists show it: in one line, and cut."""
    line = " ".join(command.split())
    return line if len(line) <= most else f"{line[:most]}…"
