"""What other machines can reach of a Ray, for ``sessiontree doctor``."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sessiontree.backends.ray.engine import engine_home
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.sandbox.launcher import is_harmless

_OF_KEYS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
"""How names of variables that hold keys end."""
TCP_LISTEN = "0A"
"""A listening socket's state in ``/proc/net/tcp``."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One TCP socket that accepts connections.

    Attributes:
        address: The numeric address of the socket; an IPv4 address mapped into IPv6 is given as IPv4.
        port: The port.
        pid: The id of its process.
        process: The name of its process.
    """

    address: str
    port: int
    pid: int
    process: str

    @property
    def is_open(self) -> bool:
        """Whether other machines may reach it: it is not bound to the loopback interface."""
        return not ipaddress.ip_address(self.address).is_loopback


def find_key_variables(pid: int | None) -> list[JsonValue]:
    """Return the names of variables of a process that look as if they held keys; empty if it can't be seen.

    Processes that it starts inherit them.
    """
    data = b""
    if pid is not None:
        with contextlib.suppress(OSError):
            data = Path(f"/proc/{pid}/environ").read_bytes()
    names = (os.fsdecode(word.partition(b"=")[0]) for word in data.split(b"\0"))
    return [*sorted(name for name in names if name.upper().endswith(_OF_KEYS) and not is_harmless(name))]


def describe_listeners(logs_dir: Path) -> list[JsonValue]:
    """Return the TCP sockets of a Ray's processes and of this process that other machines may reach.

    Each is an object with ``address``, ``port``, ``process`` (its name) and ``pid``, ordered by port. Only
    processes of this user on this machine are included. Blocks for some 20 ms.

    Args:
        logs_dir: The directory of this machine's Ray logs. A process that writes there belongs to the Ray,
            and so does a program that uses it.
    """
    pids = {os.getpid(), *(process.pid for process in engine_home.log_writers(logs_dir.resolve()))}
    return [
        {"address": found.address, "port": found.port, "process": found.process, "pid": found.pid}
        for found in find_listeners(pids)
        if found.is_open
    ]


def find_listeners(pids: Iterable[int]) -> list[Listener]:
    """Return the listening TCP sockets of some processes, ordered by port; ended processes have none."""
    bound = dict(_bound("tcp", 4)) | dict(_bound("tcp6", 16))
    found = {
        Listener(*bound[inode], pid, _name(pid))
        for pid in pids
        for inode in _list_sockets(pid)
        if inode in bound
    }
    return sorted(found, key=lambda listener: (listener.port, listener.pid))


def _bound(table: str, address_bytes: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield inode, address and port of every listening socket of this network."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/self/net/{table}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == TCP_LISTEN:
                address, port = fields[1].split(":")
                yield fields[9], (_decode_address(address, address_bytes), int(port, 16))


def _decode_address(digits: str, address_bytes: int) -> str:
    """Return an address from the kernel's hex words, which are in this machine's byte order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, address_bytes * 2, 8)]
    raw = b"".join(socket.ntohl(word).to_bytes(4, "big") for word in words)
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _list_sockets(pid: int) -> Iterator[str]:
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


def read_permissions(path: Path | None) -> str | None:
    """Return the permission bits of a file or directory as octal digits, or None if it does not exist."""
    if path is None:
        return None
    try:
        return f"{stat.S_IMODE(path.lstat().st_mode):04o}"
    except OSError:
        return None
