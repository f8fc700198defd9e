"""A process that is one host's own: what still runs there, how long it is deaf, and when it must end.

Not here: anything of an engine; the host's shell starts this and answers for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from sessiontree.sandbox.launcher import adopt_orphans
from sessiontree.sandbox.process_tree import (
    ProcessIdentity,
    ancestors,
    children,
    end_below,
    living_below,
    process_of,
)

LOOK_EVERY_S = 0.25
PING_S = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_THREADS = 32
OWN_THREADS = ("tool_", "Dummy-", "AsyncIO Thread", "asyncio_", "ray")
"""How the names of threads begin that the process starts for itself, the engine's among them."""
GONE = 70
"""Exit code of a host that ended itself."""
LEFTOVERS_S = 2.0
"""How long ending what a session left may hold up its host; what is left then ends with the host."""
ANY_KIND_OF_CHILD = 0x40000000
"""``__WALL`` of wait(2): children too that were started by a bare ``clone``."""
OWN_HELPERS = (
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
)
"""Where the interpreter keeps the processes that it starts for itself: module, object, attribute."""


class CountingExecutor(ThreadPoolExecutor):
    """Threads for blocking calls, which knows how many of them are at work."""

    def __init__(self) -> None:
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
        reaper: Process above this one that adopts what is left behind here; 0 = there is none.
    """

    def __init__(
        self,
        supervisor_pid: int | None,
        most_bytes: int,
        last_words: Callable[[str], None],
        reaper: int = 0,
    ) -> None:
        """Begin to watch, from a thread; on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._executor = CountingExecutor()
        self._loop.set_default_executor(self._executor)
        self._most_bytes = most_bytes
        self._last_words = last_words
        self._asked_at: float | None = None
        above = ancestors(os.getpid())
        way = [process.pid for process in above]
        self.reaper = reaper if reaper in way[1:] else 0
        self._root = self.reaper or os.getpid()
        self._line = set(above[: way.index(self._root)])
        self._alone = children(self._root)
        """Who is right below the root while nothing is left behind."""
        self._own: set[ProcessIdentity] = set()
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
        """A session begins: the threads and processes of this moment are the process's own."""
        self._known = set(threading.enumerate())
        self._own = set(living_below(self._root, self._line)) if self._has_company() else set()

    def end_leftovers(self, ending: Collection[ProcessIdentity] = ()) -> int:
        """End every process that was started since the session began; return how many there were.

        What the interpreter started for itself stays, and what ends already is not counted. Nothing is waited
        for here: a tool may do so.
        """
        if not self._has_company():
            return 0
        spared = {*self._line, *self._own, *_helpers(), *ending}
        return end_below(self._root, spared, LEFTOVERS_S) if living_below(self._root, spared) else 0

    def _has_company(self) -> bool:
        """Whether anything may run below the root beside this process; quick where nothing does."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | ANY_KIND_OF_CHILD)
            return True
        return self.reaper != 0 and children(self.reaper) != self._alone

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

    def _end(self) -> NoReturn:
        """End, and, where no reaper does it, first what was started here: nobody else would."""
        with contextlib.suppress(Exception):  # the process ends whatever else can't be ended
            if not self.reaper:
                adopt_orphans()  # while parents are killed before their children
                end_below(os.getpid())
        os._exit(GONE)


def _helpers() -> Iterator[ProcessIdentity]:
    """Yield what the interpreter started for itself."""
    for module, name, attribute in OWN_HELPERS:
        pid = getattr(getattr(sys.modules.get(module), name, None), attribute, None)
        process = process_of(pid) if isinstance(pid, int) else None
        if process is not None:
            yield process


def resident_bytes() -> int:
    """Return the memory this process holds of its own; what is shared with others does not count."""
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES
