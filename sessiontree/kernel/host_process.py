"""A process that is one host's own: what still runs there, how long it is deaf, and when it must end.

Not here: anything of an engine; the host's shell starts this and answers for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from sessiontree.sandbox.descendants import end_descendants

LOOK_EVERY_S = 0.25
PING_S = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_THREADS = 32
OWN_THREADS = ("tool_", "Dummy-", "AsyncIO Thread", "asyncio_", "ray")
"""How the names of threads begin that the process starts for itself, the engine's among them."""
GONE = 70
"""Exit code of a host that ended itself."""


class CountingExecutor(ThreadPoolExecutor):
    """Threads for blocking calls, which knows how many of them are at work."""

    def __init__(self) -> None:
        """Begin without threads."""
        super().__init__(MOST_THREADS, thread_name_prefix="tool")
        self._count = threading.Lock()
        self.busy = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in a thread."""
        future = super().submit(fn, *args, **kwargs)
        with self._count:
            self.busy += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: Future[Any]) -> None:
        """Count one off, also one that was cancelled before it began."""
        with self._count:
            self.busy -= 1


class OwnProcess:
    """One host's process.

    Args:
        supervisor_pid: Process to end with, where it is on this machine.
        most_bytes: Most memory the process may hold.
        last_words: Told, from a thread, why the process is about to end for what its session does.
    """

    def __init__(
        self, supervisor_pid: int | None, most_bytes: int, last_words: Callable[[str], None]
    ) -> None:
        """Begin to watch, from a thread; on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._executor = CountingExecutor()
        self._loop.set_default_executor(self._executor)
        self._most_bytes = most_bytes
        self._last_words = last_words
        self._asked_at: float | None = None
        # Before the first session: a supervisor that is gone already can't be opened, and this host ends too.
        self._supervisor = None if supervisor_pid is None else os.pidfd_open(supervisor_pid)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        # The watch among them: a host that waits for its first session is not busy.
        self._known = set(threading.enumerate())

    def is_busy(self) -> bool:
        """Whether threads run there that no session owns any more."""
        if self._executor.busy:
            return True
        strangers = set(threading.enumerate()) - self._known
        return any(not thread.name.startswith(OWN_THREADS) for thread in strangers)

    def begin(self) -> None:
        """A session begins: the threads of this moment are the process's own."""
        self._known = set(threading.enumerate())

    async def lag_s(self) -> float:
        """Return for how long the process's loop has been deaf; asked from another loop."""
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._heard)
            await asyncio.sleep(PING_S)
        return 0.0 if self._asked_at is None else time.monotonic() - asked_at

    def _heard(self) -> None:
        self._asked_at = None

    def _watch(self) -> None:
        poll = select.poll()
        if self._supervisor is not None:
            poll.register(self._supervisor, select.POLLIN)
        while True:
            if poll.poll(LOOK_EVERY_S * 1000):
                self._end()
            held = resident_bytes()
            if held > self._most_bytes:
                with contextlib.suppress(Exception):  # the process ends whether anybody heard it or not
                    self._last_words(
                        f"its process held {held:,} bytes of memory; a host may hold {self._most_bytes:,}"
                    )
                self._end()

    @staticmethod
    def _end() -> NoReturn:
        """End, and first what was started here: afterwards it would be nobody's, and stay."""
        with contextlib.suppress(Exception):  # the process ends whatever else can't be ended
            end_descendants()
        os._exit(GONE)


def resident_bytes() -> int:
    """Return the memory this process holds of its own; what is shared with others does not count."""
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES
