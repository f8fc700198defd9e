"""The start of actors' processes: their confinement, and a watch until they serve."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.runtime.scheduling.settings import COPIES, Settings, list_hidden_places
from sessiontree.sandbox import Jail, Level, build_py_executable, prepare_canaries, probe
from sessiontree.sandbox.process_tree import ProcessIdentity, find_process_identity, list_children

LOOK_S: Final = 0.1
UNSEEN_S: Final = 1.0
"""How long a start may be without a process in a private Ray."""
JOINED_UNSEEN_S: Final = 10.0
"""The same in a joined Ray, which may limit concurrent starts, or if Ray itself has just begun."""
MAX_UNSEEN_S: Final = 60.0
MAX_STARTS: Final = 5
"""How often in a row an actor may fail to start."""
STOP_S: Final = 5.0
MAX_TOLD: Final = 20
"""How many failed starts are listed at most; the most recent ones."""
MAX_TOLD_BYTES: Final = 20_000
NOTE: Final = "starts-"
"""The prefix of the names of files that list the starts of one actor."""
_RAYS, _IDLE = b"ray::", b"ray::IDLE"
"""Ray's names for a process begin with the first; a worker without an actor has the second."""


class StartTimeout:
    """The time limit after which a start without a process counts as failed, for all starts of one program.

    The limit grows with the number of concurrent starts. It doubles each time a start gets no process, until
    one does, so that repeated starts do not overload a busy machine.

    Args:
        unseen_s: The limit of a single start.
        first_unseen_s: The limit until the first start has a process.
    """

    def __init__(self, unseen_s: float, first_unseen_s: float | None = None) -> None:
        self._usual_s = unseen_s
        self._unseen_s = unseen_s if first_unseen_s is None else first_unseen_s
        self._unseen: WeakSet[StartMonitor] = WeakSet()

    def limit_s(self) -> float:
        """Return the current limit."""
        return min(MAX_UNSEEN_S, self._unseen_s * max(1, len(self._unseen)))

    def begun(self, watch: StartMonitor) -> None:
        """Add a start that was requested."""
        self._unseen.add(watch)

    def seen(self, watch: StartMonitor) -> None:
        """Remove a start that has a process."""
        if watch in self._unseen:
            self._unseen.discard(watch)
            self._unseen_s = self._usual_s

    def on_missed(self, watch: StartMonitor) -> None:
        """Remove a start that never had a process."""
        self._unseen.discard(watch)
        self._unseen_s = min(MAX_UNSEEN_S, self._unseen_s * 2)


class StartMonitor:
    """Watches the starts of one actor, one after another.

    Args:
        note: The file to which the launcher adds a line for each process of the actor; its name is unique.
        raylet: The id of the process that starts them; None if it cannot be seen.
        pace: The time limit until there is a process.
        now: A clock.
    """

    def __init__(
        self, note: Path, raylet: int | None, pace: StartTimeout, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._note = note
        self._raylet = raylet
        self._pace = pace
        self._now = now
        self._began = now()
        pace.begun(self)
        self._read_bytes = 0
        self._others: set[int] = set()
        """Children of the raylet that are not processes of this actor."""
        self._process: ProcessIdentity | None = None
        self._is_rays = False

    @property
    def running(self) -> ProcessIdentity | None:
        """The process, once Ray knows it; else None."""
        return self._process if self._is_rays else None

    def begin(self) -> None:
        """Watch a start that was just requested."""
        self._began = self._now()
        self._pace.begun(self)
        self._process = None
        self._is_rays = False

    def look(self) -> str | None:
        """Return why the start failed, or None if it succeeded or may still succeed."""
        process = self._process = self._read_note() or self._process or self._find_process()
        if process is None:
            return self._check_missed()
        self._pace.seen(self)
        if find_process_identity(process.pid) == process:
            words = _command(process.pid)
            self._is_rays = self._is_rays or (words.startswith(_RAYS) and not words.startswith(_IDLE))
            return None
        if self._is_rays:  # Ray notices, and restarts the actor if its options say so
            self.begin()
            return None
        return f"its process ({process.pid}) ended while it started"

    def _read_note(self) -> ProcessIdentity | None:
        """Return the newest process that was noted since the last call."""
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

    def _find_process(self) -> ProcessIdentity | None:
        """Return the process if the launcher has not begun in it yet."""
        if self._raylet is None:
            return None
        found = list_children(self._raylet)
        self._others.intersection_update(found)
        for pid in found:
            if pid in self._others:
                continue
            words = _command(pid)
            if os.fsencode(self._note.name) in words:
                return find_process_identity(pid)
            if words != _command(self._raylet):  # between fork and exec a child still has the raylet's words
                self._others.add(pid)
        return None

    def _check_missed(self) -> str | None:
        """Return that no process was seen, once the limit has passed; it may have died unseen."""
        waited_s = self._now() - self._began
        if waited_s < self._pace.limit_s():
            return None
        self._pace.on_missed(self)
        return f"no process of it was seen for {waited_s:.0f} s"


class ActorRestarter:
    """Restarts, from a thread, an actor whose start failed.

    Args:
        watch: Watches the actor's starts.
        again: Asks Ray to start the actor again.
        failed: Called with the reason after each failed start.
        give_up: Called once after too many failed starts in a row, with their number and the last reason.
    """

    def __init__(
        self,
        watch: StartMonitor,
        again: Callable[[], None],
        failed: Callable[[str], None],
        give_up: Callable[[int, str], None],
    ) -> None:
        self._watch = watch
        self._again = again
        self._failed = failed
        self._give_up = give_up
        self._stop_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sessiontree-restarts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, from any thread. After this returns, Ray is asked for nothing more."""
        with self._lock:
            if self._stop_event >= 0:
                os.eventfd_write(self._stop_event, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        failures = 0
        try:
            while not self._wait():
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
                os.close(self._stop_event)
                self._stop_event = -1

    def _wait(self) -> bool:
        """Wait for ``LOOK_S``, or for the end of a running process; return whether to stop."""
        poll = select.poll()
        poll.register(self._stop_event, select.POLLIN)
        pidfd, wait_ms = -1, LOOK_S * 1000
        running = self._watch.running
        if running is not None:
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(running.pid)
                if find_process_identity(running.pid) == running:
                    poll.register(pidfd, select.POLLIN)
                    wait_ms = -1
        try:
            return any(descriptor == self._stop_event for descriptor, _ in poll.poll(wait_ms))
        finally:
            if pidfd >= 0:
                os.close(pidfd)


class FailedStarts:
    """The list of failed starts, in a file that several processes write and read.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, reason: str) -> None:
        """Add a failed start. A full disk does not prevent the next start."""
        line = f"{name}: {' '.join(reason.split())}\n".encode("utf-8", "replace")
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    def list_reports(self) -> list[JsonValue]:
        """Return the last failures as ``name: reason``, oldest first."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_TOLD_BYTES))
            return list(file.read().decode("utf-8", "replace").splitlines()[-MAX_TOLD:])
        return []


def end_started(directory: Path, within_s: float) -> None:
    """Kill every process that the launcher noted in files of a directory, and wait until they have ended.

    A lost Ray ends its actors' processes late, or not at all.
    """
    descriptors: list[int] = []
    for note in directory.glob(f"{NOTE}*"):
        with contextlib.suppress(OSError, ValueError):
            numbers = list(map(int, note.read_bytes().split()))
            noted = map(ProcessIdentity, numbers[::2], numbers[1::2])
            descriptors += [each for process in noted if (each := _kill(process)) is not None]
    deadline = time.monotonic() + within_s
    for descriptor in descriptors:
        select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        os.close(descriptor)


def _kill(process: ProcessIdentity) -> int | None:
    """Kill exactly this process; return a descriptor that is ready once it has ended, or None if it had."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        if find_process_identity(process.pid) == process:
            with contextlib.suppress(OSError):  # it ended just now
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return descriptor
        os.close(descriptor)
    return None


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def build_runtime_env(
    role: str,
    settings: Settings,
    note: Path,
    *,
    confined: bool = False,
    reaped: bool = False,
    tokens: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """Return the runtime environment of a process.

    Args:
        role: The role of the process, such as ``gateway``.
        settings: The settings of the runtime.
        note: The file for its starts, which no other actor has. Ray gives a new process to any actor with the
            same command line, so the command line must be unique.
        confined: Whether it may write only to Ray's logs.
        reaped: Whether it runs tools. Then a reaper above it ends processes that they leave running, and it
            gets only harmless environment variables and those that the runtime passes on.
        tokens: Files of Ray's tokens on other nodes where it may run; hidden from it like that of this node.
    """
    jail = _build_jail(settings, tokens) if confined else None
    reports = settings.reports if reaped else None
    keep = settings.pass_env if reaped else None
    given = settings.passed if reaped else None
    words = build_py_executable(
        role, settings.scratch, jail, settings.python, reports=reports, note=note, keep=keep, given=given
    )
    return {"py_executable": words}


def note_for(name: str, settings: Settings) -> Path:
    """Return the file for the starts of an actor, with a unique name."""
    return settings.scratch / f"{NOTE}{name}-{secrets.token_hex(8)}"


def open_failed_starts(settings: Settings) -> FailedStarts:
    """Return the list of failed starts."""
    return FailedStarts(settings.scratch / "failed-starts")


def probe_level(settings: Settings) -> Level:
    """Start a confined process as a trial, and return its level. Blocks for some 0.1 s.

    Raises:
        ConfigError: it does not start. A Worker's host would not start either, without a reason.
    """
    return probe(_build_jail(settings), settings.python)


def _build_jail(settings: Settings, tokens: tuple[Path, ...] = ()) -> Jail:
    files = dict.fromkeys((*(() if settings.token_path is None else (settings.token_path,)), *tokens))
    return Jail(
        hidden=(*list_hidden_places(settings.state_dir, settings.memory), *files),
        readable=(settings.program, settings.journal_dir / COPIES),
        writable=(settings.logs_dir,),
        secrets=tuple([("RAY_AUTH_TOKEN", path) for path in files]),
        enforcement=settings.enforcement,
    )


def prepare_victims(settings: Settings, name: str) -> Path:
    """Prepare the files that a host must fail to change before it serves; return their directory."""
    place = Path(tempfile.mkdtemp(prefix=f"victims-{name}-", dir=settings.scratch))
    prepare_canaries(place)
    return place
