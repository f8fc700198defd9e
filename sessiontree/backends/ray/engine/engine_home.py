"""The directory of a private Ray, and how the processes and files of a dead owner are removed.

This module uses only the standard library and nothing of this package, because a watcher runs this file by
its path in another interpreter. The watcher waits for the death of the owner, ends the rest of its Ray, and
removes the directory, so that even SIGKILL of a program leaves nothing behind. If the watcher died too, the
next start does the same.

A process belongs to a directory if it is one of this user that has one of the directory's log files open for
writing, or whose environment holds the path of the directory's mark and the id of a raylet; and so does every
descendant of such a process. Only Ray's processes have these. Linux only: ``/proc`` and pidfds.
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
"""The folder of Ray, which gives it mode 0777; inside a private directory nobody else reaches it."""
SERVERS = frozenset({"raylet", "gcs_server"})
"""The programs of Ray's servers."""
MARK = "mark"
OWNER = "owner"
MAX_PATH_BYTES = 40
"""The longest path of a directory: a socket's path has 107 bytes, and Ray's names need the rest."""
GRACE_S = 3.0
"""How long processes may take to end by themselves before they are killed."""
KILL_S = 5.0
"""How long killed processes may take to end."""
YOUNG_S = 60.0
"""For how long a directory without an owner may belong to a process that is just making it."""
POLL_S = 0.05


class Process(NamedTuple):
    """One process. Its id may be reused, but not the pair of id and start."""

    pid: int
    started: int


def find_process(pid: int) -> Process | None:
    """Return a living process by its id; None if it has ended or is a zombie."""
    fields = _read_status(pid)
    if fields is None or fields[0] in {"Z", "X"}:
        return None
    return Process(pid, int(fields[19]))


def _read_status(pid: int) -> list[str] | None:
    """Return the fields of a process's ``stat`` after its name: state, parent, group and so on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rsplit(") ", 1)[1].split()
    except (OSError, IndexError):
        return None


def _read_namespace() -> str:
    """Return the PID namespace of this process."""
    return str(Path("/proc/self/ns/pid").readlink())


def make_home() -> tuple[Path, int]:
    """Create a private directory, mode 0700, owned by this process.

    Returns:
        The directory, and the descriptor that holds its lock while the process lives.

    Raises:
        OSError: no temporary directory is writable, or the path of each is too long for sockets.
    """
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_choose_short_folder()))
    return home, claim(home)


def claim(home: Path) -> int:
    """Make this process the owner of a directory; return the descriptor that holds its lock.

    Raises:
        OSError: it has an owner, or can't be written.
    """
    lock = os.open(home / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    me = find_process(os.getpid())
    if me is None:
        raise OSError("/proc does not show this process; mount it")
    os.write(lock, f"{me.pid} {me.started} {_read_namespace()}\n".encode())
    return lock


def watch_command(home: Path) -> list[str]:
    """Return the command that removes a directory of this process, and what runs for it, if it is killed."""
    me = find_process(os.getpid())
    assert me is not None, "a running process is in /proc"  # noqa: S101 - it calls this
    return [sys.executable, "-I", "-S", __file__, str(home), str(me.pid), str(me.started)]


def _choose_short_folder() -> Path:
    folders = _list_folders()
    for folder in folders:
        if len(os.fsencode(folder)) + len(f"/{PREFIX}12345678") <= MAX_PATH_BYTES:
            return folder
    tried = ", ".join(map(str, folders)) or "none is writable"
    raise OSError(f"temporary directories tried: {tried}; set TMPDIR to one with a path under 20 bytes")


def _list_folders() -> list[Path]:
    """Return the folders that may hold private directories, best first."""
    folders = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))  # noqa: S108 - mkdtemp makes it safe
    return [folder for folder in folders if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)]


def sweep() -> list[Path]:
    """End the processes of dead owners and remove their directories; return those removed."""
    found = [path for folder in _list_folders() for path in folder.glob(f"{PREFIX}*") if _is_home(path)]
    return [home for home in found if clear(home, grace_s=0.0)]


def _is_home(path: Path) -> bool:
    """Whether a path is a directory of this user in which nobody else can write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    mode = status.st_mode
    return stat.S_ISDIR(mode) and stat.S_IMODE(mode) == 0o700 and status.st_uid == os.getuid()


def clear(home: Path, grace_s: float = GRACE_S) -> bool:
    """If the owner of a directory is dead, end its processes and remove it; return whether it is gone."""
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process may be clearing it
        if is_owner_alive(home):
            return False
        if _read_owner(home) is None:
            return _remove_unfinished(home)
        end_processes(home, grace_s)
        shutil.rmtree(home, ignore_errors=True)
    except OSError:
        return False
    finally:
        os.close(folder)
    return not home.exists()


def is_owner_alive(home: Path) -> bool:
    """Whether the process that made a directory still lives, or the directory is new and has no owner's line.

    In the same PID namespace its id and start decide. In another one, such as that of a container that shares
    the temporary directory, the lock decides; a process that the owner forked may hold it too.
    """
    words = _read_owner(home)
    if words is None:
        return _is_young(home)
    if words[2] == _read_namespace():
        owner = Process(int(words[0]), int(words[1]))
        return find_process(owner.pid) == owner
    try:
        lock = os.open(home / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return _is_young(home)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _read_owner(home: Path) -> list[str] | None:
    """Return the owner's line: id, start and PID namespace; None = it is missing or incomplete."""
    try:
        file = os.open(home / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        words = os.read(file, 200).decode("ascii", "replace").split()
    except OSError:  # such as a directory
        return None
    finally:
        os.close(file)
    return words if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal() else None


def _remove_unfinished(home: Path) -> bool:
    """Remove a directory whose owner died before it wrote its line; others of that name are not ours."""
    with contextlib.suppress(OSError):
        owner = home / OWNER
        if [*home.iterdir()] == [owner] and stat.S_ISREG(owner.lstat().st_mode) and not owner.stat().st_size:
            owner.unlink()
        home.rmdir()
        return True
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
    known = find_processes(home, _select_living(known or set()))
    while known:
        passed_s = time.monotonic() - began
        if passed_s > grace_s + KILL_S:
            return False
        if passed_s >= grace_s:
            for process in known:
                _kill(process)
        select.select([], [], [], POLL_S)
        known = find_processes(home, _select_living(known))
    return True


def _select_living(processes: set[Process]) -> set[Process]:
    """Return the processes that still run."""
    return {process for process in processes if find_process(process.pid) == process}


def _kill(process: Process) -> None:
    """Kill exactly this process, by a pidfd, because its id may be reused."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(process.pid)
        try:
            if find_process(process.pid) == process:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def find_processes(home: Path, known: set[Process] | None = None) -> set[Process]:
    """Return the living processes that belong to a directory, and their descendants; never the caller.

    Args:
        home: The private directory.
        known: Processes that belong to it even if nothing shows it any more.
    """
    return add_descendants(
        known or set(),
        lambda pid: _is_writing_logs(pid, home / RAY_FOLDER) or _has_mark(pid, home / MARK),
    )


def log_writers(ray_folder: Path) -> set[Process]:
    """Return the processes that write Ray's logs below a folder, and their descendants."""
    return add_descendants(set(), lambda pid: _is_writing_logs(pid, ray_folder))


def add_descendants(known: set[Process], belongs: Callable[[int], bool]) -> set[Process]:
    """Return the living processes that are known or for which ``belongs`` is true, and their descendants.

    The caller is never included.
    """
    children: dict[int, list[int]] = {}
    pids = [process.pid for process in known]
    for pid in _own_pids():
        fields = _read_status(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
            if belongs(pid):
                pids.append(pid)
    found: set[Process] = set()
    while pids:
        pid = pids.pop()
        process = find_process(pid)
        if process is not None and process not in found and pid != os.getpid():
            found.add(process)
            pids.extend(children.get(pid, ()))
    return found


def is_server(pid: int) -> bool:
    """Whether a process is a server of some Ray, by its name or by its program, which it cannot change."""
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


def _has_mark(pid: int, mark: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"RAY_AUTH_TOKEN_PATH=" + os.fsencode(mark) in words and any(
        word.startswith(b"RAY_RAYLET_PID=") for word in words
    )


def _is_writing_logs(pid: int, ray_folder: Path) -> bool:
    """Whether a process has a log file of a Ray session below a folder open for writing."""
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
        if find_process(owner.pid) == owner:
            select.select([pidfd], [], [])
        os.close(pidfd)
    clear(home)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), Process(int(sys.argv[2]), int(sys.argv[3])))
