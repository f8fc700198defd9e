"""Files and functions stay readable in one sitting, without exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

MAX_FILE_LINES = 900
SOFT_FILE_LINES = 600
"""A longer file says why in its docstring, in a sentence that begins with ``REASON``."""
REASON = "Long because"
MAX_FUNCTION_LINES = 80


def oversized(files: Iterable[Path]) -> list[str]:
    """Return one line for every file and function that is too long, in the order of the files."""
    found = []
    for path in files:
        text = path.read_text("utf-8")
        lines = len(text.splitlines())
        if lines > MAX_FILE_LINES:
            found.append(f"{path}: {lines} lines, at most {MAX_FILE_LINES}")
        elif lines > SOFT_FILE_LINES and REASON not in (ast.get_docstring(ast.parse(text)) or ""):
            found.append(f"{path}: {lines} lines; over {SOFT_FILE_LINES}, its docstring gives the reason")
        found += [
            f"{path}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
        ]
    return found


def test_every_shipped_file_and_function_is_small(shipped_modules: list[Path]) -> None:
    """No file over 900 lines, none over 600 without a reason, no function over 80 lines."""
    assert shipped_modules
    assert oversized(shipped_modules) == []


def test_a_long_file_is_found(tmp_path: Path) -> None:
    """600 lines pass and 601 do not; with a reason 900 pass and 901 do not."""
    fits, long, reasoned, endless = (tmp_path / f"{name}.py" for name in ("a", "b", "c", "d"))
    reason = '"""A table.\n\nLong because it is one table.\n"""\n'
    fits.write_text("x = 1\n" * SOFT_FILE_LINES)
    long.write_text("x = 1\n" * (SOFT_FILE_LINES + 1))
    reasoned.write_text(reason + "x = 1\n" * (MAX_FILE_LINES - 4))
    endless.write_text(reason + "x = 1\n" * (MAX_FILE_LINES - 3))
    assert oversized([fits, long, reasoned, endless]) == [
        f"{long}: 601 lines; over 600, its docstring gives the reason",
        f"{endless}: 901 lines, at most 900",
    ]


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
