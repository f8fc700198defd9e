"""What ``sessiontree doctor`` looks at: installation, limits, confinement, state and runtimes.

Nothing is judged here. One short confined process is started, to try how far this machine can confine a
Worker.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import resource
import shutil
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from sessiontree.contracts.errors import ConfigError, JournalCorrupt, JournalError, SessionTreeError
from sessiontree.contracts.settings.sandbox_spec import ContainerEngine, SandboxSpec
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.client import ControlClient
from sessiontree.journal.journal import Journal
from sessiontree.journal.place import JournalPlace
from sessiontree.journal.tables import check_header, get_log_path
from sessiontree.runtime.transport.supervisor_api import ActorRow
from sessiontree.sandbox import Jail, Level, detect_level, probe
from sessiontree.sandbox.containers.engine import check_engine
from sessiontree.sandbox.py_executable import Enforcement
from sessiontree.version import VERSION

_TRUNCATES = 3
_SCOPES = 6
"""Landlock's first ABIs under which no file can be shortened; under which signals and abstract sockets of
processes outside are out of reach."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """The kernel's confinement, and the outcome of a trial."""

    offered: Level
    tried: Level | None
    """The level of a process that was started as a Worker's would be; None: it did not start."""
    failure: ConfigError | None
    """Why not."""
    trial_ms: int

    def holds(self) -> list[str]:
        """Return what the process of a Worker on Ray can't do, whatever runs in it."""
        level = self.tried or self.offered
        held = []
        if level.landlock:
            held += ["make, change, rename or delete a file outside Ray's logs", "read the state directory"]
        if level.landlock >= _TRUNCATES:
            held.append("shorten a file")
        if level.landlock >= _SCOPES:
            held.append("signal a process outside")
        if level.seccomp:
            held.append("change modes, owners, times or attributes of files, mount, or trace a process")
        return held

    def leaves(self) -> list[str]:
        """Return what the kernel does not keep it from."""
        level = self.tried or self.offered
        if not level.landlock:
            return ["anything its user may do: only what its context leaves out protects files"]
        left = ["connect by TCP and by socket files", "read other files its user may read"]
        if level.landlock < _TRUNCATES:
            left.append("shorten files")
        if level.landlock < _SCOPES:
            left.append("signal its user's processes")
        if not level.seccomp:
            left.append("change modes, owners and times of files")
        return left

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "offered": str(self.offered),
            "full": self.offered.is_full,
            "tried": None if self.tried is None else str(self.tried),
            "trial_ms": self.trial_ms,
            "failure": None if self.failure is None else str(self.failure),
            "holds": self.holds(),
            "leaves": self.leaves(),
        }


def try_confinement(state_dir: Path) -> Confinement:
    """Start one short process confined as a Worker's is, with the state directory hidden from it.

    Nothing is written, and the state directory need not exist. Blocks for some 0.1 s.
    """
    offered = detect_level()
    began = time.monotonic()
    tried, failure = None, None
    try:
        enforcement: Enforcement = "required" if offered.is_full else "best_effort"
        tried = probe(Jail(hidden=(state_dir,), enforcement=enforcement))
    except ConfigError as error:
        failure = error
    return Confinement(offered, tried, failure, round((time.monotonic() - began) * 1000))


ANSWER_S = 3.0
"""How long a live runtime may take to answer everything it is asked."""
HEADER_BYTES = 100
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the system's own place, only measured
_ANOTHER = "give another one with --state-dir"
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Installation:
    """What is installed, and where."""

    version: str
    python: str
    executable: str
    ray: str | None
    """Its release; None = not installed. Ray itself is not loaded to find out."""
    system: str
    kernel: str
    machine: str


@dataclass(frozen=True, slots=True)
class SystemLimits:
    """The system's limits for this user."""

    shared_memory_bytes: int | None
    """Free in shared memory; None where the system has none."""
    descriptors: int | None
    """Most open files of one process, as far as a program may raise it; None = no limit."""


@dataclass(frozen=True, slots=True)
class State:
    """A state directory, as a quick check sees it."""

    directory: Path
    mode: int | None
    """Its permission bits; None where it does not exist."""
    journal_mode: int | None
    """Those of its database."""
    is_usable: bool
    """Whether this user may write there, or make it."""
    journal_bytes: int
    """Size of the database, its log and its blobs."""
    trees: int | None
    """None where the journal does not exist or can't be read."""
    damaged_trees: tuple[str, ...]
    """Ids of trees whose first row is altered; the rest of a tree is not looked at."""
    failure: SessionTreeError | None
    """Why the journal can't be read."""
    writer: int | None
    """The process that holds its lock, where it can be seen."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "directory": str(self.directory),
            "mode": _format_mode(self.mode),
            "journal_mode": _format_mode(self.journal_mode),
            "usable": self.is_usable,
            "journal_bytes": self.journal_bytes,
            "trees": self.trees,
            "damaged_trees": list(self.damaged_trees),
            "failure": None if self.failure is None else str(self.failure),
            "writer": self.writer,
        }


@dataclass(frozen=True, slots=True)
class LiveRuntime:
    """A live runtime."""

    release: str
    trees: tuple[str, ...]
    """Ids of those that are open."""
    actors: tuple[ActorRow, ...]
    security: Mapping[str, JsonValue] | None
    """What protects its Ray; None: it runs in one process, without Ray."""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "release": self.release,
            "backend": "local" if self.security is None else "ray",
            "trees": list(self.trees),
            "actors": [asdict(actor) for actor in self.actors],
            "ray": None if self.security is None else dict(self.security),
        }


def look_at_installation() -> Installation:
    """Return what is installed."""
    try:
        ray = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        ray = None
    here = platform.uname()
    return Installation(
        VERSION, platform.python_version(), sys.executable, ray, here.system, here.release, here.machine
    )


def look_at_limits() -> SystemLimits:
    """Return the system's limits for this user."""
    try:
        shared = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        shared = None
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return SystemLimits(shared, None if most == resource.RLIM_INFINITY else most)


@dataclass(frozen=True, slots=True)
class ContainerProgram:
    """A container engine that `SandboxSpec` can name, as this machine has it."""

    engine: str
    program: str | None
    """Where its command line is; None = it is not installed."""
    failure: str
    """Why it can start nothing; empty = it answers, or is not installed."""


def look_at_engines() -> list[ContainerProgram]:
    """Return the container engines of this machine; each that is installed is asked for its containers."""
    found = []
    for engine in get_args(ContainerEngine):
        program = shutil.which(engine)
        failure = "" if program is None else check_engine(SandboxSpec(image="none", engine=engine))
        found.append(ContainerProgram(engine, program, failure))
    return found


def look_at_state(directory: Path) -> State:
    """Return what is in a state directory; its journal is opened to read, and no tree is checked."""
    place = JournalPlace(directory)
    mode, journal_mode, trees, size = None, None, None, 0
    damaged: tuple[str, ...] = ()
    failure: SessionTreeError | None = None
    try:
        if directory.exists() and not directory.is_dir():
            raise JournalError(str(directory), f"it is not a directory; {_ANOTHER}")
        mode, journal_mode = _read_mode(directory), _read_mode(place.database)
        size = _measure_size(place)
        if place.database.exists():
            # a header that is damaged must be found before SQLite looks at the log
            with place.database.open("rb") as file:
                check_header(file.read(HEADER_BYTES), place.database)
            with Journal.open(directory, read_only=True) as journal:
                rows = journal.trees()
            trees, damaged = len(rows), tuple(row.tree_id for row in rows if row.row0 is None)
        elif get_log_path(place.database).exists():
            raise JournalCorrupt(str(place.database), "the file is gone but its log remains; restore both")
    except SessionTreeError as error:
        failure = error
    except OSError as error:
        failure = JournalError(str(directory), f"{error.strerror}; let this user in, or {_ANOTHER}")
    return State(
        directory,
        mode,
        journal_mode,
        _is_usable(directory),
        size,
        trees,
        damaged,
        failure,
        _find_writer(place.lock),
    )


async def look_at_runtime(directory: Path) -> LiveRuntime | None:
    """Return the report of a directory's live runtime; None if none is live.

    Raises:
        JournalError: it does not answer in time.
        PermissionDenied: this process may not ask.
        SessionTreeError: it is of another release and can't report.
    """
    client = await ControlClient.find(directory, timeout_s=ANSWER_S)
    if client is None:
        return None
    async with client:
        try:
            async with asyncio.timeout(ANSWER_S):
                return LiveRuntime(
                    client.release,
                    tuple(await client.supervisor.open_trees()),
                    tuple(await client.supervisor.actors()),
                    await client.supervisor.security(),
                )
        except TimeoutError as error:
            reason = f"its runtime does not answer within {ANSWER_S:g} s: it is stopped, or very busy"
            raise JournalError(str(directory), f"{reason}; try again") from error
        except JournalError:
            if client.is_connected:
                raise
            return None  # it ended in the meantime


def _read_mode(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _format_mode(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"


def _measure_size(place: JournalPlace) -> int:
    files = [place.database, get_log_path(place.database)]
    if place.blobs.is_dir():
        files += place.blobs.iterdir()
    return sum(path.stat().st_size for path in files if path.exists())


def _is_usable(directory: Path) -> bool:
    """Whether this user may write in a directory, or make it where it is missing."""
    nearest = directory
    try:
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    except OSError:
        return False


def _find_writer(lock: Path) -> int | None:
    """Return the process that holds a file lock, without taking the lock: a starting program may need it."""
    try:
        inode = lock.stat().st_ino
        for line in _LOCKS.read_text("ascii", "replace").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
                pid = int(fields[4])
                # the file names its writer: another disk's file may have the same number
                return pid if pid == int(lock.read_text("ascii", "replace").split()[0]) else None
    except (OSError, ValueError, IndexError):
        pass
    return None
