"""The plan of one command's confinement: system calls, limits, and what its launcher reads.

The filter denies what a Worker is denied (``jail.py``) except the rules on metadata. In addition it denies
files that run as their owner or group. As root, such a file in the workspace would run as root for anybody
who starts it outside. Slow work is done here, in a process that already runs, so that the launcher stays
short.

The only sockets are pairs of connected streams, and no call takes an address: an end of a datagram pair could
be sent from, and connected, to a socket file in the workspace. ``sendmsg`` has its address in memory, where a
filter can't look; on a connected stream the kernel itself refuses one.

Some memory belongs to no process and has no size that the watch outside could read: objects of System V IPC,
and pages that a pipe took over (``vmsplice``). The filter denies the calls that make it.

Source: seccomp(2), open(2), chmod(2) and the kernel's tables of system calls.
"""

from __future__ import annotations

import marshal
import os
import resource
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from sessiontree.sandbox.commands import command_launcher
from sessiontree.sandbox.commands.command_bounds import HOME, SHARED_MEMORY, TMP, Bounds
from sessiontree.sandbox.jail import (
    ALLOW,
    DENIED_CALLS,
    ENOSYS,
    EPERM,
    KILL,
    Machine,
    assemble,
    compute_handled_rights,
    query_landlock_abi,
    select_call_numbers,
)

_METADATA: Final = """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
    file_setattr setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
METADATA: Final = frozenset(_METADATA.split())
"""Calls that a command may make in places where it may write."""
MORE_DENIED: Final = """
socket 41 198 bind 49 200 connect 42 203 listen 50 201 accept 43 202 accept4 288 242
"""
"""Name, number on x86_64, number on aarch64."""
PAIR: Final = "socketpair 53 199"
"""As above; only a pair of streams of the machine itself is made."""
SEND: Final = "sendto 44 206"
"""As above; its address must be null, as it is in the library's ``send``."""
UNCOUNTED: Final = "shmget 29 194 msgget 68 186 semget 64 190 vmsplice 278 75 memfd_secret 447 447"
"""As above; they fail as on a kernel without them, because what they make can't be counted."""
MISSING: Final = "openat2 437 437 clone3 435 435"
"""These calls fail as on an older kernel: their arguments are in memory, where a filter can't look."""
MODES: Final = """
chmod 90 - second fchmod 91 52 second creat 85 - second fchmodat 268 53 third fchmodat2 452 452 third
open 2 - flags_second openat 257 56 flags_third
"""
"""As above, with the position of the mode: the argument itself, or the one after flags that make a file."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_SECOND, _THIRD, _FOURTH = 24, 32, 40
_FIRST: Final = 16
_FIFTH: Final = 48, 52
"""The lower and the upper half of an argument that is an address in memory."""
_AND: Final = 0x54
_LOCAL, _STREAM, _KIND_OF_SOCKET = 1, 1, 0xF
_X32: Final = 0x40000000
_NAMESPACES: Final = 0x7E020000
_TERMINAL_INJECTIONS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_AS_OWNER_OR_GROUP: Final = 0o6000
_MAKES_A_FILE: Final = os.O_CREAT | 0o20000000  # and the bit that only O_TMPFILE has


def command_program(here: Machine) -> list[tuple[int, int, int, int]]:
    """Return the filter of a machine, as (code, jump if true, jump if false, operand) in order."""
    denied = {**select_call_numbers(here, DENIED_CALLS), **select_call_numbers(here, MORE_DENIED)}
    modes = MODES.split()
    lines: list[tuple[int, int, str]] = [
        (_LOAD, _ARCHITECTURE, ""),
        (_EQUAL, here.architecture, "known"),
        (_RETURN, KILL, ""),
        (_LOAD, _NUMBER, "known:"),
        (_AT_LEAST, _X32, "missing"),
        *(
            (_EQUAL, number, "missing")
            for number in select_call_numbers(here, f"{MISSING} {UNCOUNTED}").values()
        ),
        *((_EQUAL, number, "pair") for number in select_call_numbers(here, PAIR).values()),
        *((_EQUAL, number, "send") for number in select_call_numbers(here, SEND).values()),
        *((_EQUAL, number, "denied") for name, number in denied.items() if name not in METADATA),
        *(
            (_EQUAL, int(number), label)
            for number, label in zip(modes[here.column :: 4], modes[3::4], strict=True)
            if number != "-"
        ),
        (_EQUAL, here.ioctl, "ioctl"),
        (_EQUAL, here.clone, "clone"),
        (_RETURN, ALLOW, ""),
        (_LOAD, _FIRST, "pair:"),
        (_EQUAL, _LOCAL, "local"),
        (_RETURN, EPERM, ""),
        (_LOAD, _SECOND, "local:"),
        (_AND, _KIND_OF_SOCKET, ""),
        (_EQUAL, _STREAM, "allowed"),
        (_RETURN, EPERM, ""),
        (_LOAD, _FIFTH[0], "send:"),
        (_EQUAL, 0, "no_lower_half"),
        (_RETURN, EPERM, ""),
        (_LOAD, _FIFTH[1], "no_lower_half:"),
        (_EQUAL, 0, "allowed"),
        (_RETURN, EPERM, ""),
        (_RETURN, ALLOW, "allowed:"),
        (_LOAD, _SECOND, "ioctl:"),
        *((_EQUAL, request, "denied") for request in _TERMINAL_INJECTIONS),
        (_RETURN, ALLOW, ""),
        (_LOAD, _FIRST, "clone:"),
        (_ANY_BIT, _NAMESPACES, "denied"),
        (_RETURN, ALLOW, ""),
        (_LOAD, _SECOND, "flags_second:"),
        (_ANY_BIT, _MAKES_A_FILE, "third"),
        (_RETURN, ALLOW, ""),
        (_LOAD, _THIRD, "flags_third:"),
        (_ANY_BIT, _MAKES_A_FILE, "fourth"),
        (_RETURN, ALLOW, ""),
        (_LOAD, _SECOND, "second:"),
        (_ANY_BIT, _AS_OWNER_OR_GROUP, "denied"),
        (_RETURN, ALLOW, ""),
        (_LOAD, _THIRD, "third:"),
        (_ANY_BIT, _AS_OWNER_OR_GROUP, "denied"),
        (_RETURN, ALLOW, ""),
        (_LOAD, _FOURTH, "fourth:"),
        (_ANY_BIT, _AS_OWNER_OR_GROUP, "denied"),
        (_RETURN, ALLOW, ""),
        (_RETURN, EPERM, "denied:"),
        (_RETURN, ENOSYS, "missing:"),
    ]
    return assemble(lines)


def command_filter(here: Machine) -> bytes:
    """Return the filter in the kernel's form, a sequence of ``struct sock_filter``."""
    return b"".join(struct.pack("=HBBI", *line) for line in command_program(here))


RESERVED_PIDS: Final = 300
"""Process ids that the kernel does not use again while others are free; only the ids above them bound a
command for its whole life. With one id above them, a command that has started 300 processes runs one at a
time."""
_PIDS_OF_A_NAMESPACE: Final = (6, 14)
"""The first kernel on which a namespace has its own largest process id; before, the machine's counts."""
MESSAGE_QUEUE_BYTES: Final = 819_200
"""What POSIX message queues hold at most; Linux's default. A queue has no descriptor that shows its size."""
_TCP_FROM_ABI, _SCOPES_FROM_ABI = 4, 6
_BIND_AND_CONNECT, _SIGNALS_AND_ABSTRACT_SOCKETS = 3, 3
_READ: Final = 1 << 0 | 1 << 2 | 1 << 3
_MAKE_CHAR_DEVICE, _MAKE_BLOCK_DEVICE, _IOCTL_DEVICE = 1 << 6, 1 << 11, 1 << 15
_DEVICE: Final = 1 << 1 | 1 << 2 | 1 << 14
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TERMINALS: Final = ("/dev/ptmx", "/dev/pts", "/dev/tty")


@dataclass(frozen=True, slots=True)
class Command:
    """What runs, and where."""

    words: tuple[str, ...]
    """The program by its absolute path, and its arguments."""
    workspace: str
    """Absolute, without links."""
    workdir: str
    """Absolute; the launcher checks inside whether it exists and where it leads."""
    environment: dict[str, str]
    """All its variables."""
    may_write: bool = True
    """Whether it may write to the workspace."""
    terminal: tuple[int, int] | None = None
    """Rows and columns of its terminal; None = it has none."""


def pack_plan(command: Command, bounds: Bounds, here: Machine) -> bytes:
    """Return the launcher and its plan in the form that ``BOOT`` reads."""
    abi = query_landlock_abi()
    return _compile_launcher() + marshal.dumps(
        {
            "pid_max": _compute_pid_max(bounds),
            "limits": _list_limits(bounds),
            "ruleset": _pack_ruleset(abi),
            "rules": _list_rules(abi, command.workspace, may_write=command.may_write),
            "filter": _filter(here),
            "workspace": command.workspace,
            "workdir": command.workdir,
            "command": command.words,
            "environment": command.environment,
            "terminal": command.terminal,
        }
    )


def _compute_pid_max(bounds: Bounds) -> int:
    """Return the largest process id if nothing else limits processes (limits do not bind root), else 0."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if os.geteuid() != 0 or release < _PIDS_OF_A_NAMESPACE:
        return 0
    return RESERVED_PIDS + bounds.processes


def _list_limits(bounds: Bounds) -> list[tuple[int, int, int]]:
    """Return resources with their soft and hard limits; the hard limit of processor time is 1 s longer.

    No process may raise its priority: the command runs only while nothing else needs the processor.
    """
    same = {
        resource.RLIMIT_AS: bounds.memory_bytes,
        resource.RLIMIT_FSIZE: bounds.file_bytes,
        resource.RLIMIT_NOFILE: bounds.open_files,
        resource.RLIMIT_NPROC: bounds.processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: MESSAGE_QUEUE_BYTES,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    cpu = (resource.RLIMIT_CPU, bounds.cpu_s, bounds.cpu_s + 1)
    return [cpu, *((number, most, most) for number, most in same.items())]


def _pack_ruleset(abi: int) -> bytes:
    """Return the kernel's ``struct landlock_ruleset_attr``, in the length that its version supports."""
    net = _BIND_AND_CONNECT if abi >= _TCP_FROM_ABI else 0
    scopes = _SIGNALS_AND_ABSTRACT_SOCKETS if abi >= _SCOPES_FROM_ABI else 0
    attributes = struct.pack("=QQQ", compute_handled_rights(abi), net, scopes)
    return attributes[: 8 if abi < _TCP_FROM_ABI else 16 if abi < _SCOPES_FROM_ABI else 24]


def _list_rules(abi: int, workspace: str, *, may_write: bool) -> list[tuple[str, int]]:
    """Return places and rights: every mounted file may be read, and no network port is allowed."""
    handled = compute_handled_rights(abi)
    full = handled & ~(_MAKE_CHAR_DEVICE | _MAKE_BLOCK_DEVICE | _IOCTL_DEVICE)
    private: Sequence[str] = (TMP, HOME, SHARED_MEMORY)
    writable = (workspace, *private) if may_write else private
    return [
        ("/", _READ),
        *((place, full) for place in writable),
        *((device, _DEVICE) for device in _DEVICES),
        *((terminal, (_DEVICE | _IOCTL_DEVICE) & handled) for terminal in _TERMINALS),
    ]


@cache
def _filter(here: Machine) -> bytes:
    return command_filter(here)


@cache
def _compile_launcher() -> bytes:
    path = Path(command_launcher.__file__)
    return marshal.dumps(compile(path.read_bytes(), path.name, "exec"))


def build_shell_words(command: str) -> tuple[str, ...]:
    """Return the words that run a command line: by bash, or by sh where bash is missing."""
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    return (shell, "-c", command)
