"""``exec``: runs a command line, confined to the workspace.

While it runs, its latest output is reported as progress. The result says how it ended: in words for the
model, in fields for the journal.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.context import SHELL, ToolContext
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.ports import MAX_COMMAND_TIMEOUT_S, Finished, UpdateCallback
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool

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
        bounded: Whether that is less than was asked for.
    """
    output = finished.head
    if finished.dropped_bytes:
        output += f"\n… {finished.dropped_bytes:,} bytes of output are left out here …\n{finished.tail}"
    note = _ending(finished, timeout_s, bounded=bounded)
    if finished.put_back:
        said = f"protected and put back as it was: {', '.join(finished.put_back)}"
        note = f"{note}; {said}" if note else said
    if not note:
        return output or "(no output)"
    return f"{output.rstrip()}\n({note})" if output.strip() else f"({note})"


def _ending(finished: Finished, timeout_s: float, *, bounded: bool) -> str:
    limit = _limit(finished)
    if finished.reason == "timeout":
        why = (
            "the tree's tool time-out allows no more" if bounded else "give a longer timeout if it needs one"
        )
        return f"Command timed out after {timeout_s:.1f} s and was ended with all it started; {why}"
    if finished.reason == "limit":
        return f"Command was ended: it reached the limit of {limit}"
    if finished.reason == "signal":
        return f"Command was ended by {_signal_name(finished.signal)}"
    if not finished.exit_code:
        return ""
    meaning = EXIT_CODES.get(finished.exit_code, "")
    return (
        f"Command exited with code {finished.exit_code}"
        + (f": {meaning}" if meaning else "")
        + (f"; it seems to have reached the limit of {limit}" if limit else "")
    )


def _outcome(finished: Finished) -> str:
    """Return how it ended, in a word or two for people."""
    if finished.reason == "timeout":
        return "timed out"
    if finished.reason == "limit":
        return "ended at a limit"
    if finished.reason == "signal":
        return f"ended by {_signal_name(finished.signal)}"
    return f"exited {finished.exit_code}" if finished.exit_code else "exited"


def _limit(finished: Finished) -> str:
    if finished.limit is None:
        return ""
    unit = " bytes" if finished.limit.endswith("_bytes") else " s" if finished.limit.endswith("_s") else ""
    return f"{LIMITS.get(finished.limit, finished.limit)}: {finished.allowed:,}{unit}"


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


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
    }


KEPT_BACK_S = 1.0
"""Seconds kept back from the call's own time, in addition to the clean-up time.

A command that takes too long can still end in them, and its output is reported."""
MAX_SHARE_KEPT_BACK = 0.1
"""Of a short call's time no more than this."""
NOTE_CHARS = 400
"""Room kept for what is said about the output."""


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

    @field_validator("command")
    @classmethod
    def _says_something(cls, command: str) -> str:
        if not command.strip():
            raise ValueError("the command contains only white space")
        return command


class Exec(Tool[ExecParams]):
    """Runs a command line in a sandbox."""

    name = "exec"
    description = (
        "Run a bash command in the workspace. It has no network and no input, writes to the workspace, /tmp "
        "and its home only, and what it leaves running ends with it."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ExecParams
    label = "Run command"
    section = "runtime"
    profiles = frozenset({"coding"})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"shell"})
    command_in = "command"
    aliases: ClassVar[tuple[str, ...]] = ("bash", "shell")

    async def execute(self, params: ExecParams, ctx: ToolContext) -> ToolResult:
        """Run it; details are ``{exit_code, signal, elapsed_ms, dropped_bytes, reason, limit, allowed}``.

        A command that fails, is ended or runs into a limit completes: its output and how it ended are the
        result.

        Raises:
            ValidationError: a variable may not be set, or the command is too long.
            PermissionDenied: the working directory is outside the workspace, or the session runs nothing.
            ConfinementUnavailable: this machine can't confine commands.
            ExecutionError: it could not be started, for instance because the directory is missing.
        """
        shell = ctx.require(SHELL)
        max_chars = ctx.config.max_result_chars
        left_s = ctx.deadline - time.monotonic()
        asked_s = ctx.config.exec_timeout_s if params.timeout is None else params.timeout
        kept_back_s = min(KEPT_BACK_S + ctx.config.exec_cleanup_s, left_s * MAX_SHARE_KEPT_BACK)
        timeout_s = min(asked_s, left_s - kept_back_s)
        progress = ExecProgress(ctx.update, time.monotonic)
        try:
            finished = await shell.run(
                params.command,
                workdir=params.workdir,
                env=params.env,
                timeout_s=max(0.0, timeout_s),
                keep_bytes=max(max_chars // 2, max_chars - NOTE_CHARS),
                on_output=progress,
            )
        except asyncio.CancelledError:
            progress.finish()  # what it said last, which no result will repeat
            raise
        return ToolResult(
            output=exec_report(finished, timeout_s, bounded=timeout_s < asked_s),
            display=f"{_outcome(finished)} after {finished.elapsed_s:.1f} s: {params.command}",
            details=exec_details(finished),
        )
