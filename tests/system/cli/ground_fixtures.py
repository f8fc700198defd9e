"""Directories to survey, and what is in them, counted without the survey."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Counts:
    """Amounts of the Python files below a directory."""

    files: int
    lines: int
    functions: int
    todos: int


def make_ground(root: Path, folders: int, files: int) -> Path:
    """Write a directory of folders of small Python files, and one file in the root."""
    for folder in range(folders):
        place = root / f"part{folder:03}"
        place.mkdir(parents=True)
        for number in range(files):
            lines = [f"# TODO: mend {number}", f"def work_{number}(given):", "    return given"]
            lines += [f"value_{extra} = {extra}" for extra in range(number % 5)]
            (place / f"step{number:03}.py").write_text("\n".join(lines) + "\n")
    (root / "setup.py").write_text("def main():\n    pass\n")
    return root


def count(root: Path) -> Counts:
    """Count what the Python files below a directory hold."""
    texts = [path.read_text() for path in root.rglob("*.py")]
    return Counts(
        len(texts),
        sum(text.count("\n") for text in texts),
        sum(len(re.findall(r"^def ", text, re.MULTILINE)) for text in texts),
        sum(text.count("TODO") for text in texts),
    )


def counted(report: str) -> Counts:
    """Read the same amounts from a report."""
    row = re.search(r"^\| `Python` \|(.*)\|$", report, re.MULTILINE)
    notes = re.search(r"^- Notes: ([\d,]+) ", report, re.MULTILINE)
    assert row is not None
    assert notes is not None
    numbers = [int(cell.replace(",", "")) for cell in row[1].split("|")]
    # files, lines, code, comments, blank, functions, …
    return Counts(numbers[0], numbers[1], numbers[5], int(notes[1].replace(",", "")))
