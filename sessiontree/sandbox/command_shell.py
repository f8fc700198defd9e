"""The handle behind ``shell``: command lines in one workspace, each in a sandbox of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.ports import COMMAND_CLEANUP_S, Finished
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.contracts.tiers import ExecSecurity, PermissionTier, WorkspaceAccess
from sessiontree.policy.commands.programs import HARMLESS
from sessiontree.policy.commands.verdict import single_program
from sessiontree.protected import OwnPlaces, Seen, protected_places
from sessiontree.sandbox.bounds import Bounds
from sessiontree.sandbox.command_kernel import bubblewrap, confining_machine
from sessiontree.sandbox.command_launcher import BOOT
from sessiontree.sandbox.command_plan import Command, packed_plan, shell_words
from sessiontree.sandbox.command_process import CommandProcess, OnOutput
from sessiontree.sandbox.command_watch import CommandWatch
from sessiontree.sandbox.environment import (
    SYSTEM_PATH,
    check_plain_variables,
    check_variables,
    fresh_environment,
)
from sessiontree.sandbox.mounts import (
    check_workspace,
    mount_words,
    programs_of,
    running_interpreter,
)
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.sandbox.program_finder import program_finder

MAX_COMMAND_BYTES: Final = 100_000
"""The kernel takes no argument over 128 KiB."""
SHOWN_CHARS: Final = 200


class CommandShell:
    """Runs confined commands in one workspace; see :class:`~sessiontree.contracts.ports.Shell`.

    A command sees the system's programs, this environment's Python and the workspace, and can write to the
    workspace and to places of its own that vanish with it. It reaches no network, no other process and
    nothing of the runtime, has an environment made for it, and is bounded in all it uses.

    Args:
        workspace: Existing directory.
        hidden: Files and directories no command may see, though they lie where it can look; absolute.
        bounds: What each command may use.
        own: What processes of ours import from: commands find it read-only, and what tells git which programs
            to run.
        security: Which commands are run: any, or one known harmless program at a time, which is started
            without a shell; ``paranoid`` has the workspace read-only besides.
        access: What commands may do to the workspace; ``ro`` leaves it read-only under every security.
        cleanup_s: How long a command may take to end once it is asked to, at its time-out or when whoever
            waits for it is cancelled; then it is killed.
    """

    def __init__(
        self,
        workspace: Path,
        hidden: Sequence[Path] = (),
        bounds: Bounds | None = None,
        *,
        own: OwnPlaces | None = None,
        security: ExecSecurity = "full",
        access: WorkspaceAccess = "rw",
        cleanup_s: float = COMMAND_CLEANUP_S,
    ) -> None:
        """Keep what it is about; nothing is looked at before the first command."""
        self._workspace = os.path.realpath(workspace)
        self._hidden = tuple(hidden)
        self._bounds = bounds or Bounds()
        self._own = own or OwnPlaces()
        self._security = security
        self._may_write = access == "rw" and security != "paranoid"
        self._cleanup_s = cleanup_s
        self._running: set[CommandProcess] = set()

    def end(self) -> set[ProcessIdentity]:
        """Kill the commands that run; return the processes that they were.

        From now on a command that is to end is killed at once: nobody can wait any more.
        """
        self._cleanup_s = 0.0
        return set().union(*(process.kill() for process in self._running))

    async def run(
        self,
        command: str,
        *,
        workdir: str = ".",
        env: Mapping[str, str] | None = None,
        timeout_s: float,
        keep_bytes: int = 50_000,
        on_output: OnOutput | None = None,
    ) -> Finished:
        """Run one command line; see :class:`~sessiontree.contracts.ports.Shell`."""
        _check_command(command)
        start = self._start_in(workdir)
        seen = await self._seen()
        try:
            process = self._prepared(command, start, env or {}, keep_bytes, on_output, seen)
            self._running.add(process)
            try:
                finished = await process.run(timeout_s)
            finally:
                self._running.discard(process)
        finally:
            put_back = seen.put_back()
        top = len(self._workspace.rstrip("/")) + 1
        return replace(finished, put_back=tuple(path[top:] for path in put_back)) if put_back else finished

    async def _seen(self) -> Seen:
        """Return what of the workspace a command is to find as it is; nothing where it can't write there."""
        if not self._may_write:
            return Seen(self._workspace)
        return await in_thread(protected_places(self._workspace, self._own).see)

    def _prepared(
        self,
        command: str,
        start: str,
        env: Mapping[str, str],
        keep_bytes: int,
        on_output: OnOutput | None,
        seen: Seen,
    ) -> CommandProcess:
        check_variables(env)
        check_workspace(self._workspace)
        bwrap, here = bubblewrap(), confining_machine()
        interpreter = running_interpreter()
        hidden = [os.path.realpath(path) for path in self._hidden]
        if self._security == "full":
            program, programs = shell_words(command), programs_of(interpreter, self._workspace)
        else:
            check_plain_variables(env)
            program, programs = self._harmless_program(command), SYSTEM_PATH
        environment = fresh_environment(programs, start, env)
        asked = Command(program, self._workspace, start, environment, self._may_write)
        mounts = mount_words(
            self._workspace, hidden, interpreter, self._bounds, may_write=self._may_write, seen=seen
        )
        words = [bwrap, *mounts]
        return CommandProcess(
            [*words, "--", interpreter.real_program, "-I", "-S", "-c", BOOT],
            packed_plan(asked, self._bounds, here),
            partial(CommandWatch, workspace=self._workspace, bounds=self._bounds),
            self._bounds,
            cleanup_s=lambda: self._cleanup_s,
            keep_bytes=keep_bytes,
            on_output=on_output,
        )

    def _harmless_program(self, command: str) -> tuple[str, ...]:
        try:
            return single_program(command, program_finder(self._workspace, SYSTEM_PATH))
        except ValueError as error:
            raise PermissionDenied(
                PermissionTier.SYSTEM,
                f"can't run {_shown(command)}: {_cut(str(error))}. "
                f"This session's exec security is {self._security!r}: it runs one program at a time, without "
                f"a shell, of these: {', '.join(HARMLESS)}",
            ) from error

    def _start_in(self, workdir: str) -> str:
        """Return where the command starts, links unresolved: where they lead shows inside."""
        path = os.path.normpath(os.path.join(self._workspace, workdir))  # noqa: PTH118 - no path is touched
        if "\0" in workdir or not Path(path).is_relative_to(self._workspace):
            raise PermissionDenied(
                PermissionTier.SYSTEM, f"can't run a command in {workdir!r}: it leads outside the workspace"
            )
        return path


def _shown(command: str) -> str:
    """Return a command as an error shows it: escaped, and cut."""
    return repr(_cut(command))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _check_command(command: str) -> None:
    try:
        length = len(command.encode())
    except UnicodeEncodeError as error:
        raise ValidationError("the command holds a character that has no UTF-8 form", "/command") from error
    if "\0" in command:
        raise ValidationError("the command holds a NUL character", "/command")
    if length > MAX_COMMAND_BYTES:
        raise ValidationError(
            f"the command is {length} bytes long; at most {MAX_COMMAND_BYTES} are taken. "
            "Write a script into the workspace and run that",
            "/command",
        )
