"""Noticing that a process of an actor died while it started: Ray itself does so after a minute, or never.

The raylet starts an actor's process with the path of a file among its words, and the launcher writes that
process's id there. Until Ray knows the process, only those two tell of its end. Not here: what an actor does
once it runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from weakref import WeakSet

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.sandbox.process_tree import ProcessIdentity, children, process_of

LOOK_S: Final = 0.1
UNSEEN_S: Final = 1.0
"""How long a start may be without a process in a Ray whose start-up is ours to configure."""
JOINED_UNSEEN_S: Final = 10.0
"""The same where others decide how many processes start at a time, or Ray itself has just begun."""
MAX_UNSEEN_S: Final = 60.0
MAX_STARTS: Final = 5
"""How often in a row an actor that Ray starts again may fail to start."""
STOP_S: Final = 5.0
MOST_TOLD: Final = 20
"""How many failed starts are listed at most, the most recent ones."""
MOST_TOLD_BYTES: Final = 20_000
NOTE: Final = "starts-"
"""How the name of a file begins in which the starts of one actor are noted."""
_RAYS, _IDLE = b"ray::", b"ray::IDLE"
"""How Ray names a process: at first before it knows it, then by what the actor is."""


class StartPace:
    """How long a start may be without a process before it counts as failed, for all that one program asks.

    Many starts at once take longer each, so each may; and each time nothing comes of one, all may take twice
    as long, until one comes to something: a busy machine is not to be kept busy with starting again.

    Args:
        unseen_s: How long a single one may.
        first_unseen_s: The same until one has come to something.
    """

    def __init__(self, unseen_s: float, first_unseen_s: float | None = None) -> None:
        self._usual_s = unseen_s
        self._unseen_s = unseen_s if first_unseen_s is None else first_unseen_s
        self._unseen: WeakSet[StartWatch] = WeakSet()

    def limit_s(self) -> float:
        """Return how long a start may be without a process now."""
        return min(MAX_UNSEEN_S, self._unseen_s * max(1, len(self._unseen)))

    def begun(self, watch: StartWatch) -> None:
        """Count a start that was asked for."""
        self._unseen.add(watch)

    def seen(self, watch: StartWatch) -> None:
        """Count one no more that has a process."""
        if watch in self._unseen:
            self._unseen.discard(watch)
            self._unseen_s = self._usual_s

    def missed(self, watch: StartWatch) -> None:
        """Count one no more that never had one."""
        self._unseen.discard(watch)
        self._unseen_s = min(MAX_UNSEEN_S, self._unseen_s * 2)


class StartWatch:
    """Follows the starts of one actor, one after another.

    Args:
        note: File to which the launcher adds a line for each of the actor's processes; its name is unique.
        raylet: Id of the process that starts them; None where it can't be seen.
        pace: How long it may take until there is a process.
        now: A clock.
    """

    def __init__(
        self, note: Path, raylet: int | None, pace: StartPace, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._note = note
        self._raylet = raylet
        self._pace = pace
        self._now = now
        self._began = now()
        pace.begun(self)
        self._read_bytes = 0
        self._others: set[int] = set()
        """Children of the raylet that belong to other actors, or to none."""
        self._process: ProcessIdentity | None = None
        self._is_rays = False

    @property
    def running(self) -> ProcessIdentity | None:
        """The process that Ray knows by now; None while none does."""
        return self._process if self._is_rays else None

    def begin(self) -> None:
        """Follow a start that was asked for just now."""
        self._began = self._now()
        self._pace.begun(self)
        self._process = None
        self._is_rays = False

    def look(self) -> str | None:
        """Return why the start has failed; None where it may succeed yet, or did."""
        process = self._process = self._noted() or self._process or self._seen()
        if process is None:
            return self._missed()
        self._pace.seen(self)
        if process_of(process.pid) == process:
            words = _command(process.pid)
            self._is_rays = self._is_rays or (words.startswith(_RAYS) and not words.startswith(_IDLE))
            return None
        if self._is_rays:  # Ray notices, and starts it again where that is asked for
            self.begin()
            return None
        return f"its process ({process.pid}) ended while it started"

    def _noted(self) -> ProcessIdentity | None:
        """Return the newest process that was noted since the last look."""
        text = b""
        with contextlib.suppress(OSError), self._note.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        if not whole:
            return None
        self._read_bytes += len(whole)
        self._is_rays = False
        pid, started = whole.split()[-2:]
        return ProcessIdentity(int(pid), int(started))

    def _seen(self) -> ProcessIdentity | None:
        """Return the process in which the launcher has not begun yet."""
        if self._raylet is None:
            return None
        found = children(self._raylet)
        self._others.intersection_update(found)
        for pid in found:
            if pid in self._others:
                continue
            words = _command(pid)
            if os.fsencode(self._note.name) in words:
                return process_of(pid)
            if words != _command(self._raylet):  # not in the moment between a fork and what is run then
                self._others.add(pid)
        return None

    def _missed(self) -> str | None:
        """Return that nothing was started, once that is overdue: it may have died before it was seen."""
        waited_s = self._now() - self._began
        if waited_s < self._pace.limit_s():
            return None
        self._pace.missed(self)
        return f"no process of it was seen for {waited_s:.0f} s"


class RestartKeeper:
    """Sees, in a thread, that an actor which Ray starts again whenever it ends does start.

    Args:
        watch: Of the actor.
        again: Asks Ray to start the actor again.
        failed: Told each time, with the reason.
        give_up: Told once, when it failed to start too often in a row, how often and why at last.
    """

    def __init__(
        self,
        watch: StartWatch,
        again: Callable[[], None],
        failed: Callable[[str], None],
        give_up: Callable[[int, str], None],
    ) -> None:
        self._watch = watch
        self._again = again
        self._failed = failed
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
                    self._failed(reason)
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


class FailedStarts:
    """What is told of starts that failed, by whoever watched them, to whoever asks.

    Args:
        path: A file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, reason: str) -> None:
        """Note that an actor did not start; a full disk keeps nobody from starting it again."""
        line = f"{name}: {' '.join(reason.split())}\n".encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    def told(self) -> list[JsonValue]:
        """Return the last failures, oldest first, each as ``name: reason``."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_TOLD_BYTES))
            return list(file.read().decode("utf-8", "replace").splitlines()[-MOST_TOLD:])
        return []


def end_started(directory: Path, within_s: float) -> None:
    """Kill every process that the launcher noted in files of a directory, and wait until they are gone.

    A Ray that was lost ends its actors' processes late, or not at all.
    """
    descriptors: list[int] = []
    for note in directory.glob(f"{NOTE}*"):
        with contextlib.suppress(OSError, ValueError):
            numbers = list(map(int, note.read_bytes().split()))
            noted = map(ProcessIdentity, numbers[::2], numbers[1::2])
            descriptors += [each for process in noted if (each := _killed(process)) is not None]
    deadline = time.monotonic() + within_s
    for descriptor in descriptors:
        select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        os.close(descriptor)


def _killed(process: ProcessIdentity) -> int | None:
    """Kill exactly this process; return a descriptor that is ready once it is gone, None where it was."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        if process_of(process.pid) == process:
            with contextlib.suppress(OSError):  # it ended just now
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return descriptor
        os.close(descriptor)
    return None


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
