"""A run that is mended from 91 % coverage to 100 %, by the commands that a person would type.

``python -m tests.system.bench.mending.mended_run_program`` prints the transcript that docs/mending.md shows.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = """from sessiontree import FunctionModel
from sessiontree.bench import Sample, Score, Suite

KNOWN = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid"}
COUNTRIES = ["France", "Italy", "Spain"] * 7 + ["Atlantis", "Mordor"]


def answer(request):  # in place of a real model
    return KNOWN.get(request.messages[-1].text, "I don't know")


async def solve(attempt):
    if attempt.sample.input == "Mordor":
        raise KeyError("no map of Mordor")
    return await attempt.tree.main.send(attempt.sample.input)


def exact(attempt):
    return Score(attempt.output.index(attempt.sample.target) == 0, answer=attempt.output)


suite = Suite(
    "capitals",
    [Sample(f"c{n}", country, KNOWN.get(country, "nowhere")) for n, country in enumerate(COUNTRIES)],
    solve,
    exact,
    model=FunctionModel(answer, name="atlas"),
)
"""
SCORER = ("attempt.output.index(attempt.sample.target) == 0", "attempt.sample.target in attempt.output")
SOLVER = ('    if attempt.sample.input == "Mordor":\n        raise KeyError("no map of Mordor")\n', "")
STEPS: tuple[tuple[tuple[str, str] | None, str], ...] = (
    (None, "bench run capitals.py:suite --backend local --tag nightly"),
    (SCORER, "bench run capitals.py:suite --backend local"),
    (None, "bench rescore capitals --reason 'str.index raises where find does not'"),
    (SOLVER, "bench retry capitals --status error --accept-changes"),
    (None, "bench report capitals"),
    (None, "bench show capitals c21"),
    (None, "bench show capitals c22"),
)
"""What is changed in the suite's file, and the command that follows."""
HISTORY_LINES = 3
_CHANGING = (
    (re.compile(r"\bt[0-9a-f]{16}\b"), "t0"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "0"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b"), "0 s"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC on \S+"), "then"),
    (re.compile(r"Python 3[.\d]+"), "Python 3"),
    (re.compile(r" {2,}"), " "),
)


def transcript(folder: Path) -> str:
    """Run the commands in a folder, and return them with what they printed and their exit codes."""
    file = folder / "capitals.py"
    file.write_text(SUITE)
    said = []
    for change, words in STEPS:
        if change is not None:
            file.write_text(file.read_text().replace(*change))
            said.append(
                f"# capitals.py is changed: {'the scorer' if change is SCORER else 'the solver'} is mended"
            )
        said.append(f"$ sessiontree {words}\n{_output(folder, shlex.split(words))}")
    return "\n".join(said)


def _output(folder: Path, words: list[str]) -> str:
    command = [sys.executable, "-m", "sessiontree.cli", *words]
    environ = {**os.environ, "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stderr.splitlines() if line.startswith("sessiontree: ")]
    lines = [line.rstrip().replace(f"{folder}/", "") for line in [*done.stdout.splitlines(), *errors]]
    if words[1] == "show":  # its head and its history; tree and transcript follow
        first = next(number for number, line in enumerate(lines) if line.startswith("score "))
        lines = [*lines[:2], *lines[first : first + HISTORY_LINES]]
    return "\n".join([*lines, f"(exit code {done.returncode})"])


def without_what_changes(text: str) -> str:
    """Return a transcript without times, ids and digests."""
    for pattern, instead in _CHANGING:
        text = pattern.sub(instead, text)
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(transcript(Path(place)))  # noqa: T201 - its output
