"""The handle behind ``shell``: command lines in one workspace, each in a sandbox of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import PermissionDenied, ValidationError
from sessiontree.contracts.handles.ports import COMMAND_CLEANUP_S, Finished
from sessiontree.contracts.kinds import ExecSecurity, PermissionTier, WorkspaceAccess
from sessiontree.contracts.tools.skills import Skill
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.policy.commands.verdict import HARMLESS, parse_single_program
from sessiontree.protected import OwnPlaces, Seen, find_protected_places
from sessiontree.sandbox.commands.command_bounds import Bounds, CommandWatch
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_launcher import BOOT
from sessiontree.sandbox.commands.command_plan import Command, build_shell_words, pack_plan
from sessiontree.sandbox.commands.command_process import CommandProcess, OnOutput
from sessiontree.sandbox.commands.environment import (
    SYSTEM_PATH,
    check_plain_variables,
    check_variables,
    check_workspace,
    get_running_interpreter,
    list_program_folders,
    make_fresh_environment,
    make_program_finder,
    mount_words,
)
from sessiontree.sandbox.commands.kernel_support import find_bubblewrap, require_machine
from sessiontree.sandbox.commands.running_commands import RunningCommands
from sessiontree.sandbox.resources.command_turns import SessionTurns

MAX_COMMAND_BYTES: Final = 100_000
"""The kernel accepts no argument longer than 128 KiB."""
SHOWN_CHARS: Final = 200
TERMINAL: Final = "xterm"
"""The kind of terminal that a command sees, which every system's programs know."""


class CommandShell(RunningCommands):
    """Runs confined commands in one workspace; see :class:`~sessiontree.contracts.handles.ports.Shell`.

    A command sees the system's programs, this environment's Python and the workspace. It can write to the
    workspace and to private places that are removed with it. It reaches no network, no other process and
    nothing of the runtime. Its environment is made for it, and all its resources are limited.

    Args:
        workspace: Existing directory.
        hidden: Files and directories that no command may see, although they are in a visible place; absolute.
        bounds: What each command may use.
        own: Where processes of the runtime import from. For commands these places are read-only, and so are
            the files that tell git which programs to run.
        security: Which commands run: any, or one known harmless program at a time, started without a shell;
            ``paranoid`` also makes the workspace read-only.
        access: What commands may do to the workspace; ``ro`` makes it read-only under every security.
        cleanup_s: How long a command may take to end, in seconds, after its time-out or after its caller was
            cancelled; then it is killed.
        skills: The owner's skills by name, which commands see read-only in ``/skills``.
        turns: How many commands of this shell run at a time; the others wait. None = any number.
    """

    def __init__(  # noqa: PLR0913 - what commands see, and how they are bounded
        self,
        workspace: Path,
        hidden: Sequence[Path] = (),
        bounds: Bounds | None = None,
        *,
        own: OwnPlaces | None = None,
        security: ExecSecurity = "full",
        access: WorkspaceAccess = "rw",
        cleanup_s: float = COMMAND_CLEANUP_S,
        skills: Mapping[str, Skill] | None = None,
        turns: SessionTurns | None = None,
    ) -> None:
        super().__init__(cleanup_s, turns)
        self._workspace = os.path.realpath(workspace)
        self._hidden = tuple(hidden)
        self._bounds = bounds or Bounds()
        self._own = own or OwnPlaces()
        self._security = security
        self._may_write = access == "rw" and security != "paranoid"
        self._skills = {skill.folder: skill.place for skill in (skills or {}).values()}

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
        """Run one command line; see :class:`~sessiontree.contracts.handles.ports.Shell`.

        ``channel`` connects it to a terminal or an input.
        """
        check_command(command)
        check_workspace(self._workspace)  # before its places are looked for: it may be the whole machine
        start = self._start_in(workdir)
        channel = channel or CommandChannel()
        make = partial(self._prepare, command, start, env or {}, keep_bytes, on_output, channel)
        return await self.take_turn(lambda: self._run_now(make, timeout_s), channel)

    async def _run_now(self, make: Callable[[Seen], CommandProcess], timeout_s: float) -> Finished:
        seen = await self._list_protected()
        try:
            process = make(seen)
            with self.hold(process):
                finished = await process.run(timeout_s)
        finally:
            # Also when the command failed or was cancelled: an absent protected place that it made would be
            # obeyed outside the sandbox.
            put_back = seen.put_back()
        top = len(self._workspace.rstrip("/")) + 1
        return replace(finished, put_back=tuple(path[top:] for path in put_back)) if put_back else finished

    async def _list_protected(self) -> Seen:
        """Return the protected places of the workspace; empty if a command can't write to it."""
        if not self._may_write:
            return Seen(self._workspace)
        return await run_in_thread(find_protected_places(self._workspace, self._own).see)

    def _prepare(
        self,
        command: str,
        start: str,
        env: Mapping[str, str],
        keep_bytes: int,
        on_output: OnOutput | None,
        channel: CommandChannel,
        seen: Seen,
    ) -> CommandProcess:
        check_variables(env)
        bwrap, here = find_bubblewrap(), require_machine()
        interpreter = get_running_interpreter()
        # Resolved for each command, because what is on the way to a hidden place may have changed since the
        # last one.
        hidden = [os.path.realpath(path) for path in self._hidden]
        if self._security == "full":
            program, programs = build_shell_words(command), list_program_folders(interpreter, self._workspace)
        else:
            check_plain_variables(env)
            program, programs = self._find_harmless_program(command), SYSTEM_PATH
        window = channel.window
        env = env if window is None else {"TERM": TERMINAL, **env}
        environment = make_fresh_environment(programs, start, env)
        size = None if window is None else (window.rows, window.columns)
        asked = Command(program, self._workspace, start, environment, self._may_write, size)
        mounts = mount_words(
            self._workspace,
            hidden,
            interpreter,
            self._bounds,
            may_write=self._may_write,
            seen=seen,
            skills=self._skills,
        )
        words = [bwrap, *mounts]
        return CommandProcess(
            [*words, "--", interpreter.real_program, "-I", "-S", "-c", BOOT],
            pack_plan(asked, self._bounds, here),
            partial(CommandWatch, workspace=self._workspace, bounds=self._bounds),
            self._bounds,
            cleanup_s=lambda: self.cleanup_s,
            keep_bytes=keep_bytes,
            on_output=on_output,
            channel=channel,
        )

    def _find_harmless_program(self, command: str) -> tuple[str, ...]:
        try:
            return parse_single_program(command, make_program_finder(self._workspace, SYSTEM_PATH))
        except ValueError as error:
            raise PermissionDenied(
                PermissionTier.SYSTEM,
                f"can't run {_escape(command)}: {_cut(str(error))}. "
                f"This session's exec security is {self._security!r}: it runs one program at a time, without "
                f"a shell, of these: {', '.join(HARMLESS)}",
                by_policy=True,
            ) from error

    def _start_in(self, workdir: str) -> str:
        """Return where the command starts; links are followed and checked inside the sandbox."""
        path = os.path.normpath(os.path.join(self._workspace, workdir))  # noqa: PTH118 - no path is touched
        if "\0" in workdir or not Path(path).is_relative_to(self._workspace):
            raise PermissionDenied(
                PermissionTier.SYSTEM, f"can't run a command in {workdir!r}: it leads outside the workspace"
            )
        return path


def _escape(command: str) -> str:
    """Return a command as an error shows it: escaped, and cut."""
    return repr(_cut(command))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def check_command(command: str) -> None:
    """Accept a command line that can be given to a shell.

    Raises:
        ValidationError: it has a NUL or no UTF-8 form, or is too long.
    """
    try:
        length = len(command.encode())
    except UnicodeEncodeError as error:
        raise ValidationError("the command holds a character that has no UTF-8 form", "/command") from error
    if "\0" in command:
        raise ValidationError("the command holds a NUL character", "/command")
    if length > MAX_COMMAND_BYTES:
        raise ValidationError(
            f"the command is {length} bytes long; at most {MAX_COMMAND_BYTES} are accepted. "
            "Write a script into the workspace and run that",
            "/command",
        )
