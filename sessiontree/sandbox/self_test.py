"""The test that a confined process runs on itself before it serves: it tries to change files and must fail.

The files are canaries, made for the test outside the jail: the process can read them and must not be able
to write them. ``write_probes.py`` lists what is tried.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.sandbox import write_probes
from sessiontree.sandbox.write_probes import ATTEMPTS

NAMES: Final = frozenset(ATTEMPTS) - {"create"}
_MODIFIED_NS: Final = 1_000_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything visible about one file or directory, except when it was last read."""

    name: str
    """Relative to the directory of canaries, whose own name is ``.``."""
    mode: int
    """Type and permissions."""
    owner: tuple[int, int]
    """User and group."""
    links: int
    modified_ns: int
    changed_ns: int
    """When content or metadata last changed; no program can set it."""
    content: str
    """SHA-256 of a file's bytes; empty for anything that is not a file."""


def prepare_canaries(directory: Path) -> tuple[Trace, ...]:
    """Make the canary files of one self-test.

    Args:
        directory: Missing or empty. The process that tests itself must run as the same user and be able to
            read it.

    Returns:
        The traces of the files.

    Raises:
        ConfigError: the directory is not empty.
        OSError: it can't be written.
    """
    directory.mkdir(exist_ok=True)
    if any(directory.iterdir()):
        raise ConfigError(f"can't prepare a self-test in {str(directory)!r}: it is not empty")
    for name in sorted(NAMES):
        victim = directory / name
        victim.write_bytes(f"must stay as it is: {name}\n".encode())
        victim.chmod(0o644)
        os.utime(victim, ns=(_MODIFIED_NS, _MODIFIED_NS))
    return collect_traces(directory)


def collect_traces(directory: Path) -> tuple[Trace, ...]:
    """Return the traces of a directory and everything in it, sorted by name.

    Raises:
        OSError: something can't be read.
    """
    return tuple(_trace(directory, path) for path in [directory, *sorted(directory.rglob("*"))])


def _trace(directory: Path, path: Path) -> Trace:
    status = path.lstat()
    return Trace(
        name=path.relative_to(directory).as_posix(),
        mode=status.st_mode,
        owner=(status.st_uid, status.st_gid),
        links=status.st_nlink,
        modified_ns=status.st_mtime_ns,
        changed_ns=status.st_ctime_ns,
        content=hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else "",
    )


def find_differences(before: Sequence[Trace], after: Sequence[Trace]) -> list[str]:
    """Return one line for each file or directory that appeared, disappeared or changed, sorted by name."""
    old, new = ({trace.name: trace for trace in side} for side in (before, after))
    lines = []
    for name in sorted(old.keys() | new.keys()):
        was, became = old.get(name), new.get(name)
        if was is None:
            lines.append(f"{name!r} appeared")
        elif became is None:
            lines.append(f"{name!r} is gone")
        elif was != became:
            fields = [field for field in Trace.__slots__ if getattr(was, field) != getattr(became, field)]
            lines.append(f"{name!r} changed: {', '.join(fields)}")
    return lines


REFUSALS: Final = frozenset({errno.errorcode[number] for number in (errno.EACCES, errno.EPERM)})
"""The errors with which the kernel refuses; any other failure proves nothing."""
TIMEOUT_S: Final = 10.0
"""How long each route may take, in seconds."""


@dataclass(frozen=True, slots=True)
class WriteAttempt:
    """One attempt to change a file."""

    route: str
    """Where it was made: ``this thread``, ``fresh thread``, ``ready thread`` or ``subprocess``."""
    name: str
    """What was tried, such as ``truncate``."""
    outcome: str
    """``succeeded``, the name of the errno, or ``untried``."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of a self-test."""

    attempts: tuple[WriteAttempt, ...]
    """Every route with every attempt, in the order they were made."""
    changes: tuple[str, ...]
    """The changes that were seen, one line for each."""

    @property
    def holds(self) -> bool:
        """Whether every attempt was made and refused, and nothing changed."""
        return not self.faults()

    def faults(self) -> list[str]:
        """Return one line for each attempt that was not refused, and for each change."""
        open_ways = [
            f"{attempt.name} from {attempt.route}: {attempt.outcome}"
            for attempt in self.attempts
            if attempt.outcome not in REFUSALS
        ]
        return [*open_ways, *self.changes]

    def require(self) -> None:
        """Accept a test that holds.

        Raises:
            ConfigError: it does not; names every fault.
        """
        if faults := self.faults():
            raise ConfigError(f"this process is not confined: {'; '.join(faults)}")


def run_self_test(directory: Path, ready: Executor) -> SelfTest:
    """Try to change files in every way from this thread, a fresh one, a ready one and a subprocess.

    It blocks for about 0.1 s. Call it before the process serves.

    Args:
        directory: Contains the files of ``prepare_canaries``, made outside this process for this test only.
        ready: Has a thread that was started before the process was confined, if there was one.

    Returns:
        The outcomes. An attempt that succeeds raises nothing; see ``SelfTest.require``.

    Raises:
        ConfigError: the files are missing, can't be read, or belong to another user, so that a refusal would
            prove nothing.
    """
    try:
        before = collect_traces(directory)
    except OSError as error:
        raise ConfigError(f"can't read the files of the self-test: {error}") from error
    _check_canaries(directory, before)
    routes: dict[str, Callable[[Path], dict[str, str]]] = {
        "this thread": write_probes.try_all,
        "fresh thread": _try_in_fresh_thread,
        "ready thread": lambda folder: ready.submit(write_probes.try_all, folder).result(TIMEOUT_S),
        "subprocess": _try_in_subprocess,
    }
    made = []
    for route, run in routes.items():
        outcomes = run(directory)
        # A missing outcome counts as a fault: an attempt that was never made proves nothing.
        made += [WriteAttempt(route, name, outcomes.get(name, "untried")) for name in ATTEMPTS]
    try:
        changes = find_differences(before, collect_traces(directory))
    except OSError as error:
        changes = [f"the files can't be read any more: {error}"]
    return SelfTest(tuple(made), tuple(changes))


def _check_canaries(directory: Path, seen: tuple[Trace, ...]) -> None:
    names = {trace.name for trace in seen} - {"."}
    if names != NAMES:
        raise ConfigError(f"can't test in {str(directory)!r}: its files are not as they were prepared")
    user = os.geteuid()
    # Ordinary permissions would refuse here, and the test would hold without any confinement. Root passes all
    # of them.
    if user != 0 and any(trace.owner[0] != user for trace in seen):
        raise ConfigError(
            f"can't test in {str(directory)!r}: it belongs to another user, and only that user may write"
        )


def _try_in_fresh_thread(folder: Path) -> dict[str, str]:
    answer: Future[dict[str, str]] = Future()
    thread = Thread(target=lambda: answer.set_result(write_probes.try_all(folder)), daemon=True)
    thread.start()
    return answer.result(TIMEOUT_S)


def _try_in_subprocess(folder: Path) -> dict[str, str]:
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, this package's own file
            [sys.executable, "-I", "-S", write_probes.__file__, str(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        outcomes = parse_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}  # untried, which counts as a fault
    return {str(name): str(outcome) for name, outcome in outcomes.items()}
