"""The private directory of a private Ray, and ending what a dead owner left of it.

Only the standard library is used and nothing of this package: a watcher runs this very file by its path, in
an interpreter of its own. It waits for the death of the owner, ends what is left of its Ray, and removes the
directory, so that even SIGKILL of a program leaves nothing behind. What a dead watcher left is swept by the
next start.

Who belongs to a directory: a process of this user that holds one of its log files open for writing, or that
carries the path of its mark together with the id of a raylet in its environment; and every descendant of
such a process. Ray gives its processes both; nobody else gets them. Linux only: ``/proc`` and pidfds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PREFIX = "sessiontree-"
RAY_FOLDER = "r"
"""Ray opens its folder to everybody (mode 0777); inside a private one that opens nothing."""
SERVERS = frozenset({"raylet", "gcs_server"})
"""Programs that start what a Ray is asked for, or below which that is."""
MARK = "mark"
OWNER = "owner"
MAX_PATH_BYTES = 40
"""So long may a directory's path be: what a socket's 107 leave beside Ray's names for session and socket."""
GRACE_S = 3.0
"""How long processes may take to end by themselves before they are killed."""
KILL_S = 5.0
"""How long killed processes may take to be gone."""
YOUNG_S = 60.0
"""For how long a directory without an owner may be one that is just being made."""
POLL_S = 0.05


class Process(NamedTuple):
    """One process: its id alone may be given to another one later, together with its start it can't."""

    pid: int
    started: int


def process_of(pid: int) -> Process | None:
    """Return a living process by its id; None when there is none, or it only waits to be collected."""
    fields = _status(pid)
    if fields is None or fields[0] in {"Z", "X"}:
        return None
    return Process(pid, int(fields[19]))


def _status(pid: int) -> list[str] | None:
    """Return the fields of a process's ``stat`` that follow its name: state, parent, group and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return None


def _namespace() -> str:
    """Return in which world of process ids this process lives."""
    return str(Path("/proc/self/ns/pid").readlink())


def make_home() -> tuple[Path, int]:
    """Create a private directory, mode 0700, owned by this process.

    Returns:
        The directory, and the descriptor that holds its lock for as long as the process lives.

    Raises:
        OSError: no temporary directory can be written, or the path of each is too long for sockets.
    """
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
    lock = os.open(home / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    me = process_of(os.getpid())
    if me is None:
        raise OSError("/proc does not show this process; mount it")
    os.write(lock, f"{me.pid} {me.started} {_namespace()}\n".encode())
    return home, lock


def _short_folder() -> Path:
    folders = _folders()
    for folder in folders:
        if len(os.fsencode(folder)) + len(f"/{PREFIX}12345678") <= MAX_PATH_BYTES:
            return folder
    tried = ", ".join(map(str, folders)) or "none that can be written"
    raise OSError(f"temporary directories tried: {tried}; set TMPDIR to one with a path under 20 bytes")


def _folders() -> list[Path]:
    """Return where private directories may lie, best first."""
    folders = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))  # noqa: S108 - mkdtemp makes it safe
    return [folder for folder in folders if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)]


def sweep() -> list[Path]:
    """End and remove what dead owners left; returns the directories that were removed."""
    found = [path for folder in _folders() for path in folder.glob(f"{PREFIX}*") if _is_home(path)]
    return [home for home in found if clear(home, grace_s=0.0)]


def _is_home(path: Path) -> bool:
    """Whether a path is a directory of this user that nobody else could fill."""
    try:
        status = path.lstat()
    except OSError:
        return False
    mode = status.st_mode
    return stat.S_ISDIR(mode) and stat.S_IMODE(mode) == 0o700 and status.st_uid == os.getuid()


def clear(home: Path, grace_s: float = GRACE_S) -> bool:
    """End what belongs to a directory, and remove it, if its owner is dead; whether it is gone now."""
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another one may be clearing it
        if owner_lives(home):
            return False
        end_processes(home, grace_s)
        shutil.rmtree(home, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(folder)
    return not home.exists()


def owner_lives(home: Path) -> bool:
    """Whether the process that made a directory still lives.

    Its id and start say so where process ids mean the same to both; elsewhere (a container that shares the
    temporary directory) the lock does, which a process that it forked may hold on to.
    """
    try:
        lock = os.open(home / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return _is_young(home)
    try:
        words = os.read(lock, 200).decode("ascii", "replace").split()
        if len(words) != 3 or not (words[0].isdecimal() and words[1].isdecimal()):
            return _is_young(home)
        if words[2] == _namespace():
            owner = Process(int(words[0]), int(words[1]))
            return process_of(owner.pid) == owner
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _is_young(home: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - home.lstat().st_mtime < YOUNG_S
    return False


def end_processes(home: Path, grace_s: float = GRACE_S, known: set[Process] | None = None) -> bool:
    """End every process that belongs to a directory; whether all are gone.

    They may end by themselves at first, for Ray's workers end what they started. Descendants are noted from
    the beginning: one whose parents die before it is still known.

    Args:
        home: The private directory.
        grace_s: How long they may take to end by themselves.
        known: Processes noted earlier, whatever they show now.
    """
    began = time.monotonic()
    known = processes_of(home, _living(known or set()))
    while known:
        passed_s = time.monotonic() - began
        if passed_s > grace_s + KILL_S:
            return False
        if passed_s >= grace_s:
            for process in known:
                _kill(process)
        select.select([], [], [], POLL_S)
        known = processes_of(home, _living(known))
    return True


def _living(processes: set[Process]) -> set[Process]:
    """Return those that still run: their ids may belong to others by now."""
    return {process for process in processes if process_of(process.pid) == process}


def _kill(process: Process) -> None:
    """Kill exactly this process: a pidfd stays its own whatever happens to the number."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(process.pid)
        try:
            if process_of(process.pid) == process:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def processes_of(home: Path, known: set[Process] | None = None) -> set[Process]:
    """Return the living processes that belong to a directory, and their descendants; never the caller.

    Args:
        home: The private directory.
        known: Processes known to belong to it, whatever they show now.
    """
    return with_descendants(
        known or set(),
        lambda pid: _writes_logs(pid, home / RAY_FOLDER) or _carries(pid, home / MARK),
    )


def log_writers(ray_folder: Path) -> set[Process]:
    """Return the processes that write Ray's logs beneath a folder, and their descendants."""
    return with_descendants(set(), lambda pid: _writes_logs(pid, ray_folder))


def with_descendants(known: set[Process], belongs: Callable[[int], bool]) -> set[Process]:
    """Return the living processes among known ones and those that belong, and their descendants.

    Never the caller.
    """
    children: dict[int, list[int]] = {}
    pids = [process.pid for process in known]
    for pid in _own_pids():
        fields = _status(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
            if belongs(pid):
                pids.append(pid)
    found: set[Process] = set()
    while pids:
        pid = pids.pop()
        process = process_of(pid)
        if process is not None and process not in found and pid != os.getpid():
            found.add(process)
            pids.extend(children.get(pid, ()))
    return found


def is_server(pid: int) -> bool:
    """Whether a process is a server of some Ray, by its name or by its program, which it can't change."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").rstrip("\n") in SERVERS:
            return True
        return Path(f"/proc/{pid}/exe").readlink().name in SERVERS
    return False


def _own_pids() -> Iterator[int]:
    """Yield the ids of this user's other processes."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdecimal()
                and int(entry.name) != os.getpid()
                and entry.stat().st_uid == os.getuid()
            ):
                yield int(entry.name)


def _carries(pid: int, mark: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"RAY_AUTH_TOKEN_PATH=" + os.fsencode(mark) in words and any(
        word.startswith(b"RAY_RAYLET_PID=") for word in words
    )


def _writes_logs(pid: int, ray_folder: Path) -> bool:
    """Whether a process holds a log file of a Ray session beneath a folder open for writing."""
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if (
                    target.startswith(f"{ray_folder}/")
                    and "/logs/" in target
                    and _is_writable(pid, link.name)
                ):
                    return True
    return False


def _is_writable(pid: int, descriptor: str) -> bool:
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text("ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def watch(home: Path, owner: Process) -> None:
    """Wait for the owner's death, then clear its directory."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(owner.pid)
        if process_of(owner.pid) == owner:
            select.select([pidfd], [], [])
        os.close(pidfd)
    clear(home)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), Process(int(sys.argv[2]), int(sys.argv[3])))
