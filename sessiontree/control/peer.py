"""Peers: who is at the other end of a connection, and whether they may speak as the owner.

The runtime and its hosts run as the same user, and the confinement of a host does not cover sockets in the
file system. So the user alone is not enough: a process that is more confined than the runtime is no owner.
Source: unix(7), proc_pid_status(5).
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("iII")
_FIELD = re.compile(r"^(NoNewPrivs|Seccomp|Seccomp_filters):\t(\d+)$", re.MULTILINE)
_ROOT = 0
_PEER_PIDFD = 77
"""``SO_PEERPIDFD``, from Linux 6.5; Python has no name for it yet."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that opened a connection, as the system knows it."""

    pid: int
    """0 where it can't be seen from here."""
    uid: int

    def __str__(self) -> str:
        """Return the words that stand in the journal for this person."""
        return f"person (uid {self.uid}, pid {self.pid})"


@dataclass(frozen=True, slots=True)
class PeerConfinement:
    """How far a process gave up rights for good."""

    filters: int
    """Filters of system calls."""
    no_new_rights: bool
    """Whether no program it starts can have more rights than it."""

    def exceeds(self, other: PeerConfinement) -> bool:
        """Whether more was given up here than there."""
        return self.filters > other.filters or self.no_new_rights > other.no_new_rights


def peer_of(line: socket.socket) -> Peer:
    """Return who opened a connection."""
    given = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(given)
    return Peer(pid, uid)


@contextmanager
def held(line: socket.socket, peer: Peer) -> Iterator[int | None]:
    """Hold on to the process that opened a connection; give a descriptor of it, None where it is gone.

    While it lives, what is read of its id is about no other process.
    """
    descriptor = None
    try:
        descriptor = line.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError as error:
        if error.errno == errno.ENOPROTOOPT and peer.pid:
            descriptor = _opened(peer.pid)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def has_ended(descriptor: int) -> bool:
    """Whether a process that is held has ended."""
    return bool(select.select([descriptor], (), (), 0)[0])


def refusal_of(
    peer: Peer, own_uid: int, own: PeerConfinement | None, theirs: PeerConfinement | None
) -> str | None:
    """Return why a peer may not come in, None where it may.

    Args:
        peer: Who wants to.
        own_uid: The user the runtime runs as.
        own: The runtime's confinement; None = not known.
        theirs: The peer's; None = not known, as of a process that is gone already.
    """
    if peer.uid != own_uid:
        if peer.uid == _ROOT:
            return None
        return f"process {peer.pid} runs as user {peer.uid}; only user {own_uid}, or root, may come in"
    if theirs is None or own is None:
        return f"process {peer.pid} can't be seen from the runtime; ask from where it runs"
    if theirs.exceeds(own):
        return f"process {peer.pid} is confined and the runtime is not; ask from where it was started"
    return None


def confinement_of(pid: int | None = None) -> PeerConfinement | None:
    """Return a process's confinement, this one's where none is named; None where it can't be read."""
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
