"""■ interrupts the turn that a cell waits for, and neither the kernel nor the tree.

An interrupt of a cell cancels its wait for a reply; so does a time limit of the program. What ends the cell
tells them apart: an interrupted cell ends with an interrupt. A reply whose wait ended with it loses its turn.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any, Final

from sessiontree.api.tree.pending_reply import ON_LEFT, PendingReply
from sessiontree.contracts.errors import SessionTreeError

AFTER_S: Final = 2.0
"""How long after an interrupted cell a wait may still end because of it, on the loop of the sync trees."""
REASON: Final = "interrupted in the notebook"


class CellInterrupts:
    """The replies that a cell left, until its end says why."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: list[tuple[PendingReply, asyncio.AbstractEventLoop]] = []
        self._until_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, shell: Any) -> None:
        """Hear the ends of a shell's cells."""
        if self.hear not in ON_LEFT:
            ON_LEFT.append(self.hear)
        shell.events.register("post_run_cell", self.end_cell)

    def hear(self, reply: PendingReply) -> None:
        """Take a reply that nobody waits for any longer; on its loop."""
        left = (reply, asyncio.get_running_loop())
        # A reply is heard on the loop of its tree, and the end of a cell on the kernel's thread.
        with self._lock:
            is_late = time.monotonic() < self._until_s
            # On the loop of the sync trees a wait can end after its cell did: the thread sees the interrupt
            # first.
            if not is_late:
                self._left.append(left)
        if is_late:
            self._begin(reply)

    def end_cell(self, result: Any) -> None:
        """Interrupt the turns whose replies the cell waited for, if it was interrupted."""
        error = None if result is None else result.error_in_exec
        is_interrupted = result is None or isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
        with self._lock:
            left, self._left = self._left, []
            self._until_s = time.monotonic() + AFTER_S if is_interrupted else 0.0
        for reply, loop in left if is_interrupted else ():
            with suppress(RuntimeError):  # the loop is closed, and the tree with it
                loop.call_soon_threadsafe(self._begin, reply)

    def _begin(self, reply: PendingReply) -> None:
        task = asyncio.get_running_loop().create_task(_interrupt(reply))
        # A loop keeps only a weak reference to a task; without this one it could be collected before it has
        # interrupted.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _interrupt(reply: PendingReply) -> None:
    with suppress(SessionTreeError):  # the session or its tree has ended meanwhile
        await reply.interrupt(REASON)


INTERRUPTS: Final = CellInterrupts()
"""The only one of this process."""
