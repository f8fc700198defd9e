"""A command that is not open runs only scripts that its words name: bash and dash run generated ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from sessiontree.policy.commands.named_words import NamedWords, collect_words
from sessiontree.sandbox.commands.environment import SYSTEM_PATH, make_fresh_environment
from sessiontree.sandbox.commands.named_files import read_named_files
from tests.unit.sandbox.shell_grammar_strategies import drawn, make_workspace

Read = Callable[[str], NamedWords]
SHELLS = [path for name in ("bash", "dash") if (path := shutil.which(name, path="/usr/bin:/bin"))]


def read(text: str) -> NamedWords:
    """Return the words of a command that sets no variables."""
    return collect_words(text, {})


def stray(shell: str, text: str, named: NamedWords, place: Path) -> set[str]:
    """Run a text in a fresh workspace; return the scripts that ran although no word names them."""
    workspace = _fresh(place)
    found = read_named_files(str(workspace), str(workspace), named.words)
    if found is None:
        return set()
    real = {os.path.realpath(path) for path in found}
    return {name for name in _run(shell, text, place) if str(workspace / name) not in real}


def _ran(shell: str, text: str, place: Path) -> set[str]:
    _fresh(place)
    return _run(shell, text, place)


def _fresh(place: Path) -> Path:
    workspace = place / "ws"
    shutil.rmtree(workspace, ignore_errors=True)
    make_workspace(workspace, place / "log")
    return workspace


def _run(shell: str, text: str, place: Path) -> set[str]:
    """Run a text in the workspace; return the scripts that ran."""
    workspace, log = place / "ws", place / "log"
    log.write_bytes(b"")
    env = make_fresh_environment(SYSTEM_PATH, str(workspace), {}) | {"HOME": str(place / "home")}
    reads, writes = os.pipe()  # held by whatever it starts, in the background too
    subprocess.run(
        [shell, "-c", text], cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, pass_fds=[writes], check=False, timeout=120, env=env,
    )  # fmt: skip
    os.close(writes)
    while os.read(reads, 1):
        pass
    os.close(reads)
    return {each.decode() for each in log.read_bytes().split(b"\0") if each}


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


@pytest.mark.slow
@pytest.mark.covers("APP7")
def test_what_is_not_open_runs_only_what_is_named(tmp_path: Path) -> None:
    """Quotes, braces, patterns, variables, documents, wrappers and options, by chance."""
    assert check(read, tmp_path, seed=11, tried=80) > 15


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_what_is_not_open_runs_only_what_is_named_at_length(tmp_path: Path, seed: int) -> None:
    """The same with some ten thousand commands."""
    assert check(read, tmp_path, seed=seed, tried=4_000) > 500


def _never_open(text: str) -> NamedWords:
    """Planted: a reader for which every command is literal."""
    return NamedWords(read(text).words, "")


def _without(reason: str) -> Read:
    """Return a planted bug: a reader that does not open a command for one reason."""

    def reads(text: str) -> NamedWords:
        named = read(text)
        return NamedWords(named.words, "" if reason in named.why_open else named.why_open)

    return reads


@pytest.mark.slow
def test_planted_reader_is_found(tmp_path: Path) -> None:
    """The property fails for a reader that opens nothing."""
    with pytest.raises(AssertionError):
        check(_never_open, tmp_path, seed=11, tried=80)


@pytest.mark.long
@pytest.mark.parametrize(
    "reason",
    ["the shell computes", "takes from elsewhere", "may change", "changes what words", "by the shell"],
)
def test_planted_readers_are_found(tmp_path: Path, reason: str) -> None:
    """The property also fails for a reader that misses one reason."""
    with pytest.raises(AssertionError):
        check(_without(reason), tmp_path, seed=3, tried=4_000)


FOUND = (
    ("sh $USER.sh", "session.sh"),
    ("((x=1+1)); sh run$x.sh", "run2.sh"),
    ("x=1; ((x++)); sh run$x.sh", "run2.sh"),
    ("sh run$((1+1)).sh", "run2.sh"),
    ("sh run$[1+1].sh", "run2.sh"),
    ("sh `echo r`un.sh", "run.sh"),
    ("shopt -s nocaseglob; for f in RU*; do sh $f; done", "run.sh"),
    ("GLOBIGNORE=.x; sh *un.sh", ".run.sh"),
    ("bash -O dotglob -c 'for f in *; do sh $f; done'", ".run.sh"),
    ("sh {x\\,y,z}.sh", "x,y.sh"),
    ("sh {+1..+2}.sh", "1.sh"),
    ("echo -n 'sh ru' >v; echo n.sh >>v; sh v", "run.sh"),
    ("printf 'sh run%s.sh' 3 | (cd .; sh)", "run3.sh"),
    ("sh $'run.sh\\0x'", "run.sh"),
    ("x=1; : ${x:=2} $((x=3)); sh run$x.sh", "run3.sh"),
    ("x=1; exec {x}</dev/null; sh $x.sh", "10.sh"),
    ("cd sub; sh ${PWD##*/}/run.sh; sh ../${PWD##*/}n.sh", "subn.sh"),
    ("IFS=x; a=shxrun9.sh; $a", "run9.sh"),
    ("f() { sh run${1}.sh; }; f 9", "run9.sh"),
    ("x=9; set -- run$x; sh $1.sh", "run9.sh"),
    ("command eval 'sh ru'n.sh", "run.sh"),
    ("env -S 'sh\\_run9.sh'", "run9.sh"),
)
"""Commands that run a script which their words, read literally, do not name."""


def test_what_runs_more_than_its_words_name_is_open(tmp_path: Path) -> None:
    """APP7: so a yes to it is bound to every file."""
    (tmp_path / "home").mkdir()
    for text, name in FOUND:
        named = read(text)
        assert named.is_open, text
        assert name in _ran(SHELLS[0], text, tmp_path), text
