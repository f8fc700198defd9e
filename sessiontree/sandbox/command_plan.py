"""The plan of one command's confinement: what its launcher reads, and the program that takes it there.

What costs time is done here, in a process that runs already, so that the launcher stays short.
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

from sessiontree.sandbox import command_launcher
from sessiontree.sandbox.bounds import Bounds
from sessiontree.sandbox.command_filter import command_filter
from sessiontree.sandbox.environment import HOME
from sessiontree.sandbox.jail import Machine, handled_rights, landlock_abi
from sessiontree.sandbox.mounts import SHARED_MEMORY, TMP

RESERVED_PIDS: Final = 300
"""Numbers the kernel gives out once and never again while others are free; only what is above them is a
bound that lasts. With one number above them, a command that has started 300 processes runs one at a time."""
_PIDS_OF_A_NAMESPACE: Final = (6, 14)
"""First kernel on which a namespace's largest process id is its own; before, it is the machine's."""
_TCP_FROM_ABI, _SCOPES_FROM_ABI = 4, 6
_BIND_AND_CONNECT, _SIGNALS_AND_ABSTRACT_SOCKETS = 3, 3
_READ: Final = 1 << 0 | 1 << 2 | 1 << 3
_MAKE_CHAR_DEVICE, _MAKE_BLOCK_DEVICE, _IOCTL_DEVICE = 1 << 6, 1 << 11, 1 << 15
_DEVICE: Final = 1 << 1 | 1 << 2 | 1 << 14
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TERMINALS: Final = ("/dev/ptmx", "/dev/pts", "/dev/tty")


@dataclass(frozen=True, slots=True)
class Command:
    """What is to run, and where."""

    words: tuple[str, ...]
    """The program by its absolute path, and its arguments."""
    workspace: str
    """Absolute, without links."""
    workdir: str
    """Absolute; whether it is there and where it leads shows inside."""
    environment: dict[str, str]
    """All of it."""
    may_write: bool = True
    """Whether it may write to the workspace."""


def packed_plan(command: Command, bounds: Bounds, here: Machine) -> bytes:
    """Return the launcher and its plan, as its first line reads them."""
    abi = landlock_abi()
    return _launcher() + marshal.dumps(
        {
            "pid_max": _pid_max(bounds),
            "limits": _limits(bounds),
            "ruleset": _ruleset(abi),
            "rules": _rules(abi, command.workspace, may_write=command.may_write),
            "filter": _filter(here),
            "workspace": command.workspace,
            "workdir": command.workdir,
            "command": command.words,
            "environment": command.environment,
        }
    )


def _pid_max(bounds: Bounds) -> int:
    """Return the largest process id, where that alone bounds them: the kernel exempts root from a limit."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if os.geteuid() != 0 or release < _PIDS_OF_A_NAMESPACE:
        return 0
    return RESERVED_PIDS + bounds.processes


def _limits(bounds: Bounds) -> list[tuple[int, int, int]]:
    """Return resources with their soft and hard limits: processor time has a second for the last words.

    None may raise its priority: what runs when nobody else wants the processor stays so.
    """
    same = {
        resource.RLIMIT_AS: bounds.memory_bytes,
        resource.RLIMIT_FSIZE: bounds.file_bytes,
        resource.RLIMIT_NOFILE: bounds.open_files,
        resource.RLIMIT_NPROC: bounds.processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    cpu = (resource.RLIMIT_CPU, bounds.cpu_s, bounds.cpu_s + 1)
    return [cpu, *((number, most, most) for number, most in same.items())]


def _ruleset(abi: int) -> bytes:
    """Return the kernel's ``struct landlock_ruleset_attr``, as long as its version knows it."""
    net = _BIND_AND_CONNECT if abi >= _TCP_FROM_ABI else 0
    scopes = _SIGNALS_AND_ABSTRACT_SOCKETS if abi >= _SCOPES_FROM_ABI else 0
    attributes = struct.pack("=QQQ", handled_rights(abi), net, scopes)
    return attributes[: 8 if abi < _TCP_FROM_ABI else 16 if abi < _SCOPES_FROM_ABI else 24]


def _rules(abi: int, workspace: str, *, may_write: bool) -> list[tuple[str, int]]:
    """Return places and rights: all that is mounted may be read, and no network port is named."""
    handled = handled_rights(abi)
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
def _launcher() -> bytes:
    path = Path(command_launcher.__file__)
    return marshal.dumps(compile(path.read_bytes(), path.name, "exec"))


def shell_words(command: str) -> tuple[str, ...]:
    """Return the words that run a command line: by bash, by sh where there is no bash."""
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    return (shell, "-c", command)
