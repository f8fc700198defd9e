"""Grounds for escapes, users to try them as, and jails that lack a part."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sessiontree.sandbox import jail
from sessiontree.sandbox.self_test import collect_traces, find_differences
from tests.unit.sandbox.escape_fixtures import CONTENT
from tests.unit.sandbox.escape_program import EVERY
from tests.unit.tools.conftest import nothing_left as nothing_left

CHECKOUT = Path(__file__).resolve().parents[3]
NOBODY = 65534
USERS = ("root", "nobody") if os.geteuid() == 0 else ("self",)
"""As whom the table is tried; only root may take another user's place."""
_SETPRIV = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
_READING = ("--inh-caps", "-all,+dac_read_search", "--ambient-caps", "-all,+dac_read_search")


@functools.cache
def as_user(user: str) -> tuple[str, ...]:
    """Return the words that start a program as a user.

    Where nobody can't reach the interpreter, nobody is also given the right to reach and read all files.
    """
    if user != "nobody":
        return ()
    program = "import sys; sys.exit(sys.base_prefix != sys.argv[1])"  # it may find another's library instead
    done = subprocess.run([*_SETPRIV, sys.executable, "-S", "-c", program, sys.base_prefix], cwd="/")
    return _SETPRIV if done.returncode == 0 else (*_SETPRIV, *_READING)


@dataclass(frozen=True, slots=True)
class Escape:
    """What came of the whole table in one process."""

    outcomes: dict[str, str]
    changes: dict[str, list[str]]
    """For each row, what was seen to change in its directory."""


@dataclass(frozen=True, slots=True)
class Prison:
    """Grounds prepared for one user."""

    root: Path
    user: str

    def jailed(self, *options: str) -> list[str]:
        """Return the words before a command that confine it as a worker would be."""
        hidden = ("--hide", str(self.root / "kept/hidden"), "--hide", str(self.root / "kept/secret.txt"))
        words = ("--write", str(self.root / "logs"), *hidden, *options, "--")
        return [sys.executable, "-I", "-S", jail.__file__, *words]

    def run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run words as the user."""
        return subprocess.run(
            [*as_user(self.user), *words], cwd=CHECKOUT, capture_output=True, text=True, timeout=240
        )

    def try_all(self, *before: str) -> Escape:
        """Run the whole table behind some words, such as those of ``jailed``."""
        rows = {name: self.root / "rows" / name for name in EVERY}
        seen = {name: collect_traces(folder) for name, folder in rows.items()}
        outside = subprocess.Popen([*as_user(self.user), "cat"], stdin=subprocess.PIPE)
        name = f"sessiontree-test-{os.getpid()}"
        program = [
            sys.executable,
            "-S",
            "-m",
            "tests.unit.sandbox.escape_program",
            str(self.root),
            str(outside.pid),
            name,
        ]
        try:
            with _listening("\0" + name), _listening(str(self.root / "socket")):
                done = self.run([*before, *program])
        finally:
            outside.communicate()
        assert done.returncode == 0, done.stderr
        changes = {
            name: find_differences(seen[name], collect_traces(folder)) for name, folder in rows.items()
        }
        return Escape(json.loads(done.stdout), changes)


def _listening(address: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    if not address.startswith("\0"):
        Path(address).chmod(0o777)
    return server


def prepare(root: Path, user: str) -> Prison:
    """Make grounds in an empty directory, and give them to the user."""
    for name in EVERY:
        row = root / "rows" / name
        (row / "empty").mkdir(parents=True)
        (row / "victim").write_bytes(CONTENT)
        (row / "to-hidden").symlink_to(root / "kept" / "hidden")
    (root / "logs").mkdir()
    (root / "logs" / "log").write_bytes(b"")
    secret = root / "kept" / "hidden" / "secret"
    secret.parent.mkdir(parents=True)
    secret.write_text("#!/bin/sh\nexit 0\n")
    secret.chmod(0o755)
    (root / "kept" / "secret.txt").write_text("text")
    if user == "nobody":
        for path in [root, *root.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return Prison(root, user)


@pytest.fixture(scope="module")
def make_prison() -> Iterator[Callable[[str], Prison]]:
    """Make grounds where every user can reach them; they are removed at the end."""
    made: list[Path] = []

    def make(user: str) -> Prison:
        made.append(Path(tempfile.mkdtemp(prefix="sessiontree-jail-", dir="/tmp")))
        made[-1].chmod(0o755)
        return prepare(made[-1], user)

    yield make
    for root in made:
        shutil.rmtree(root)
