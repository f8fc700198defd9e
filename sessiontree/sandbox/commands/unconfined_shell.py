"""Commands without confinement, for calls that a person allowed: host ``host`` of ``exec``.

They run as the user of this process, see its files, other processes and the network, and can start any
program. Their environment is made for them, without the keys of this process. They end with their session and
their host, as confined ones do.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping
from dataclasses import replace
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Final

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox.commands import unconfined_launcher
from sessiontree.sandbox.commands.command_bounds import Bounds, Excess
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_plan import build_shell_words
from sessiontree.sandbox.commands.command_process import CommandProcess, OnOutput
from sessiontree.sandbox.commands.command_shell import TERMINAL, check_command
from sessiontree.sandbox.commands.environment import SYSTEM_PATH, check_variables, get_running_interpreter
from sessiontree.sandbox.commands.running_commands import RunningCommands

KEPT_VARIABLES: Final = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SHELL", "TMPDIR")
"""The variables of this process that a command gets; all others may be secrets."""


class NoLimits:
    """Bounds nothing but the output, which its command's process counts."""

    def find_excess(self, launcher_io: FileIO | None = None) -> Excess | None:
        """Return that no limit is exceeded."""
        return None


class UnconfinedShell:
    """Runs commands without confinement; see :class:`~sessiontree.contracts.handles.ports.Shell`.

    Args:
        workspace: Where relative directories begin.
        running: The session's other commands; these count among them, and end with them.
        place: What is said of where they run; empty = on this machine.
    """

    def __init__(self, workspace: Path, running: RunningCommands, *, place: str = "") -> None:
        self._place = place
        self._workspace = os.path.realpath(workspace)
        self._running = running
        self._bounds = Bounds()

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
        """Run one command line, in any directory."""
        check_command(command)
        check_variables(env or {})
        if "\0" in workdir:
            raise ValidationError("the directory holds a NUL character", "/workdir")
        channel = channel or CommandChannel()
        channel.place = self._place
        window, interpreter = channel.window, get_running_interpreter()
        plan = {
            "command": build_shell_words(command),
            "workdir": str(PurePosixPath(self._workspace, workdir)),
            "environment": _build_environment(env or {}, has_terminal=window is not None),
            "terminal": None if window is None else (window.rows, window.columns),
        }
        process = CommandProcess(
            [interpreter.real_program, "-I", "-S", unconfined_launcher.__file__],
            marshal.dumps(plan),
            lambda pid: NoLimits(),
            self._bounds,
            cleanup_s=lambda: self._running.cleanup_s,
            keep_bytes=keep_bytes,
            on_output=on_output,
            channel=channel,
        )

        async def run_now() -> Finished:
            with self._running.hold(process):
                return await process.run(timeout_s)

        return _remove_limits(await self._running.take_turn(run_now, channel))


def _build_environment(env: Mapping[str, str], *, has_terminal: bool) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    path = os.environ.get("PATH", os.pathsep.join(SYSTEM_PATH))
    return {**kept, "PATH": path, "TERM": TERMINAL if has_terminal else "dumb", **env}


def _remove_limits(finished: Finished) -> Finished:
    """Return how a command ended; only its output was limited here."""
    if finished.limit in {None, "output_bytes"}:
        return finished
    reason = "signal" if finished.reason == "limit" else finished.reason
    return replace(finished, reason=reason, limit=None, allowed=None)
