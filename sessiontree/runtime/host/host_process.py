"""A host's own process: what still runs in it, how long it is blocked, what it reads, and when it must end.

Not here: anything of an engine; the host's shell starts this process and reports for it.
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

from sessiontree.contracts.tools.own_program import list_kept_processes
from sessiontree.sandbox.launcher import adopt_orphans
from sessiontree.sandbox.process_tree import (
    ProcessIdentity,
    end_below,
    find_ancestors,
    find_living_below,
    find_process_identity,
    open_children_list,
)

LOOK_EVERY_S = 0.25
PING_S = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_THREADS = 32
OWN_THREADS = ("tool_", "Dummy-", "AsyncIO Thread", "asyncio_", "ray")
"""Prefixes of the names of threads that the process itself starts, including the engine's."""
GONE = 70
"""Exit code of a host that ended itself."""
LEFTOVERS_S = 2.0
"""Most seconds that ending a session's leftovers delays its host; the rest ends with the host."""
ANY_KIND_OF_CHILD = 0x40000000
"""``__WALL`` of wait(2): includes children that were started by a bare ``clone``."""
OWN_HELPERS = (
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
)
"""Where the interpreter keeps the helper processes that it starts: module, object, attribute."""


class CountingExecutor(ThreadPoolExecutor):
    """A thread pool for blocking calls that counts those that run."""

    def __init__(self) -> None:
        super().__init__(MAX_THREADS, thread_name_prefix="tool")
        self._count = threading.Lock()
        self.busy = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in a thread."""
        future = super().submit(fn, *args, **kwargs)
        with self._count:
            self.busy += 1
        future.add_done_callback(self._on_ended)
        return future

    def _on_ended(self, future: Future[Any]) -> None:
        """Count a finished call, including one that was cancelled before it began."""
        with self._count:
            self.busy -= 1


class OwnProcess:
    """One host's process.

    Args:
        supervisor_pid: The process to end with; None if it is on another machine.
        most_bytes: Most memory that the process may hold.
        last_words: Called from a thread, shortly before the process ends, with the reason.
        reaper: The ancestor that adopts orphans of this process; 0 = none does.
        is_abandoned: Whether the supervisor seems to be gone; asked of a process on another machine, which
            then ends.
    """

    def __init__(
        self,
        supervisor_pid: int | None,
        most_bytes: int,
        last_words: Callable[[str], None],
        reaper: int = 0,
        is_abandoned: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the watching thread; call this on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._executor = CountingExecutor()
        self._loop.set_default_executor(self._executor)
        self._most_bytes = most_bytes
        self._last_words = last_words
        self._is_abandoned = is_abandoned
        self._asked_at: float | None = None
        above = find_ancestors(os.getpid())
        way = [process.pid for process in above]
        self.reaper = reaper if reaper in way[1:] else 0
        self._root = self.reaper or os.getpid()
        self._line = set(above[: way.index(self._root)])
        self._children = open_children_list(self.reaper) if self.reaper else None
        """Descriptor of the list of the reaper's children."""
        self._alone = self._list()
        """The children of the reaper while nothing is left behind."""
        self._own: set[ProcessIdentity] = set()
        self._has_ended_alone = False
        """Whether nothing else ran below the root when the last session ended, and none has begun since."""
        # Before the first session: if the supervisor has ended, opening it fails and this host ends too.
        self._supervisor = None if supervisor_pid is None else os.pidfd_open(supervisor_pid)
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        # This includes the watching thread: a host that waits for its first session is not busy.
        self._known = set(threading.enumerate())

    def is_busy(self) -> bool:
        """Whether threads of an earlier session still run here."""
        if self._executor.busy:
            return True
        strangers = set(threading.enumerate()) - self._known
        return any(not thread.name.startswith(OWN_THREADS) for thread in strangers)

    def begin(self) -> None:
        """Begin a session: all threads and processes that run now belong to the process itself."""
        self._known = set(threading.enumerate())
        has_company = not self._has_ended_alone and self._has_company()
        self._has_ended_alone = False
        self._own = set(find_living_below(self._root, self._line)) if has_company else set()

    def end_leftovers(self, ending: Collection[ProcessIdentity] = ()) -> int:
        """End every process that was started since the session began; return how many there were.

        The interpreter's helpers are kept, and processes in ``ending`` are not counted. No child is reaped
        here, because a tool may wait for it.
        """
        self._has_ended_alone = not self._has_company()
        if self._has_ended_alone:
            return 0
        spared = {*self._line, *self._own, *_list_helpers(), *ending}
        return end_below(self._root, spared, LEFTOVERS_S) if find_living_below(self._root, spared) else 0

    def _has_company(self) -> bool:
        """Whether any other process may run below the root; fast if none does."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | ANY_KIND_OF_CHILD)
            return True
        try:
            return self._list() != self._alone
        except OSError:  # the reaper has ended, so nobody knows
            return True

    def _list(self) -> bytes:
        """Return the reaper's children, as the kernel lists them; the list is cut after some hundreds."""
        return b"" if self._children is None else os.pread(self._children, 4096, 0)

    async def lag_s(self) -> float:
        """Return for how many seconds the process's loop has been blocked; call it from another loop."""
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._on_heard)
            await asyncio.sleep(PING_S)
        return 0.0 if self._asked_at is None else time.monotonic() - asked_at

    def _on_heard(self) -> None:
        self._asked_at = None

    def _watch(self) -> None:
        poll = select.poll()
        if self._supervisor is not None:
            poll.register(self._supervisor, select.POLLIN)
        while True:
            if poll.poll(LOOK_EVERY_S * 1000) or self._is_abandoned():
                self._end()
            held = measure_resident_bytes()
            if held > self._most_bytes:
                with contextlib.suppress(Exception):  # the process ends even if the reason can't be reported
                    self._last_words(
                        f"its process held {held:,} bytes of memory; a host may hold {self._most_bytes:,}"
                    )
                self._end()

    def _end(self) -> NoReturn:
        """End the process; without a reaper, first end the processes that were started here."""
        with contextlib.suppress(Exception):  # the process ends even if others can't be ended
            if not self.reaper:
                adopt_orphans()  # orphans appear while parents are killed before their children
                end_below(os.getpid())
        os._exit(GONE)


def _list_helpers() -> Iterator[ProcessIdentity]:
    """Yield the helper processes of the interpreter, and those that tools keep."""
    pids = [
        getattr(getattr(sys.modules.get(module), name, None), attribute, None)
        for module, name, attribute in OWN_HELPERS
    ]
    for pid in (*pids, *list_kept_processes()):
        process = find_process_identity(pid) if isinstance(pid, int) else None
        if process is not None:
            yield process


def measure_resident_bytes() -> int:
    """Return the memory that only this process holds, in bytes; shared memory does not count."""
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES


class UnseenPlaceError(Exception):
    """A directory that a session needs can't be read by this process."""


def check_seen(*directories: str) -> None:
    """Open directories for reading: only that meets every rule of the kernel, Landlock ignores ``access``.

    Raises:
        UnseenPlaceError: one may not be read here. One that is missing is missing for every process.
    """
    for directory in directories:
        try:
            os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except PermissionError as error:
            raise UnseenPlaceError(f"this process can't read {directory!r}: {error.strerror}") from error
        except OSError:
            continue
