"""What a command's process is connected to besides its output: an input or a terminal, and a reader of bytes.

The terminal is made inside the sandbox, by the launcher, in the sandbox's own file system of terminals; its
other end arrives here with the report of the start. So the command sees a terminal of its own, and none of
this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.jobs import WindowSize
from sessiontree.sandbox.process_tree import ProcessIdentity, find_process_identity

WRITE_WITHIN_S: Final = 5.0
"""How long a command may take to accept what is written to it, in seconds."""


class CommandChannel:
    """Connects one command; use it once.

    Args:
        window: Size of its terminal; None = it has none.
        takes_input: Whether it has an input without a terminal.
        on_bytes: Called with output as it arrives.
        on_start: Called once its outer process runs.
    """

    def __init__(
        self,
        *,
        window: WindowSize | None = None,
        takes_input: bool = False,
        on_bytes: Callable[[bytes], None] | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        self.window = window
        self.wants_input = takes_input and window is None
        """Whether it has an input without a terminal."""
        self._on_bytes = on_bytes
        self._on_start = on_start
        self.identity: ProcessIdentity | None = None
        """The outer process, once it was started."""
        self.place = ""
        """On which node it runs, and in which directory; empty = on this machine."""
        self.is_lost = False
        """Whether its node was lost while it ran."""
        self.leave_turn: Callable[[], None] | None = None
        """Gives the command's turn back early, once the command has one."""
        self._input = -1
        """Where input is written; -1 = nowhere, now."""
        self._owns_input = False
        self._attached = asyncio.Event()
        """Set once its terminal has arrived, or will not."""
        self._writing = asyncio.Lock()

    @property
    def takes_input(self) -> bool:
        """Whether something can be written, maybe once its terminal has arrived."""
        return self._input >= 0 or (self.window is not None and not self._attached.is_set())

    def open_input(self) -> int | None:
        """Return the end of a pipe that becomes the command's input, to be closed by the caller, or None."""
        if not self.wants_input:
            return None
        read, self._input = os.pipe()
        os.set_blocking(self._input, False)
        self._owns_input = True
        return read

    def started(self, pid: int) -> None:
        """Note the outer process."""
        self.note_start(find_process_identity(pid))

    def note_start(self, identity: ProcessIdentity | None) -> None:
        """Note the outer process, which may be one of another machine."""
        self.identity = identity
        if self._on_start is not None:
            self._on_start()

    def attach_terminal(self, descriptor: int) -> None:
        """Write to this descriptor from now on; its owner closes it after :meth:`close`."""
        self._input = descriptor
        self._attached.set()

    def take(self, data: bytes) -> None:
        """Take output."""
        if self._on_bytes is not None and data:
            self._on_bytes(data)

    async def write(self, data: bytes) -> int:
        """Write bytes, and return how many were accepted before the time for that was over.

        Raises:
            ExecutionError: the input is closed.
        """
        written = 0
        # Two writers would mix their pieces, since each may have to wait in the middle.
        async with self._writing:
            if self.window is not None:
                await self._attached.wait()
            deadline = asyncio.get_running_loop().time() + WRITE_WITHIN_S
            while written < len(data):
                if self._input < 0:
                    raise ExecutionError("the command's input is closed")
                try:
                    written += os.write(self._input, data[written : written + 4096])
                except BlockingIOError:
                    if not await self._may_write(deadline):
                        break
                except OSError as error:
                    raise ExecutionError(f"the command does not read its input: {error.strerror}") from error
        return written

    async def _may_write(self, deadline: float) -> bool:
        """Wait until the input accepts bytes again; return False if that takes too long."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        descriptor = self._input

        def note() -> None:
            loop.remove_writer(descriptor)
            ready.set_result(None)

        loop.add_writer(descriptor, note)
        try:
            done, _ = await asyncio.wait((ready,), timeout=max(0.0, deadline - loop.time()))
        finally:
            # Closing the input has already removed the writer; by now another pipe may have the number, and
            # a writer of its own.
            if self._input == descriptor:
                loop.remove_writer(descriptor)
        # The input may have been closed meanwhile, and its number given to another file.
        return bool(done) and self._input == descriptor

    def end_input(self) -> None:
        """Close the input: the command reads its end. A terminal has no such end; ^D is written to it."""
        if self._owns_input:
            self.close()

    def close(self) -> None:
        """Write no more."""
        # Wakes a writer that waits for a terminal which never came; it then finds the input closed.
        self._attached.set()
        descriptor, self._input = self._input, -1
        if descriptor >= 0:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_writer(descriptor)
            if self._owns_input:
                os.close(descriptor)
