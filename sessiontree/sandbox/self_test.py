"""The test a confined process makes of itself before it serves: it tries to change files and must fail.

Room: from where it tries, and the judgement. What is tried: ``attempts.py``; on what: ``victims.py``.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.sandbox import attempts
from sessiontree.sandbox.victims import NAMES, Trace, differences, traces

REFUSALS: Final = frozenset({errno.errorcode[number] for number in (errno.EACCES, errno.EPERM)})
"""What the kernel says when it refuses; any other failure proves nothing."""
TIMEOUT_S: Final = 10.0
"""How long each way of trying may take."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way of changing a file, tried once."""

    route: str
    """From where: ``this thread``, ``fresh thread``, ``ready thread`` or ``subprocess``."""
    name: str
    """What was tried, such as ``truncate``."""
    outcome: str
    """``succeeded``, the name of the errno, or ``untried``."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What a self-test found."""

    attempts: tuple[Attempt, ...]
    """Every route with every attempt, in the order they were made."""
    changes: tuple[str, ...]
    """What was seen to change meanwhile, one line each."""

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


def self_test(directory: Path, ready: Executor) -> SelfTest:
    """Try to change files in every way from this thread, a fresh one, a ready one and a subprocess.

    Blocks for some 0.1 s; meant for the moment before a process serves.

    Args:
        directory: With the victims of ``prepare_victims``, prepared by somebody outside for this test alone.
        ready: Has a thread already, made as early as any.

    Returns:
        What came of it. Nothing is raised because an attempt succeeded; see ``SelfTest.require``.

    Raises:
        ConfigError: the victims are not there, can't be read, or belong to somebody else, so that a refusal
            would prove nothing.
    """
    try:
        before = traces(directory)
    except OSError as error:
        raise ConfigError(f"can't read the victims of the self-test: {error}") from error
    _check_victims(directory, before)
    routes: dict[str, Callable[[Path], dict[str, str]]] = {
        "this thread": attempts.try_all,
        "fresh thread": _in_fresh_thread,
        "ready thread": lambda folder: ready.submit(attempts.try_all, folder).result(TIMEOUT_S),
        "subprocess": _in_subprocess,
    }
    made = []
    for route, run in routes.items():
        outcomes = run(directory)
        made += [Attempt(route, name, outcomes.get(name, "untried")) for name in attempts.ATTEMPTS]
    try:
        changes = differences(before, traces(directory))
    except OSError as error:
        changes = [f"the victims can't be read any more: {error}"]
    return SelfTest(tuple(made), tuple(changes))


def _check_victims(directory: Path, seen: tuple[Trace, ...]) -> None:
    names = {trace.name for trace in seen} - {"."}
    if names != NAMES:
        raise ConfigError(f"can't test in {str(directory)!r}: its victims are not as they were prepared")
    user = os.geteuid()
    if user != 0 and any(trace.owner[0] != user for trace in seen):
        raise ConfigError(
            f"can't test in {str(directory)!r}: it belongs to another user, who alone may write"
        )


def _in_fresh_thread(folder: Path) -> dict[str, str]:
    answer: Future[dict[str, str]] = Future()
    thread = Thread(target=lambda: answer.set_result(attempts.try_all(folder)), daemon=True)
    thread.start()
    return answer.result(TIMEOUT_S)


def _in_subprocess(folder: Path) -> dict[str, str]:
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, this package's own file
            [sys.executable, "-I", "-S", attempts.__file__, str(folder)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        outcomes = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}  # untried, and so a fault
    return {str(name): str(outcome) for name, outcome in outcomes.items()}
