"""Files and functions stay small; there is no list of exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80


def oversized(files: Iterable[Path]) -> list[str]:
    """Return one line for every file and function that is too long, in the order of the files."""
    found = []
    for path in files:
        text = path.read_text("utf-8")
        lines = len(text.splitlines())
        if lines > MAX_FILE_LINES:
            found.append(f"{path}: {lines} lines, at most {MAX_FILE_LINES}")
        found += [
            f"{path}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
        ]
    return found


def test_every_shipped_file_and_function_is_small(shipped_modules: list[Path]) -> None:
    """No file over 400 lines, no function over 80 lines."""
    assert shipped_modules
    assert oversized(shipped_modules) == []


def test_a_long_file_is_found(tmp_path: Path) -> None:
    """400 lines pass, 401 do not."""
    fits, long = tmp_path / "fits.py", tmp_path / "long.py"
    fits.write_text("x = 1\n" * MAX_FILE_LINES)
    long.write_text("x = 1\n" * (MAX_FILE_LINES + 1))
    assert oversized([fits, long]) == [f"{long}: 401 lines, at most 400"]


def test_a_long_function_is_found_wherever_it_sits(tmp_path: Path) -> None:
    """80 lines pass, 81 do not, in a class and async as well."""
    path = tmp_path / "room.py"
    body = "        x = 1\n"
    path.write_text(
        "class Room:\n    def fits(self):\n"
        + body * (MAX_FUNCTION_LINES - 1)
        + "    async def long(self):\n"
        + body * MAX_FUNCTION_LINES
    )
    assert oversized([path]) == [f"{path}:82: long has 81 lines, at most 80"]
