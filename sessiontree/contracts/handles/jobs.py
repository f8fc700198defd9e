"""Jobs: commands that go on while their session does other things.

A job belongs to one session and ends with it. While it runs, the session stays on its host.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.handles.ports import Finished
from sessiontree.contracts.values.quick_dataclass import dataclass

ExecHost: TypeAlias = Literal["gateway", "host", "node"]
"""Where a command runs: ``gateway`` = confined, or in the session's container; ``host`` = on this machine
without confinement; ``node`` = on a named node of the Ray cluster without confinement."""

JobStatus: TypeAlias = Literal["running", "exited", "signal", "timeout", "limit", "killed", "failed", "lost"]
"""``exited``, ``signal``, ``timeout`` and ``limit``: as a command ends. ``killed`` = on request. ``failed`` =
it could not be started, or how it ended is not known. ``lost`` = its host was lost, and it ended with it."""

MAX_RUNNING_JOBS: Final = 16
"""How many jobs of one session run at a time."""
MAX_KEPT_JOBS: Final = 32
"""How many jobs of one session are listed; the oldest that have ended are dropped first."""
JOB_KEPT_S: Final = 1800.0
"""How long the output of a job is kept after its end, in seconds."""
YIELD_S: Final = 30.0
"""Default time after which a command goes on in the background, in seconds."""
EARLY_END_S: Final = 0.2
"""How long a job from the beginning is waited for, so that one that can't start is reported at once."""
MAX_ROWS, MAX_COLUMNS = 500, 1000
MAX_POLL_S: Final = 120.0
"""How long one poll may wait, in seconds."""
MAX_INPUT_BYTES: Final = 100_000
"""How much one call may write to a job."""


@dataclass(frozen=True, slots=True)
class WindowSize:
    """Size of a terminal in characters."""

    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command that may become a job."""

    command: str
    workdir: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    """Time limit, from its start; None = none but the end of its session."""
    window: WindowSize | None = None
    """The terminal that it runs in; None = no terminal."""
    takes_input: bool = False
    """Whether it can be written to; with a terminal it always can."""
    host: ExecHost = "gateway"
    node: str = ""
    """Name, id or beginning of the id of the node, for host ``node``."""


@dataclass(frozen=True, slots=True)
class JobView:
    """What is known of a job."""

    job_id: str
    command: str
    """Its command line, maybe cut."""
    status: JobStatus
    host: ExecHost = "gateway"
    pid: int = 0
    """The process that started it, on its machine; with ``started`` it is unique there. 0 = not known."""
    started: int = 0
    """When that process started, in clock ticks since the machine's start."""
    elapsed_s: float = 0.0
    """How long it has run, or ran."""
    total_bytes: int = 0
    """How much output it has written."""
    exit_code: int | None = None
    signal: int | None = None
    limit: str | None = None
    """The limit that it exceeded."""
    allowed: int | None = None
    window: WindowSize | None = None
    takes_input: bool = False
    reason: str = ""
    """Why it failed or was lost."""
    put_back: tuple[str, ...] = ()
    """Paths of protected places that it changed, and that were restored."""
    place: str = ""
    """On which node it runs, and in which directory; empty = on the session's machine."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"


def describe_end(view: JobView) -> str:
    """Return how a job ended, as the predicate of a sentence: ``exited with code 1``."""
    match view.status:
        case "running":
            return "runs"
        case "exited":
            limit = f" (it seems to have reached its limit of {view.limit})" if view.limit else ""
            return f"exited with code {view.exit_code}{limit}"
        case "signal":
            return f"was ended by {signal_name(view.signal)}"
        case "timeout":
            return "timed out"
        case "limit":
            return f"was ended: it reached its limit of {view.limit} ({view.allowed:,})"
        case "killed":
            return "was ended on request"
        case "failed":
            return f"failed: {view.reason}"
        case "lost":
            return f"was lost: {view.reason}"


def signal_name(number: int | None) -> str:
    """Return the name of a signal, such as ``SIGTERM``."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of a job's output."""

    text: str
    """Decoded; bytes that are not UTF-8, and NUL, are replaced by U+FFFD."""
    offset: int
    """Where it begins, in bytes from the beginning of the output."""
    next_offset: int
    """Where the next part begins."""
    dropped_bytes: int = 0
    """How many bytes between the asked offset and this part are not kept any more."""
    total_bytes: int = 0
    """How much output there is by now."""


class Jobs(Protocol):
    """Starts commands of this session that may go on in the background, and manages those.

    Raises (every method that takes a ``job_id``):
        ExecutionError: this session has no such job; names those that it has.
    """

    async def run(
        self,
        request: CommandRequest,
        *,
        wait_s: float,
        keep_bytes: int,
        on_output: Callable[[str], None] | None = None,
    ) -> Finished | JobView:
        """Run a command; after ``wait_s`` it goes on as a job.

        If the caller is cancelled before that, the command ends as one of ``Shell.run`` does. Where as many
        jobs run as may, the command is ended after ``wait_s`` as by its time-out.

        Args:
            request: What to run, and where.
            wait_s: How long to wait for its end, in seconds; 0 = it is a job from the beginning.
            keep_bytes: Maximum output in what is returned for an ended command.
            on_output: Called with pieces of decoded output until this returns.

        Returns:
            How it ended, or the job.

        Raises:
            As ``Shell.run``; and:
            ExecutionError: it is to be a job from the beginning, and as many run as may; or the container or
                the backend has no such host, terminal or input.
            PermissionDenied: this session's commands may not run on that host, or this call was not approved
                for it.
        """
        ...

    def list(self) -> tuple[JobView, ...]:
        """Return the session's jobs, oldest first."""
        ...

    async def read(
        self, job_id: str, *, offset: int | None, limit: int, wait_s: float = 0.0
    ) -> tuple[JobView, OutputPart]:
        """Return a part of a job's output.

        Args:
            job_id: The job.
            offset: Where the part begins, in bytes; negative = from the end; None = after the part that was
                read last, which then moves on.
            limit: Its maximum length in bytes.
            wait_s: How long to wait if there is nothing after the offset and the job runs.
        """
        ...

    async def screen(self, job_id: str) -> tuple[str, ...] | None:
        """Return the lines of a job's screen as they are now.

        None if it has no terminal, or this installation can't draw one (extra ``terminal``).
        """
        ...

    async def write(self, job_id: str, data: bytes, *, ends: bool = False) -> int:
        """Write ``data`` to a running job and return how many bytes it took; ``ends`` closes its input then.

        Raises:
            ExecutionError: it takes no input or has ended.
        """
        ...

    async def kill(self, job_id: str) -> JobView:
        """End a job with everything it started, as its time-out would; returns once it has ended."""
        ...

    def remove(self, job_id: str | None) -> tuple[str, ...]:
        """Forget a job that has ended, or all of them for None; return their ids.

        Raises:
            ExecutionError: it runs.
        """
        ...
