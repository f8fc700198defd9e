"""Build the tables of coverage: each row of ``coverage_rows.md``, with the tests whose marker names it.

A test says ``@pytest.mark.covers("A12", "REL-P6")``; the rows of these ids cite it. What a row says is
written by hand, and its tests are not kept anywhere. Usage, in the checkout:
``python -m tests.system.house.coverage_program`` writes ``build/coverage.md``.

A marker may also name a statement of a page of ``docs/``, such as ``JAIL5``; no table lists these. An id
means one thing: a row (one letter and a number, or ``REL-``) or a statement (three or four letters and a
number). A marker whose id is both is refused, because nobody could tell which is meant; give the statement
another id.

The exit code is 1 when a marker names an id that neither a row nor a page has, or that both have.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROWS_FILE = Path("tests", "system", "house", "coverage_rows.md")
"""The rows without their tests."""
TABLES = Path("build", "coverage.md")
"""Where the tables are written."""
LINE = re.compile(r"^\| ([A-Z]\d+|REL-[PSL]\d+) \|(.*)\|$", re.MULTILINE)
"""One row: the id, and the cells after it; the last one is what is later, and tests come before it."""
HEADING = re.compile(r"^\| (?:row|rule) \|.*\|$|^\|(?:---\|)+$", re.MULTILINE)
"""The two lines above the rows of a table."""

PAGES = Path(__file__).resolve().parents[3] / "docs"
STATEMENT = re.compile(r"^- ([A-Z]+\d+)\. ", re.MULTILINE)
"""A statement of a page. Any number of letters is read, so that one with the id of a row is noticed."""


def covering_tests(files: Iterable[Path], checkout: Path) -> dict[str, list[str]]:
    """Return id to the tests whose marker names it, as ``path::test``, by path and line.

    Args:
        files: Modules of tests.
        checkout: What the paths are relative to.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(files):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path.relative_to(checkout).as_posix()}::{node.name}"
                for word in _ids(node):
                    found.setdefault(word, []).append(name)
    return found


def _ids(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [
        ast.literal_eval(word)
        for mark in test.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.covers"
        for word in mark.args
    ]


def unknown_ids(text: str, covering: Mapping[str, list[str]], pages: str | None = None) -> list[str]:
    """Return a line for every test whose marker names an id that is unknown, or a row and a statement.

    Args:
        text: The rows.
        covering: Ids and the tests that name them.
        pages: Text with the statements; None = the pages of ``docs/``.
    """
    if pages is None:
        pages = "\n".join(page.read_text("utf-8") for page in PAGES.glob("*.md"))
    statements = set(STATEMENT.findall(pages))
    rows = {line[1] for line in LINE.finditer(text)}
    wrong = dict.fromkeys(covering.keys() - rows - statements, "is in no row")
    wrong |= dict.fromkeys(covering.keys() & rows & statements, "is a row and a statement")
    return sorted(f"{test}: {word} {why}" for word, why in wrong.items() for test in covering[word])


def add_tests(text: str, covering: Mapping[str, list[str]]) -> str:
    """Return the rows as tables with a column of tests, before the last one."""

    def insert(line: str, cell: str) -> str:
        *cells, later = line.removesuffix("|").split("|")
        return f"{'|'.join([*cells, cell, later])}|"

    def add(row: re.Match[str]) -> str:
        tests = ", ".join(f"`{test}`" for test in covering.get(row[1], []))
        return insert(row[0], f" {tests} " if tests else " ")

    text = HEADING.sub(lambda line: insert(line[0], "---" if "---" in line[0] else " tests "), text)
    return LINE.sub(add, text)


def main(checkout: Path) -> int:
    """Write the tables of a checkout; return the exit code."""
    text = (checkout / ROWS_FILE).read_text("utf-8")
    covering = covering_tests((checkout / "tests").rglob("test_*.py"), checkout)
    wrong = unknown_ids(text, covering)
    if not wrong:
        tables = checkout / TABLES
        tables.parent.mkdir(exist_ok=True)
        tables.write_text(add_tests(text, covering), "utf-8")
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
