"""What the judge calls harmless, done: with every option they may have, programs leave all as it was."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from random import Random

import pytest

from sessiontree.policy.commands.verdict import HARMLESS, PROGRAMS, judge
from sessiontree.sandbox import CommandShell
from sessiontree.sandbox.commands.environment import SYSTEM_PATH, make_program_finder

NAMES = ("a", "b", "d", "new", "-", "1", "+x", "d/c", "o=a", "--", "a:b")
LONG_S = 120.0


def drawn(chance: Random, name: str) -> list[str]:
    """Return a call of a program with options of its grammar and names of files, there or not."""
    grammar = PROGRAMS[name].grammar
    letters = [f"-{each}" for each in grammar.flags + grammar.valued]
    longs = [f"--{each}" for each in grammar.long_flags | grammar.long_valued | grammar.long_either]
    pool = sorted([*letters, *longs, *(f"{each}={value}" for each in longs for value in ("new", "1"))])
    options = chance.sample(pool, k=min(len(pool), chance.randint(0, 3)))
    return [name, *options, *chance.choices(NAMES, k=chance.randint(0, 3))]


def harmless_lines(place: Path, count: int, seed: int = 3) -> list[str]:
    """Return so many calls that the judge calls harmless, each program among them."""
    chance, find = Random(seed), make_program_finder(str(place), SYSTEM_PATH)
    lines: list[str] = []
    while len(lines) < count:
        line = shlex.join(drawn(chance, HARMLESS[len(lines) % len(HARMLESS)]))
        if judge(line, find).is_harmless:
            lines.append(line)
    return lines


def contents(place: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return every file and directory with what it holds, its mode and its time."""
    found = {}
    for path in sorted(place.rglob("*")):
        about = path.stat()
        found[str(path)] = (path.read_bytes() if path.is_file() else b"", about.st_mode, about.st_mtime_ns)
    return found


def run_all(place: Path, lines: list[str]) -> str:
    """Run each call for a second at most, all in one sandbox; returns what they said."""
    script = "".join(f"timeout 1 {line} </dev/null 2>&1 | head -c 200\n" for line in lines)
    shell = CommandShell(place)
    finished = asyncio.run(shell.run(script + "echo all done\n", timeout_s=LONG_S))
    assert finished.head.endswith("all done\n") or finished.tail.endswith("all done\n"), finished
    return finished.head + finished.tail


def made(place: Path) -> Path:
    """Make a small workspace."""
    place.mkdir()
    (place / "d").mkdir()
    for name, text in {"a": "b\na\n", "b": "1 2\n", "d/c": "x\n"}.items():
        (place / name).write_text(text)
    return place


@pytest.mark.covers("REL-L28")
@pytest.mark.slow
def test_what_is_harmless_changes_nothing(tmp_path: Path) -> None:
    """Hundreds of calls, every program, options and operands by chance; some fail, none leaves a trace."""
    place = made(tmp_path / "workspace")
    before = contents(place)
    said = run_all(place, harmless_lines(place, 6 * len(HARMLESS)))
    assert contents(place) == before
    assert said.count("\n") > 6 * len(HARMLESS)


@pytest.mark.slow
def test_trace_would_be_seen(tmp_path: Path) -> None:
    """The same look at a workspace finds one wrong line among many."""
    place = made(tmp_path / "workspace")
    before = contents(place)
    run_all(place, [*harmless_lines(place, 5), "sort -o new a", "uniq a d/c"])
    assert {*contents(place)} - {*before} == {str(place / "new")}
    assert contents(place)[str(place / "d/c")] != before[str(place / "d/c")]


def options_of(name: str) -> list[tuple[str, bool]]:
    """Return the options of a program's grammar, and whether each must have a value."""
    grammar = PROGRAMS[name].grammar
    return [
        *((f"-{letter}", False) for letter in grammar.flags),
        *((f"-{letter}", True) for letter in grammar.valued),
        *((f"--{each}", False) for each in sorted(grammar.long_flags | grammar.long_either)),
        *((f"--{each}", True) for each in sorted(grammar.long_valued)),
    ]


@pytest.mark.covers("REL-L25")
@pytest.mark.slow
@pytest.mark.long
def test_grammars_are_those_of_the_programs(tmp_path: Path) -> None:
    """A value taken for an operand, or the other way round, would hide what is behind it."""
    asked = [
        (name, *option) for name in PROGRAMS if name not in {"echo", "true"} for option in options_of(name)
    ]
    script = "".join(
        f"timeout 15 env {name} {option} </dev/null 2>&1 >/dev/null | head -c 300; printf '\\1'\n"
        for name, option, _ in asked
    )
    half = script.count("\n") // 2
    lines = script.splitlines(keepends=True)
    told: list[str] = []
    for part in (lines[:half], lines[half:]):  # a command has a longest length
        shell = CommandShell(tmp_path)
        said = asyncio.run(shell.run("".join(part), timeout_s=LONG_S, keep_bytes=1_000_000))
        told += said.head.split("\1")[:-1]
    for (name, option, has_value), words in zip(asked, told, strict=True):
        is_unknown = "unrecognized option" in words or "invalid option" in words  # by an older version
        assert is_unknown or ("requires an argument" in words) is has_value, (name, option, words)
    assert sum("requires an argument" in words for words in told) > 100
