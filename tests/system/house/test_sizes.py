"""Files, classes and functions stay readable in one sitting, without exceptions."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

MAX_FILE_LINES = 900
SOFT_FILE_LINES = 600
"""A longer file says why in its docstring, in a sentence that begins with ``REASON``."""
REASON = "Long because"
MAX_FUNCTION_LINES = 80
MAX_CLASS_LINES = 400
MAX_METHODS = 25
"""Properties and overloads are counted, inherited methods are not."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


def walls(files: Iterable[Path]) -> list[str]:
    """Return one line for every class that is too large, in the order of the files.

    A protocol whose methods have no bodies only declares, and may be as long as what it declares.
    """
    found = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ClassDef) or _only_declares(node):
                continue
            methods = sum(isinstance(each, FUNCTIONS) for each in node.body)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if methods > MAX_METHODS:
                found.append(
                    f"{path}:{node.lineno}: {node.name} has {methods} methods, at most {MAX_METHODS}"
                )
            if lines > MAX_CLASS_LINES:
                found.append(
                    f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {MAX_CLASS_LINES}"
                )
    return found


def _only_declares(node: ast.ClassDef) -> bool:
    """Return whether a class is a protocol without code."""
    bases = [each.value if isinstance(each, ast.Subscript) else each for each in node.bases]
    return any(isinstance(each, ast.Name) and each.id == "Protocol" for each in bases) and all(
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
        for each in node.body
        if isinstance(each, FUNCTIONS)
        for line in each.body
    )


def test_every_shipped_class_is_small(shipped_modules: list[Path]) -> None:
    """No class over 25 methods or 400 lines: a part of it has a name of its own that a newcomer looks up."""
    assert shipped_modules
    assert walls(shipped_modules) == []


def test_every_shipped_file_and_function_is_small(shipped_modules: list[Path]) -> None:
    """No file over 900 lines, none over 600 without a reason, no function over 80 lines."""
    assert shipped_modules
    assert oversized(shipped_modules) == []


def test_long_file_is_found(tmp_path: Path) -> None:
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


def test_long_function_is_found_wherever_it_sits(tmp_path: Path) -> None:
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


METHOD = "    def run_{}(self):\n        return 1\n"


def test_wall_is_found(tmp_path: Path) -> None:
    """25 methods and 400 lines pass, one more of either does not, in a class in a class as well."""
    path = tmp_path / "room.py"
    fits = "".join(METHOD.format(number) for number in range(MAX_METHODS))
    path.write_text(f"class Fits:\n{fits}\nclass Many:\n{fits}    @property\n{METHOD.format('last')}")
    assert walls([path]) == [f"{path}:{2 * MAX_METHODS + 3}: Many has 26 methods, at most 25"]
    path.write_text("class Fits:\n" + "    x = 1\n" * (MAX_CLASS_LINES - 1))
    assert walls([path]) == []
    path.write_text("class Outer:\n    class Long:\n" + "        x = 1\n" * MAX_CLASS_LINES)
    assert walls([path]) == [
        f"{path}:1: Outer has 402 lines, at most 400",
        f"{path}:2: Long has 401 lines, at most 400",
    ]


def test_protocol_that_declares_is_no_wall(tmp_path: Path) -> None:
    """Its methods have a docstring or dots; one with a body makes a class of it."""
    path = tmp_path / "room.py"
    declared = "".join(
        f'    def run_{number}(self):\n        """Run."""\n        ...\n' for number in range(MAX_METHODS)
    )
    path.write_text(f"class Api(Protocol[T]):\n{declared}    async def ask(self): ...\n")
    assert walls([path]) == []
    path.write_text(f"class Api(Protocol):\n{declared}    async def ask(self): return 1\n")
    assert walls([path]) == [f"{path}:1: Api has 26 methods, at most 25"]
