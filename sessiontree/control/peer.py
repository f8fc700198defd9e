"""Peers: which process opened a connection, and whether it may act as the owner.

The runtime and its hosts run as the same user, and the confinement of a host does not cover sockets in the
file system. The user alone is therefore not enough. A process that is more confined than the runtime is not
an owner, and neither is a process of the engine below the runtime. So no tool can answer as a person.

Every process that an engine's servers start descends from them. When a process ends, the nearest ancestor
that adopts orphans becomes the parent of its children. If the engine is private, this ancestor is one of its
servers, and all processes stay below it. Otherwise it is a process above them, such as the first process of
the machine. Only the age then distinguishes an orphan of the engine from what a person's programs started:
a process that is older than the engine was not started by it.
Source: unix(7), proc_pid_status(5), prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.sandbox.process_tree import ProcessIdentity, find_ancestors, find_process_identity

_CREDENTIALS = struct.Struct("iII")
_FIELD = re.compile(r"^(NoNewPrivs|Seccomp|Seccomp_filters):\t(\d+)$", re.MULTILINE)
_ROOT = 0
_PEER_PIDFD = 77
"""``SO_PEERPIDFD``, from Linux 6.5; Python does not define it yet."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that opened a connection, as the system reports it."""

    pid: int
    """0 if the process is not visible from here."""
    uid: int

    def __str__(self) -> str:
        """Return the text that the journal records for this person."""
        return f"person (uid {self.uid}, pid {self.pid})"


@dataclass(frozen=True, slots=True)
class PeerConfinement:
    """Which rights a process has given up permanently."""

    filters: int
    """Number of its system call filters."""
    no_new_rights: bool
    """Whether the programs that it starts can't have more rights than it has."""

    def is_stricter_than(self, other: PeerConfinement) -> bool:
        """Whether this process gave up more than the other."""
        return self.filters > other.filters or self.no_new_rights > other.no_new_rights


def identify_peer(line: socket.socket) -> Peer:
    """Return the process that opened a connection."""
    given = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(given)
    return Peer(pid, uid)


@contextmanager
def hold_process(line: socket.socket, peer: Peer) -> Iterator[int | None]:
    """Hold the process that opened a connection; yield its pidfd, or None if the process has ended.

    While the process lives, its id can't refer to another process.
    """
    descriptor = None
    try:
        descriptor = line.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT and peer.pid:
            descriptor = _open_process(peer.pid)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open_process(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def has_ended(descriptor: int) -> bool:
    """Whether a held process has ended."""
    return bool(select.select([descriptor], (), (), 0)[0])


def explain_hidden_process(pid: int) -> str:
    """Return why a process whose entry in ``/proc`` can't be read is refused."""
    return f"process {pid} can't be seen from the runtime; ask from the same machine and container"


def explain_refusal(
    peer: Peer, own_uid: int, own: PeerConfinement | None, theirs: PeerConfinement | None
) -> str | None:
    """Return why a peer is refused; None if it is admitted.

    Args:
        peer: The peer.
        own_uid: The user that the runtime runs as.
        own: The runtime's confinement; None = not known.
        theirs: The peer's confinement; None = not known, for example because the process has ended.
    """
    if peer.uid != own_uid:
        if peer.uid == _ROOT:
            return None
        return f"process {peer.pid} runs as user {peer.uid}; only user {own_uid} or root may connect"
    # What can't be read is refused: a confined process can end after it has connected.
    if theirs is None or own is None:
        return explain_hidden_process(peer.pid)
    if theirs.is_stricter_than(own):
        return f"process {peer.pid} is confined and the runtime is not; ask from outside the sandbox"
    return None


def read_confinement(pid: int | None = None) -> PeerConfinement | None:
    """Return a process's confinement; by default this process's. None if it can't be read."""
    if pid == 0:
        return None
    try:
        status = Path(f"/proc/{os.getpid() if pid is None else pid}/status").read_text("utf-8", "replace")
    except OSError:
        return None
    found = {name: int(value) for name, value in _FIELD.findall(status)}
    if not found:
        return None
    return PeerConfinement(
        found.get("Seccomp_filters", found.get("Seccomp", 0)), bool(found.get("NoNewPrivs"))
    )


TRIAL_S: Final = 30.0
ORPHAN: Final = """
import os, select
parent = os.getpid()
if not os.fork():
    while os.getppid() == parent:
        select.select((), (), (), 0.001)
    print(os.getppid())
"""
"""Leaves an orphan behind that prints the id of the process that adopted it."""
READINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Lineage:
    """Distinguishes an engine's processes from a person's."""

    program: ProcessIdentity
    """The creating program; it may itself be a process of the engine."""
    is_server: Callable[[int], bool]
    """Whether a process is one of an engine's servers."""
    since: int
    """When the oldest of the servers on this machine was started, as the kernel reports it."""
    adopter: ProcessIdentity
    """The process that adopts orphans of the engine's processes."""

    def explain_refusal(self, pid: int) -> str | None:
        """Return why a process may not act for a person; None if it may."""
        line = _read_ancestors(pid)
        if not line:
            return explain_hidden_process(pid)
        if line[0] == self.program:
            return None
        if find_process_identity(self.adopter.pid) != self.adopter:
            return "the engine below the runtime is ending"
        if any(self.is_server(process.pid) for process in line):
            return f"process {pid} was started by the engine below the runtime; ask from a terminal"
        for process, parent in pairwise(line):
            if parent == self.adopter and process.started >= self.since:
                return (
                    f"process {pid} can't be distinguished from one that the engine "
                    "below the runtime left behind: "
                    f"process {process.pid}, above it, is younger than that engine, and its parent is "
                    f"process {parent.pid}, which adopts orphans; ask from a terminal that was open before it"
                )
        return None


def find_lineage(program: ProcessIdentity, is_server: Callable[[int], bool]) -> Lineage:
    """Return the lineage for a supervisor that is one of an engine's processes. Blocks for about 50 ms.

    Raises:
        OSError: the system can't start a process, or can't report those that run.
    """
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - of many, their names
    servers = (find_process_identity(pid) for pid in pids if is_server(pid))
    since = min((server.started for server in servers if server is not None), default=0)
    return Lineage(program, is_server, since, find_adopter())


def find_adopter() -> ProcessIdentity:
    """Return the process that adopts orphans of this process's children; it is found by a trial.

    Raises:
        OSError: the trial failed.
    """
    try:
        told = subprocess.run(  # noqa: S603 - this interpreter, fixed words
            # Isolated, so that neither the environment nor a module of the workspace runs in the trial.
            [sys.executable, "-I", "-S", "-c", ORPHAN],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=TRIAL_S,
        ).stdout
        found = find_process_identity(int(told))
    except (subprocess.SubprocessError, ValueError) as error:
        raise OSError(f"can't determine which process adopts orphans here: {error}") from error
    if found is None:
        raise OSError(f"process {int(told)} adopts orphans here, and has ended")
    return found


def _read_ancestors(pid: int) -> list[ProcessIdentity]:
    """Return a process and its ancestors after two equal readings; empty if the ancestors keep changing."""
    before: list[ProcessIdentity] = []
    # Race: processes end and are adopted while their parents are read; only two equal readings are one
    # moment.
    for _ in range(READINGS):
        line = find_ancestors(pid)
        if line and line == before:
            return line
        before = line
    return []
