"""The filter of system calls for commands: what changes files is allowed, what opens a way out is not.

Beyond what a Worker is denied (``jail.py``), without its rules on metadata: no socket but a pair of ends, and
no file that runs as its owner or group. As root, such a file in the workspace would run as root for whoever
starts it outside.

Source: seccomp(2), open(2), chmod(2) and the kernel's tables of system calls.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from sessiontree.sandbox.jail import (
    ALLOW,
    DENIED_CALLS,
    ENOSYS,
    EPERM,
    KILL,
    Machine,
    assembled,
    numbers_of,
)

_METADATA: Final = """
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
    file_setattr setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
METADATA: Final = frozenset(_METADATA.split())
"""Calls a command may make, in places it may write."""
MORE_DENIED: Final = "socket 41 198"
"""Name, number on x86_64, number on aarch64."""
MISSING: Final = "openat2 437 437 clone3 435 435"
"""Answered as an older kernel would: what they are asked lies in memory, where no filter looks."""
MODES: Final = """
chmod 90 - second fchmod 91 52 second creat 85 - second fchmodat 268 53 third fchmodat2 452 452 third
open 2 - flags_second openat 257 56 flags_third
"""
"""As above, and where the mode is found: the argument itself, or the one after flags that ask for a file."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
_SECOND, _THIRD, _FOURTH = 24, 32, 40
_FIRST: Final = 16
_X32: Final = 0x40000000
_NAMESPACES: Final = 0x7E020000
_TERMINAL_INJECTIONS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_AS_OWNER_OR_GROUP: Final = 0o6000
_MAKES_A_FILE: Final = os.O_CREAT | 0o20000000  # and the bit of O_TMPFILE that is its own


def command_program(here: Machine) -> list[tuple[int, int, int, int]]:
    """Return the filter of a machine, as (code, jump if true, jump if false, operand) in order."""
    denied = {**numbers_of(here, DENIED_CALLS), **numbers_of(here, MORE_DENIED)}
    modes = MODES.split()
    lines: list[tuple[int, int, str]] = [
        (_LOAD, _ARCHITECTURE, ""),
        (_EQUAL, here.architecture, "known"),
        (_RETURN, KILL, ""),
        (_LOAD, _NUMBER, "known:"),
        (_AT_LEAST, _X32, "missing"),
        *((_EQUAL, number, "missing") for number in numbers_of(here, MISSING).values()),
        *((_EQUAL, number, "denied") for name, number in denied.items() if name not in METADATA),
        *(
            (_EQUAL, int(number), label)
            for number, label in zip(modes[here.column :: 4], modes[3::4], strict=True)
            if number != "-"
        ),
        (_EQUAL, here.ioctl, "ioctl"),
        (_EQUAL, here.clone, "clone"),
        (_RETURN, ALLOW, ""),
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
    return assembled(lines)


def command_filter(here: Machine) -> bytes:
    """Return the filter as the kernel takes it, ``struct sock_filter`` after ``struct sock_filter``."""
    return b"".join(struct.pack("=HBBI", *line) for line in command_program(here))
