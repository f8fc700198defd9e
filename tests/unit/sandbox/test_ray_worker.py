"""A worker of a real Ray behind the launcher: it serves as any other, and can't change a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree.sandbox import detect_level
from sessiontree.sandbox.write_probes import ATTEMPTS
from tests.unit.sandbox.conftest import CHECKOUT

pytestmark = pytest.mark.slow

TIMEOUT_S = 300


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    """What the program with the private Ray saw; a process of its own, so that no other test's Ray is met."""
    home = Path(tempfile.mkdtemp(prefix="stj-", dir="/tmp"))  # short: sockets lie beneath it
    command = [sys.executable, "-m", "tests.unit.sandbox.ray_program", str(home)]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(home / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    try:
        done = subprocess.run(
            command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_confined_actor_has_the_level_the_kernel_offers(found: dict[str, Any]) -> None:
    """The actor runs, and what holds it is what this kernel can do at best."""
    assert found["level"] == str(detect_level())


def test_confined_actor_serves(found: dict[str, Any]) -> None:
    """Calls, big answers through shared memory, the object store and log files work."""
    assert (found["given"], found["kept"], found["logged"]) == (5_000_000, 300_000, "a line")


def test_confined_actor_changes_no_file(found: dict[str, Any]) -> None:
    """From the loop, asyncio's threads, an early thread, a fresh one and a subprocess: all is refused."""
    assert found["faults"] == []
    assert found["in a thread"] == ["EACCES", "EPERM"]
    assert found["untouched"] == [True, True]


@pytest.mark.covers("REL-L71", "JAIL4")
def test_confined_actor_does_not_read_journal_and_token(found: dict[str, Any]) -> None:
    """State and Ray's token are hidden, though the actor talks to Ray with that token; a neighbour is not."""
    assert (found["journal"], found["token"]) == ("PermissionError", "PermissionError")
    assert found["beside"] == "ab" * 32


def test_actor_started_again_is_confined_again(found: dict[str, Any]) -> None:
    """After SIGKILL from outside Ray starts another process, by the same words."""
    assert found["after a kill"] == [True, str(detect_level())]
    assert found["faults after a kill"] == []


def test_child_of_a_confined_actor_is_confined(found: dict[str, Any]) -> None:
    """An actor started from inside without words of its own inherits them."""
    assert found["child's level"] == str(detect_level())


def test_free_actor_is_found_out(found: dict[str, Any]) -> None:
    """Planted bug: the same actor without the launcher fails its self-test in every attempt."""
    told = "; ".join(found["faults of a free actor"])
    assert all(f"{name} from this thread: succeeded" in told for name in ATTEMPTS)
