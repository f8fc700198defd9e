"""Lineage: whether a peer comes from the engine below the runtime, so that no tool answers as a person.

What an engine's servers start, at whoever's request, descends from them. A process whose parent has ended is
adopted by the nearest process above that adopts orphans: one of the servers, if the engine is private, and
then all stay below it; else somebody above, such as the first process of the machine. There it can't be told
from what a person's own programs started, but by its age: what is older than the engine can't be its own.
Source: prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sessiontree.sandbox.process_tree import ProcessIdentity, ancestors, process_of

TRIAL_S: Final = 30.0
ORPHAN: Final = """
import os, select
parent = os.getpid()
if not os.fork():
    while os.getppid() == parent:
        select.select((), (), (), 0.001)
    print(os.getppid())
"""
"""Leaves a child behind, which tells who has adopted it."""
READINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Lineage:
    """What tells an engine's processes from a person's."""

    program: ProcessIdentity
    """The creating program; it may be one of the engine's own."""
    is_server: Callable[[int], bool]
    """Whether a process is one of an engine's servers."""
    since: int
    """When the oldest of the servers here was started, as the kernel counts."""
    adopter: ProcessIdentity
    """Who adopts what the engine's processes leave behind."""

    def refusal_of(self, pid: int) -> str | None:
        """Return why a process may not speak for a person, None where it may."""
        line = _line_of(pid)
        if not line:
            return f"process {pid} can't be seen from the runtime; ask from where it runs"
        if line[0] == self.program:
            return None
        if process_of(self.adopter.pid) != self.adopter:
            return "the engine below the runtime is ending"
        if any(self.is_server(process.pid) for process in line):
            return f"process {pid} was started by the engine below the runtime; ask from a terminal"
        for process, parent in pairwise(line):
            if parent == self.adopter and process.started >= self.since:
                return (
                    f"process {pid} can't be told from one that the engine below the runtime left behind: "
                    f"process {process.pid}, above it, is younger than that engine, and its parent is "
                    f"process {parent.pid}, which adopts such; ask from a terminal that was there before it"
                )
        return None


def lineage_of(program: ProcessIdentity, is_server: Callable[[int], bool]) -> Lineage:
    """Return the lineage by which a supervisor, one of an engine's processes, judges. Blocks for some 50 ms.

    Raises:
        OSError: the system starts no process, or nothing is known of those that run.
    """
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - of many, their names
    servers = (process_of(pid) for pid in pids if is_server(pid))
    since = min((server.started for server in servers if server is not None), default=0)
    return Lineage(program, is_server, since, adopter_here())


def adopter_here() -> ProcessIdentity:
    """Return who adopts what this process's children leave behind, by trial.

    Raises:
        OSError: it could not be tried.
    """
    try:
        told = subprocess.run(  # noqa: S603 - this interpreter, fixed words
            [sys.executable, "-I", "-S", "-c", ORPHAN],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=TRIAL_S,
        ).stdout
        found = process_of(int(told))
    except (subprocess.SubprocessError, ValueError) as error:
        raise OSError(f"can't find out who adopts orphans here: {error}") from error
    if found is None:
        raise OSError(f"process {int(told)} adopts orphans here, and has ended")
    return found


def _line_of(pid: int) -> list[ProcessIdentity]:
    """Return a process and those above it, read twice alike: one that is adopted meanwhile has no line."""
    before: list[ProcessIdentity] = []
    for _ in range(READINGS):
        line = ancestors(pid)
        if line and line == before:
            return line
        before = line
    return []
