"""A command that is not open runs no script but those its words name: bash and dash run generated commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from sessiontree.policy.commands import shell_names
from sessiontree.policy.commands.named_words import NamedWords, words_in
from sessiontree.sandbox.environment import HOME, SYSTEM_PATH, fresh_environment
from sessiontree.sandbox.named_files import files_of
from tests.sandbox.shell_grammar import drawn, make_workspace

Read = Callable[[str], NamedWords]
SHELLS = [path for name in ("bash", "dash") if (path := shutil.which(name, path="/usr/bin:/bin"))]


def read(text: str) -> NamedWords:
    """Return the words of a command that sets no variables."""
    return words_in(text, {})


def stray(shell: str, text: str, named: NamedWords, place: Path) -> set[str]:
    """Run a text in a fresh workspace; return the scripts that ran although no word names them."""
    workspace, log = place / "ws", place / "log"
    shutil.rmtree(workspace, ignore_errors=True)
    make_workspace(workspace, log)
    log.write_bytes(b"")
    found = files_of(str(workspace), str(workspace), named.words)
    real = {os.path.realpath(path) for path in found or ()}
    env = fresh_environment(SYSTEM_PATH, str(workspace), {}) | {"HOME": str(place / "home")}
    reads, writes = os.pipe()  # held by whatever it starts, in the background too
    subprocess.run(
        [shell, "-c", text], cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, pass_fds=[writes], check=False, timeout=120, env=env,
    )  # fmt: skip
    os.close(writes)
    while os.read(reads, 1):
        pass
    os.close(reads)
    ran = {each.decode() for each in log.read_bytes().split(b"\0") if each}
    if found is None:
        return set()
    return {name for name in ran if str(workspace / name) not in real}


def check(reads: Read, place: Path, seed: int, tried: int) -> int:
    """Property: APP7, what is not open runs only what is named; returns how many commands ran."""
    chance = Random(seed)
    (place / "home").mkdir(exist_ok=True)
    count = 0
    for text in dict.fromkeys(drawn(chance) for _ in range(tried)):
        named = reads(text)
        if named.is_open:
            continue
        for shell in SHELLS[: 1 if "$'" in text else 2]:  # which only bash reads, and it runs the outer text
            count += 1
            assert stray(shell, text, named, place) == set(), (shell, text)
    return count
