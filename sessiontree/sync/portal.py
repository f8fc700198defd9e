"""The portal of this process: one loop thread for all sync trees, from the first opened to the last closed.

Every open tree and runtime holds a lease. Every call counts as well while it lasts, so that no call is ever
left waiting on a loop that has ended under it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as NotInTime
from typing import Any

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.sync.interrupts import CallFuture
from sessiontree.sync.loop_thread import LoopThread

EXIT_S = 30.0
"""How long the end of the interpreter waits for one open tree to close."""


class Lease:
    """The share one open tree or runtime has in the loop."""

    def __init__(self, thread: LoopThread, close: Callable[[], Any]) -> None:
        """Bind the loop; ``close`` is what closes the owner there if the interpreter ends first."""
        self.thread = thread
        self.close = close
        self.pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that holds the lease."""
        return self.pid != os.getpid()

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> CallFuture[Any]:
        """Have a function called on the loop.

        Raises:
            SessionTreeError: the loop has ended.
        """
        return self.thread.submit(function, *given, **named)


class Portal:
    """Starts and ends the loop thread by what holds it."""

    def __init__(self) -> None:
        """Begin without a thread."""
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._leases: dict[Lease, None] = {}
        self._calls = 0

    def lease(self, close: Callable[[], Any]) -> Lease:
        """Return a new lease, starting the thread for the first.

        Raises:
            ConfigError: called on the loop itself.
        """
        self.check_thread()
        with self._lock:
            if self._thread is not None and not self._thread.is_running:
                self._thread.stop()
                self._thread = None
            if self._thread is None:
                self._thread = LoopThread()
            lease = Lease(self._thread, close)
            self._leases[lease] = None
        self.exit_first()
        return lease

    def exit_first(self) -> None:
        """Have the interpreter's end close what is open before what was loaded so far ends itself."""
        atexit.unregister(self.at_exit)
        atexit.register(self.at_exit)

    def release(self, lease: Lease) -> None:
        """Give a lease back; giving it back again is harmless."""
        with self._lock:
            self._leases.pop(lease, None)
            self._end_if_idle()

    @contextlib.contextmanager
    def in_use(self, lease: Lease) -> Iterator[None]:
        """Keep the loop from ending while a call is on its way.

        Raises:
            ConfigError: called on the loop itself, or in a process forked from the lease's.
            SessionTreeError: the lease was given back.
        """
        if lease.is_forked:
            raise ConfigError(
                "this process was forked from the one that opened the tree, and the tree stayed there; "
                "open one here, or start processes with the 'spawn' method"
            )
        self.check_thread()
        with self._lock:
            if lease not in self._leases:
                raise not_open()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._end_if_idle()

    def at_exit(self) -> None:
        """Close what is open, last opened first, and end the thread; the interpreter ends now."""
        for lease in reversed(list(self._leases)):
            with contextlib.suppress(Exception):
                self._close(lease)
            self._leases.pop(lease, None)
        with self._lock:
            self._end_if_idle()

    def _close(self, lease: Lease) -> None:
        closing = lease.submit(lease.close)
        try:
            closing.result(EXIT_S)
        except NotInTime:
            # Its loop is blocked by what runs on it. The thread is a daemon: it ends with the process.
            self._calls += 1

    def after_fork(self) -> None:
        """Begin anew in a forked child: neither the thread nor the trees are here."""
        thread, self._thread = self._thread, None
        self._lock = threading.Lock()
        self._leases = {}
        self._calls = 0
        if thread is not None:
            thread.forget()

    def holds(self, lease: Lease) -> bool:
        """Whether a lease was not given back yet."""
        return lease in self._leases

    def check_thread(self) -> None:
        """Refuse to block the loop by waiting for it.

        Raises:
            ConfigError: called on the loop itself.
        """
        thread = self._thread
        if thread is not None and thread.is_running and threading.current_thread() is thread.thread:
            raise ConfigError(
                "a sync tree was used on its own event loop, by a tool, model or channel that runs there; "
                "the call would wait for itself. Use the handles of ToolContext, or make the tool a plain "
                "function: those run in threads"
            )

    def _end_if_idle(self) -> None:
        if self._thread is not None and not self._leases and not self._calls:
            thread, self._thread = self._thread, None
            thread.stop()


def not_open() -> SessionTreeError:
    """Return what a call gets whose tree is not open."""
    return SessionTreeError("the tree is not open; use `with SessionTree(…) as tree`")


PORTAL = Portal()
"""The only one of this process."""
os.register_at_fork(after_in_child=PORTAL.after_fork)
