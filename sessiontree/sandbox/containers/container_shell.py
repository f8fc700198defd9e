"""The handle behind ``shell`` where commands run in a container."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from sessiontree.contracts.errors import ConfinementUnavailable, ExecutionError, PermissionDenied
from sessiontree.contracts.handles.ports import COMMAND_CLEANUP_S, Finished, Reader, Writer
from sessiontree.contracts.kinds import PermissionTier, WorkspaceAccess
from sessiontree.contracts.settings.sandbox_spec import SandboxSpec
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.protected import OwnPlaces, Seen, find_protected_places
from sessiontree.sandbox.commands.command_bounds import Bounds
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.command_process import OnOutput
from sessiontree.sandbox.commands.command_shell import check_command
from sessiontree.sandbox.commands.environment import check_variables, check_workspace
from sessiontree.sandbox.commands.running_commands import RunningCommands
from sessiontree.sandbox.containers.container_command import ContainerCommand
from sessiontree.sandbox.containers.engine import find_engine_program
from sessiontree.sandbox.containers.file_bridge import FileBridge
from sessiontree.sandbox.resources.command_turns import SessionTurns


class ContainerShell(RunningCommands):
    """Runs commands in a container; see :class:`~sessiontree.contracts.handles.ports.Shell`.

    Args:
        spec: What the container is made of.
        workspace: The directory that it sees at ``spec.workdir``.
        container: Returns the name of the container, which sees the given paths of the workspace read-only;
            the first call starts it.
        files: Read and change the workspace, where files are copied.
        own: Where processes of the runtime import from; a command that changes these places, or those that
            decide which programs git runs, finds them put back.
        access: What commands may do to the workspace.
        bounds: How much output a command may write; the container limits the rest.
        cleanup_s: How long a command may take to end, in seconds, after its time-out or after its caller was
            cancelled; then it is killed.
        turns: How many commands of this shell run at a time; the others wait. None = any number.
    """

    def __init__(  # noqa: PLR0913 - what commands see, and how they are bounded
        self,
        spec: SandboxSpec,
        workspace: Path,
        container: Callable[[tuple[str, ...]], Awaitable[str]],
        files: tuple[Reader, Writer],
        *,
        own: OwnPlaces | None = None,
        access: WorkspaceAccess = "rw",
        bounds: Bounds | None = None,
        cleanup_s: float = COMMAND_CLEANUP_S,
        turns: SessionTurns | None = None,
    ) -> None:
        super().__init__(cleanup_s, turns)
        self._spec = spec
        self._workspace = os.path.realpath(workspace)
        self._container = container
        self._files = files
        self._bridge: FileBridge | None = None
        self._copying = asyncio.Lock()
        self._own = own or OwnPlaces()
        self._may_write = access == "rw" and spec.workspace == "rw"
        self._bounds = bounds or Bounds()

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

        Raises:
            ExecutionError: ``channel`` has a terminal; a container's commands have none.
        """
        check_command(command)
        check_workspace(self._workspace)
        check_variables(env or {})
        channel = channel or CommandChannel()
        if channel.window is not None:
            raise ExecutionError("commands of a container have no terminal; run it without pty")
        place = self._resolve_place(workdir)
        make = partial(self._command, keep_bytes=keep_bytes, on_output=on_output, channel=channel)
        return await self.take_turn(
            lambda: self._run_now(command, place, env or {}, timeout_s, make), channel
        )

    def _command(
        self, program: str, name: str, *, keep_bytes: int, on_output: OnOutput | None, channel: CommandChannel
    ) -> ContainerCommand:
        return ContainerCommand(
            program,
            name,
            memory_bytes=self._spec.memory_bytes,
            output_bytes=self._bounds.output_bytes,
            cleanup_s=lambda: self.cleanup_s,
            keep_bytes=keep_bytes,
            on_output=on_output,
            channel=channel,
        )

    async def _run_now(
        self,
        command: str,
        place: str,
        env: Mapping[str, str],
        timeout_s: float,
        make: Callable[[str, str], ContainerCommand],
    ) -> Finished:
        program = find_engine_program(self._spec)
        seen = await self._list_protected()
        name = await self._container(self._make_relative(seen.paths))
        self._check_not_ended()  # it may have left while the container started
        running = make(program, name)
        with self.hold(running):  # until its places are put back
            try:
                if self._spec.files == "copy":
                    async with self._copying:  # else one command would undo what another one changes
                        bridge = self._ensure_bridge(program, name)
                        await bridge.copy_in()
                        finished = await running.run(command, place, env, timeout_s)
                        return replace(finished, put_back=await bridge.copy_out())
                finished = await running.run(command, place, env, timeout_s)
            except ConfinementUnavailable:
                with contextlib.suppress(ConfinementUnavailable):
                    await self._container(())  # the supervisor reports it once: here it is reported
                raise
            finally:
                # Also after a failure: whatever ended the command, the places that it may have changed decide
                # what runs outside it.
                put_back = seen.put_back()
        return replace(finished, put_back=self._make_relative(put_back)) if put_back else finished

    def _ensure_bridge(self, program: str, name: str) -> FileBridge:
        if self._bridge is None or self._bridge.name != name:
            reader, writer = self._files
            kept = writer if self._may_write else None
            self._bridge = FileBridge(program, name, self._spec.workdir, reader, kept)
        return self._bridge

    def _make_relative(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return paths of the workspace relative to it."""
        top = len(self._workspace.rstrip("/")) + 1
        return tuple(path[top:] for path in paths)

    async def _list_protected(self) -> Seen:
        """Return the protected places of the workspace; empty if a command can't write to it."""
        if not self._may_write or self._spec.files == "copy":
            return Seen(self._workspace)
        return await run_in_thread(find_protected_places(self._workspace, self._own).see)

    def _resolve_place(self, workdir: str) -> str:
        """Return where the command starts: a place of the workspace, or any absolute one of the container."""
        if "\0" in workdir:
            raise PermissionDenied(PermissionTier.SYSTEM, f"can't run a command in {workdir!r}: it has a NUL")
        path = PurePosixPath(workdir)
        if path.is_absolute() and path.is_relative_to(self._workspace):
            path = path.relative_to(self._workspace)
        return str(path)
