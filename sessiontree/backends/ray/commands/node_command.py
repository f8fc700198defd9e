"""The actor that runs one command on a node of a cluster, for a session's host on another one.

It belongs to that host: Ray ends it when the host's process ends, by any means. The command's launcher then
ends the command. Its output waits here, bounded, until the host takes it. Not here: the host's side
(``remote_command.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessiontree.backends.ray.commands.remote_node import compare_releases, look_at, start_watch
from sessiontree.backends.ray.engine import engine_home
from sessiontree.contracts.errors import ExecutionError, describe_error
from sessiontree.contracts.handles.jobs import WindowSize
from sessiontree.contracts.handles.ports import Finished
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import tidy
from sessiontree.runtime.transport.rpc import make_portable
from sessiontree.sandbox import UnconfinedShell
from sessiontree.sandbox.commands.command_channel import CommandChannel
from sessiontree.sandbox.commands.running_commands import RunningCommands
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.workspace.identity import DirectoryView

FOLLOW_S: Final = 5.0
"""How long one question for news waits for some."""
PIECE_BYTES: Final = 512 * 1024
"""How much output one answer has at most."""
WAITING_BYTES: Final = 16 * 1024 * 1024
"""How much output waits for the host; older output is dropped first."""


@dataclass(frozen=True, slots=True)
class CommandOrder:
    """A command, and how it is bounded."""

    command: str
    workspace: Path | None
    """Where relative directories begin; None = in an empty directory that is made for the command."""
    workdir: str
    env: Mapping[str, str]
    timeout_s: float
    cleanup_s: float
    keep_bytes: int
    window: WindowSize | None
    takes_input: bool


@dataclass(frozen=True, slots=True)
class CommandNews:
    """What has happened since the last question."""

    data: bytes = b""
    dropped_bytes: int = 0
    """How much output before the data was dropped."""
    identity: ProcessIdentity | None = None
    """The command's outer process on its node, once it runs."""
    finished: Finished | None = None
    error: Exception | None = None
    """Why how it ended is not known, or why it was not started."""


class NodeCommand:
    """Runs one command; use it once."""

    def __init__(self) -> None:
        tidy()
        self._waiting = bytearray()
        self._dropped_bytes = 0
        self._news = asyncio.Event()
        """Set while there is something to report."""
        self._begun = asyncio.Event()
        """Set once the command runs, or will not."""
        self._running = RunningCommands(0.0, None)
        self._channel = CommandChannel()
        self._task: asyncio.Task[None] | None = None
        self._finished: Finished | None = None
        self._error: Exception | None = None

    async def look(self, workspace: Path, entries: bool) -> DirectoryView | str:
        """Return what this node sees of a workspace, or why it sees none."""
        return await look_at(workspace, entries)

    async def check(self, wanted: tuple[str, str, str]) -> str | None:
        """Return why this node can't serve a host of these releases; None = it can."""
        found = compare_releases(wanted)
        return None if found is None else f"it has {found}; install the same on every node"

    async def begin(self, order: CommandOrder) -> str | None:
        """Start the command; return why it is not started, or None."""
        home: Path | None = None
        if order.workspace is None:
            try:
                home = await asyncio.to_thread(_make_home)
            except OSError as error:
                return f"no directory can be made for it: {describe_error(error)}"
        self._running = RunningCommands(order.cleanup_s, None)
        self._channel = CommandChannel(
            window=order.window,
            takes_input=order.takes_input,
            on_bytes=self._take,
            on_start=self._note_start,
        )
        self._task = asyncio.create_task(self._run(order, home))
        return None

    async def _run(self, order: CommandOrder, home: Path | None) -> None:
        directory = order.workspace if home is None else home / WORK
        assert directory is not None  # noqa: S101 - one of them is given
        try:
            self._finished = await UnconfinedShell(directory, self._running).run(
                order.command,
                workdir=order.workdir,
                env=order.env,
                timeout_s=order.timeout_s,
                keep_bytes=order.keep_bytes,
                channel=self._channel,
            )
        except asyncio.CancelledError:
            self._error = ExecutionError("the command was ended on request")
        except Exception as error:  # noqa: BLE001 - the host raises it
            self._error = make_portable(error)
        finally:
            if home is not None:
                await asyncio.to_thread(_remove, home)
            self._note_start()

    def _note_start(self) -> None:
        self._begun.set()
        self._news.set()

    def _take(self, data: bytes) -> None:
        self._waiting += data
        excess = len(self._waiting) - WAITING_BYTES
        if excess > 0:
            del self._waiting[:excess]
            self._dropped_bytes += excess
        self._news.set()

    async def follow(self) -> CommandNews:
        """Return what is new; waits up to ``FOLLOW_S`` for it. The end is reported after all output."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_S):
                await self._news.wait()
        data = bytes(self._waiting[:PIECE_BYTES])
        del self._waiting[:PIECE_BYTES]
        dropped, self._dropped_bytes = self._dropped_bytes, 0
        identity = self._channel.identity
        if self._waiting:
            return CommandNews(data, dropped, identity)
        is_over = self._finished is not None or self._error is not None
        is_over = is_over and self._task is not None and self._task.done()
        if not is_over:
            self._news.clear()
            return CommandNews(data, dropped, identity)
        return CommandNews(data, dropped, identity, self._finished, self._error)

    async def write(self, data: bytes) -> int:
        """Write to the command; return how many bytes it took.

        Raises:
            ExecutionError: it reads no input any more.
        """
        await self._begun.wait()
        return await self._channel.write(data)

    async def end_input(self) -> None:
        """Close the command's input."""
        await self._begun.wait()
        self._channel.end_input()

    async def stop(self, at_once: bool) -> None:
        """End the command: it is asked to, and killed when its time for that is over; or killed at once."""
        if at_once:
            self._running.end()
        if self._task is not None:
            self._task.cancel()


WORK: Final = "work"
"""The directory of the command in the one that is removed, which also has the line of its owner."""


def _make_home() -> Path:
    """Make a directory that is removed with this process, however it ends.

    Raises:
        OSError: none can be made.
    """
    home, _ = engine_home.make_home()
    (home / WORK).mkdir(0o700)
    start_watch(home)
    return home


def _remove(home: Path) -> None:
    """Remove a directory in which no process works any more, also what its owner may not write to."""
    for folder, names, _ in os.walk(home):  # from above: each directory is opened before it is entered
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(home, ignore_errors=True)
