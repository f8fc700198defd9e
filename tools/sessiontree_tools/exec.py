"""``exec``: runs a command line, confined to the workspace."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sessiontree.contracts.capabilities import SHELL
from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.ports import MAX_COMMAND_TIMEOUT_S
from sessiontree.contracts.results import ToolResult
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, Tool
from sessiontree_tools.exec_progress import ExecProgress
from sessiontree_tools.exec_report import details_of, report_of

KEPT_BACK_S = 1.0
"""Of the call's own time, beside the clean-up's, so that a command that takes too long can still end, and
have its output told."""
MAX_SHARE_KEPT_BACK = 0.1
"""Of a short call's time no more than this."""
NOTE_CHARS = 400
"""Room kept for what is said about the output."""


class ExecParams(BaseModel):
    """What to run, and where."""

    model_config = ConfigDict(extra="forbid")

    command: str = Field(min_length=1, description="Command line for bash, as `bash -c` takes it.")
    workdir: str = Field(
        default=".",
        min_length=1,
        description="Directory to start in, relative to the workspace or absolute beneath it.",
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables to add. PATH and variables that choose code to run are refused.",
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=MAX_COMMAND_TIMEOUT_S,
        description="Seconds until it is ended with all it started. Left out, it is 120, or what the agent's "
        "owner set; the call's own time-out bounds it.",
    )

    @field_validator("command")
    @classmethod
    def _says_something(cls, command: str) -> str:
        if not command.strip():
            raise ValueError("the command holds nothing but white space")
        return command


class Exec(Tool[ExecParams]):
    """Runs a command line in a sandbox."""

    name = "exec"
    description = (
        "Run a command line with bash in the workspace and return its output, standard error included. It is "
        "confined: it writes to the workspace, to /tmp and to its home alone, has no network, and is bounded "
        "in time, memory, processes and file sizes. /tmp, home and everything left running vanish when it "
        "ends. It has no input and no terminal. Prefer read, write, edit, find and grep for files."
    )
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
            progress.finish()  # what it said last: there is no result that could tell
            raise
        return ToolResult(
            output=report_of(finished, timeout_s, bounded=timeout_s < asked_s),
            display=f"{finished.reason} after {finished.elapsed_s:.1f} s: {params.command}",
            details=details_of(finished),
        )
