"""What can be reached of a Ray from outside, for ``sessiontree doctor``."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sessiontree.backends.ray import engine_home
from sessiontree.contracts.jsonable import JsonValue

TCP_LISTEN = "0A"
"""A listening socket's state in ``/proc/net/tcp``."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One TCP socket that takes connections.

    Attributes:
        address: Numeric address it is bound to; an IPv4 one that IPv6 wraps is told as IPv4.
        port: Its port.
        pid: The process that holds it.
        process: That process's name.
    """

    address: str
    port: int
    pid: int
    process: str

    @property
    def is_open(self) -> bool:
        """Whether another machine may reach it, as far as this one is concerned."""
        return not ipaddress.ip_address(self.address).is_loopback


def listening(logs_dir: Path) -> list[JsonValue]:
    """Return the TCP sockets that other machines may reach: those of a Ray's processes, and of this one.

    Each is an object of ``address``, ``port``, ``process`` (its name) and ``pid``, in the order of ports.
    Seen are the processes of this user on this machine. Blocks for some 20 ms.

    Args:
        logs_dir: Where this machine's Ray writes its logs; by them its processes are known, the programs
            that use it among them.
    """
    pids = {os.getpid(), *(process.pid for process in engine_home.log_writers(logs_dir.resolve()))}
    return [
        {"address": found.address, "port": found.port, "process": found.process, "pid": found.pid}
        for found in listeners(pids)
        if found.is_open
    ]


def listeners(pids: Iterable[int]) -> list[Listener]:
    """Return the listening TCP sockets of some processes, by port; of a process that is just ending, none."""
    bound = dict(_bound("tcp", 4)) | dict(_bound("tcp6", 16))
    found = {
        Listener(*bound[inode], pid, _name(pid)) for pid in pids for inode in _sockets(pid) if inode in bound
    }
    return sorted(found, key=lambda listener: (listener.port, listener.pid))


def _bound(table: str, address_bytes: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield inode, address and port of every listening socket of this network."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/self/net/{table}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == TCP_LISTEN:
                address, port = fields[1].split(":")
                yield fields[9], (_numeric(address, address_bytes), int(port, 16))


def _numeric(digits: str, address_bytes: int) -> str:
    """Return an address that the kernel wrote as hex words in the order of this machine's bytes."""
    words = [int(digits[at : at + 8], 16) for at in range(0, address_bytes * 2, 8)]
    raw = b"".join(socket.ntohl(word).to_bytes(4, "big") for word in words)
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    yield target.removeprefix("socket:[").removesuffix("]")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "?"


def mode_of(path: Path | None) -> str | None:
    """Return the permission bits of a file or directory as octal digits; None when there is none."""
    if path is None:
        return None
    try:
        return f"{stat.S_IMODE(path.lstat().st_mode):04o}"
    except OSError:
        return None
