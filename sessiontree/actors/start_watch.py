"""Noticing that a process of an actor died while it started: Ray itself does so after a minute, or never.

The launcher notes each process it begins in a file of that actor's own. Until Ray knows a process, nobody but
whoever reads that note sees its end. Not here: what an actor does once it runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sessiontree.actors.engine_home import Process, process_of

LOOK_S: Final = 0.2
UNSEEN_S: Final = 5.0
"""How long a start may be without a process at first; each time nothing comes of it, twice as long."""
MAX_UNSEEN_S: Final = 60.0
MAX_STARTS: Final = 5
"""How often in a row an actor that Ray starts again may fail to start."""
STOP_S: Final = 5.0
RAYS: Final = b"ray::"
"""How the command line of a process begins once Ray knows it."""


class StartWatch:
    """Follows the starts of one actor, one after another.

    Args:
        note: Where the launcher notes the actor's processes, each in a line.
        now: A clock.
    """

    def __init__(self, note: Path, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with the first start."""
        self._note = note
        self._now = now
        self._began = now()
        self._unseen_s = UNSEEN_S
        self._seen = 0
        self._process: Process | None = None
        self._is_rays = False

    @property
    def running(self) -> Process | None:
        """The process that Ray knows by now; None while none does."""
        return self._process if self._is_rays else None

    def begin(self) -> None:
        """Follow a start that was asked for just now."""
        self._began = self._now()
        self._process = None
        self._is_rays = False

    def look(self) -> str | None:
        """Return why the start has failed; None where it may succeed yet, or did."""
        self._read()
        process = self._process
        if process is None:
            return self._missed()
        if process_of(process.pid) == process:
            self._is_rays = self._is_rays or _command(process).startswith(RAYS)
            return None
        if self._is_rays:  # Ray notices, and starts it again where that is asked for
            self.begin()
            return None
        return f"its process ({process.pid}) ended while it started"

    def _read(self) -> None:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = self._note.read_text("ascii").split("\n")[:-1]  # a line that is not whole yet is left
        if len(lines) > self._seen:
            pid, started = lines[-1].split()
            self._seen = len(lines)
            self._process, self._is_rays = Process(int(pid), int(started)), False
            self._unseen_s = UNSEEN_S

    def _missed(self) -> str | None:
        """Return that nothing was started, once that is overdue: it may have died before it was noted."""
        waited_s = self._now() - self._began
        if waited_s < self._unseen_s:
            return None
        self._unseen_s = min(MAX_UNSEEN_S, self._unseen_s * 2)
        return f"no process of it was seen for {waited_s:.0f} s"


class RestartKeeper:
    """Sees, in a thread, that an actor which Ray starts again whenever it ends does start.

    Args:
        watch: Of the actor.
        again: Has Ray start it anew.
        give_up: Told once, when it failed to start too often in a row, how often and why at last.
    """

    def __init__(
        self, watch: StartWatch, again: Callable[[], None], give_up: Callable[[int, str], None]
    ) -> None:
        """Begin."""
        self._watch = watch
        self._again = again
        self._give_up = give_up
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._live, name="sessiontree-restarts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; from any thread. It asks Ray for nothing once this returns."""
        with self._lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_S)

    def _live(self) -> None:
        failures = 0
        try:
            while not self._rest():
                reason = self._watch.look()
                if self._watch.running is not None:
                    failures = 0
                elif reason is not None:
                    failures += 1
                    if failures >= MAX_STARTS:
                        self._give_up(failures, reason)
                        return
                    self._watch.begin()
                    self._again()
        finally:
            with self._lock:
                os.close(self._bell)
                self._bell = -1

    def _rest(self) -> bool:
        """Wait a moment, or for the end of a process that runs; whether it is time to end."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        pidfd, wait_ms = -1, LOOK_S * 1000
        running = self._watch.running
        if running is not None:
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(running.pid)
                if process_of(running.pid) == running:
                    poll.register(pidfd, select.POLLIN)
                    wait_ms = -1
        try:
            return any(descriptor == self._bell for descriptor, _ in poll.poll(wait_ms))
        finally:
            if pidfd >= 0:
                os.close(pidfd)


def _command(process: Process) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/cmdline").read_bytes()
    return b""
