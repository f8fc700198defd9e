"""The private directory of a private Ray, and ending what a dead owner left in it.

Only the standard library is used and nothing of this package: a watcher runs this very file by its path, in an
interpreter of its own. It waits for the death of the owner, ends what is left of its Ray, and removes the
directory, so that even SIGKILL of a program leaves nothing behind.

Who belongs to a directory: a process of this user that holds one of its log files open for writing, or carries
its token's path together with a raylet's id in its environment; and every descendant of such a process. Ray gives
its processes both; nobody else gets them. Linux only: ``/proc`` and pidfds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PREFIX = "sessiontree-"
RAY_FOLDER = "r"
TOKEN = "token"  # noqa: S105 - a file's name
OWNER = "owner"
MAX_PATH = 40
"""Bytes of the directory's path: what a socket's 107 leave beside Ray's own names for session and socket."""
GRACE_S = 3.0
"""How long processes may take to end by themselves before they are killed."""
KILL_S = 5.0
"""How long killed processes may take to be gone."""
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
    """Return the fields of ``/proc/<pid>/stat`` after the name: state, parent, group, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rsplit(") ", 1)[1].split()
    except OSError:
        return None


def make_home() -> tuple[Path, int]:
    """Create a private directory, mode 0700, locked by this process; returns it and the lock's descriptor.

    Raises:
        OSError: no temporary directory can be written, or the path of each is too long for sockets.
    """
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
    lock = os.open(home / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    me = process_of(os.getpid())
    if me is not None:
        os.write(lock, f"{me.pid} {me.started}\n".encode())
    return home, lock


def _short_folder() -> Path:
    for folder in _folders():
        if len(os.fsencode(folder)) + len(f"/{PREFIX}12345678") <= MAX_PATH:
            return folder
    raise OSError(f"the temporary directories {_folders()} have paths too long for unix sockets")


def _folders() -> list[Path]:
    """Return where private directories may lie, best first."""
    folders = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))  # noqa: S108 - mkdtemp makes it safe
    return [folder for folder in folders if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)]


def sweep() -> list[Path]:
    """End and remove what dead owners left; returns the directories that were removed."""
    found = [path for folder in _folders() for path in folder.glob(f"{PREFIX}*") if _is_ours(path)]
    return [home for home in found if clear(home, grace_s=0.0)]


def _is_ours(home: Path) -> bool:
    try:
        status = home.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and (status.st_mode & 0o170777) == 0o040700


def clear(home: Path, grace_s: float = GRACE_S) -> bool:
    """End what belongs to a directory whose owner is dead, and remove it; False when the owner lives.

    A directory without an owner's line is let be for a minute: somebody may just be making it.
    """
    try:
        lock = os.open(home / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        words = os.read(lock, 100).split()
        if len(words) != 2 or process_of(int(words[0])) == Process(int(words[0]), int(words[1])):
            return False
        end_processes(home, grace_s)
        shutil.rmtree(home, ignore_errors=True)
    except (OSError, ValueError):
        return False
    finally:
        os.close(lock)
    return not home.exists()


def end_processes(home: Path, grace_s: float = GRACE_S) -> bool:
    """End every process that belongs to a directory; whether all are gone.

    They may end by themselves at first. Descendants are noted from the beginning, so that one whose parents die
    before it is still known.
    """
    now = time.monotonic()
    known: set[Process] = set()
    while True:
        known = {process for process in known if process_of(process.pid) == process}
        known |= processes_of(home, known)
        if not known:
            return True
        passed = time.monotonic() - now
        if passed > grace_s + KILL_S:
            return False
        if passed >= grace_s:
            for process in known:
                _kill(process)
        select.select([], [], [], POLL_S)


def _kill(process: Process) -> None:
    """Kill exactly this process: the descriptor stays its own whatever happens to the number."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if process_of(process.pid) == process:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def processes_of(home: Path, known: set[Process] | None = None) -> set[Process]:
    """Return the living processes that belong to a directory, with all their descendants; never the caller."""
    children: dict[int, list[int]] = {}
    roots = [process.pid for process in known or ()]
    for pid in _own_pids():
        fields = _status(pid)
        if fields is None:
            continue
        children.setdefault(int(fields[1]), []).append(pid)
        if _belongs(pid, home):
            roots.append(pid)
    found: set[Process] = set()
    while roots:
        pid = roots.pop()
        process = process_of(pid)
        if process is not None and process not in found and pid != os.getpid():
            found.add(process)
            roots.extend(children.get(pid, ()))
    return found


def _own_pids() -> Iterator[int]:
    own = os.getuid()
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and int(name) != os.getpid() and os.stat(f"/proc/{name}").st_uid == own:
                yield int(name)


def _belongs(pid: int, home: Path) -> bool:
    return _writes_logs(pid, f"{home}/{RAY_FOLDER}/") or _carries(pid, f"{home}/{TOKEN}")


def _carries(pid: int, token: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(f"RAY_AUTH_TOKEN_PATH={token}") in words and any(
        word.startswith(b"RAY_RAYLET_PID=") for word in words
    )


def _writes_logs(pid: int, inside: str) -> bool:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith(inside) and "/logs/" in target and _is_writable(pid, name):
                    return True
    return False


def _is_writable(pid: int, descriptor: str) -> bool:
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text("ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def watch(home: Path, owner: Process) -> None:
    """Wait for the owner's death, then clear its directory."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(owner.pid)
        if process_of(owner.pid) == owner:
            select.select([descriptor], [], [])
        os.close(descriptor)
    clear(home)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), Process(int(sys.argv[2]), int(sys.argv[3])))
