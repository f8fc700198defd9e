"""The processes below another one: how they are found and ended, even if they try to hide.

Run by its path, this file is a host's *reaper*: the process above the host, which adopts the processes that
its tools leave behind (``PR_SET_CHILD_SUBREAPER``, set by ``launcher.py`` before). A double fork, a session
or group of its own, an empty environment: whatever a process does, it stays below the reaper. When the host
has ended, for any reason, the reaper ends everything else below itself, and records how many processes that
were::

    python -I -S process_tree.py HOST DIRECTORY

It waits for any child. No other code in a host's process may do so, because tools wait for their own
children there. It imports little, and only from the standard library, because every host has such a
process.

Source: prctl(2), proc_pid_stat(5), pidfd_open(2).
"""

# Paths are text here: a reaper stays as small as it starts.
# ruff: noqa: PTH104, PTH118, PTH123, PTH208

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import namedtuple

# typing and similar modules would double the memory of a reaper; they are here only for readers and mypy.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

END_WITHIN_S = 5.0
"""How long killed processes may take to disappear, in seconds."""
LET_END_S = 0.2
"""Seconds that helpers of a host, such as trackers of shared memory, get to notice the end of the host."""
PAUSE_S = 0.005
EAGER_ROUNDS = 200
"""How often processes are searched without a pause, so that a process that keeps forking is found too."""
EMPTY_LISTS = 3
REPORT = "ended-"
"""How the name of a reaper's report begins; the host's process id follows."""


class ProcessIdentity(namedtuple("ProcessIdentity", ("pid", "started"))):
    """One process. Its id may be used again for another process; id and start time together are unique."""

    __slots__ = ()
    pid: int
    started: int


def _read_fields(pid: int) -> list[bytes] | None:
    """Return the fields of a process's ``stat`` after its name: state, parent, group and so on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].split()
    except OSError:
        return None


def find_process_identity(pid: int) -> ProcessIdentity | None:
    """Return a process by its id; None if it does not exist, or has ended and waits to be collected."""
    fields = _read_fields(pid)
    if not fields or fields[0] in {b"Z", b"X"}:
        return None
    return ProcessIdentity(pid, int(fields[19]))


def find_ancestors(pid: int) -> list[ProcessIdentity]:
    """Return a process and those above it, nearest first, up to the first process of this namespace.

    Empty if the process does not exist.
    """
    found: list[ProcessIdentity] = []
    while pid > 0:
        fields = _read_fields(pid)
        if not fields:
            return []  # it, or one above it, ended just now
        found.append(ProcessIdentity(pid, int(fields[19])))
        pid = int(fields[1])
    return found


def list_children(pid: int) -> list[int]:
    """Return the children of a process; empty if it has ended."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:  # it ended just now
        return found
    return found


def open_children_list(pid: int) -> int:
    """Return a descriptor of the list of a process's children; the process must have one thread.

    To read it again from its beginning takes a twentieth of the time of :func:`list_children`.

    Raises:
        OSError: the process has ended.
    """
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def find_descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, parents first."""
    ahead = list_children(pid)
    while ahead:
        child = ahead.pop()
        yield child
        ahead += list_children(child)


def find_living_below(root: int, spared: Collection[ProcessIdentity] = ()) -> list[ProcessIdentity]:
    """Return the running processes below one, without the spared ones but with those below them."""
    found = (find_process_identity(pid) for pid in find_descendants(root))
    return [process for process in found if process is not None and process not in spared]


def end_below(root: int, spared: Collection[ProcessIdentity] = (), within_s: float = END_WITHIN_S) -> int:
    """Kill every process below one, including those started meanwhile; return how many were killed.

    It returns when no process is left, or after ``within_s`` seconds. The result is certain only if the root
    is the calling process: it waits for its children, and the kernel says whether it has any. Below another
    root, a process that changes its parent while processes are listed may be missed, so they are listed
    again.
    """
    killed: set[ProcessIdentity] = set()
    deadline = time.monotonic() + within_s
    is_own, rounds, empty = root == os.getpid(), 0, 0
    while time.monotonic() < deadline:
        found = find_living_below(root, spared)
        killed.update(process for process in found if _kill(process, root))
        # Below another root, a process may be on its way between two parents while they are listed, so one
        # empty list does not prove that none is left.
        empty = 0 if found else empty + 1
        if not _has_children() if is_own else empty == EMPTY_LISTS:
            break
        rounds += 1
        if rounds > EAGER_ROUNDS:
            select.select((), (), (), PAUSE_S)
    return len(killed)


def _kill(process: ProcessIdentity, root: int) -> bool:
    """Kill exactly this process, if it is still below the root; return whether that worked."""
    try:
        # A descriptor first, then the check: the id could be used again between a check and a kill by number.
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not _is_below(process, root):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:  # it ended just now, or belongs to another user
        return False
    finally:
        os.close(descriptor)
    return True


def _is_below(process: ProcessIdentity, root: int) -> bool:
    pid, fields = process.pid, _read_fields(process.pid)
    if not fields or int(fields[19]) != process.started:
        return False
    while fields:
        pid = int(fields[1])
        if pid == root:
            return True
        fields = _read_fields(pid) if pid > 0 else None
    return False


def _has_children() -> bool:
    """Wait for every child that has ended; return whether others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def reap(host: int, directory: str) -> None:
    """Be the reaper of a host, a child of this process, until no process is left below."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    # A pipe or a lock that the host shares must end with the host, not with its reaper.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    while os.waitpid(-1, 0)[0] != host:
        pass
    # Helpers of libraries remove shared memory when they notice the end of the host; killing them at once
    # would leave it behind.
    deadline = time.monotonic() + LET_END_S
    while _has_children() and time.monotonic() < deadline:
        select.select((), (), (), PAUSE_S)
    _report(os.path.join(directory, f"{REPORT}{host}"), end_below(os.getpid()))


def _report(path: str, ended: int) -> None:
    try:
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(ended))
        # Renamed when complete, because the reader takes the report as soon as the name appears.
        os.rename(f"{path}.new", path)
    except OSError:  # the directory is gone, so nobody reads the report
        return


if __name__ == "__main__":
    reap(int(sys.argv[1]), sys.argv[2])
