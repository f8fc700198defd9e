"""The documents lead somewhere: what they name exists, every row of the specification has its line."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

DOCUMENTS = (
    "ARCHITECTURE.md",
    "SEMANTICS.md",
    "CHANGELOG.md",
    "docs/coverage.md",
    "docs/traces.md",
    "docs/decisions",
)
ROWS = tuple(
    f"{letter}{number}"
    for letter, last in (("C", 14), ("A", 43), ("I", 40), ("S", 55), ("U", 21), ("Z", 7))
    for number in range(1, last + 1)
)
"""Ids of the specification's rows: the card, the decision record, and the four seeds after it."""

NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|md|toml|lock|ipynb)))(?:::(\w+))?`")
"""A file, a folder (ending in a slash), or one test of a file."""
ROW = re.compile(r"^\| ([A-Z]\d+) \|(.*)\|$", re.MULTILINE)
RULE = re.compile(r"^\| (REL-\w+) \|(.*)\|$", re.MULTILINE)
STATEMENT = re.compile(r"^- ([A-Z]+)(\d+)\. ", re.MULTILINE)
REFERENCE = re.compile(r"\b([A-Z]{3,4}\d+)\b")


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions on a module's top level."""
    body = ast.parse(path.read_text("utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(text: str, checkout: Path) -> list[str]:
    """Return what a text names in backticks and the checkout does not have.

    A path stands beneath the checkout or beneath ``sessiontree/``.
    """
    found = []
    for name, function in NAMED.findall(text):
        here = [path for path in (checkout / name, checkout / "sessiontree" / name) if path.exists()]
        if not here or (name.endswith("/") and not here[0].is_dir()):
            found.append(name)
        elif function and function not in functions_of(here[0]):
            found.append(f"{name}::{function}")
    return found


def wrong_rows(text: str) -> list[str]:
    """Return what is wrong with the table of rows: ``| id | what | files | tests | later |``."""
    lines = [(found[1], [cell.strip() for cell in found[2].split("|")]) for found in ROW.finditer(text)]
    counted = Counter(row for row, _ in lines)
    wrong = [f"{row} stands there {counted[row]} times" for row in ROWS if counted[row] != 1]
    wrong += [f"{row} is no row" for row in counted if row not in ROWS]
    for row, cells in lines:
        if len(cells) != 4:
            wrong.append(f"{row} has {len(cells)} cells after its id")
            continue
        _, files, tests, later = cells
        if not later and not (NAMED.search(files) and NAMED.search(tests)):
            wrong.append(f"{row} has no test and nothing later")
        if any(name.startswith("tests/") for name, _ in NAMED.findall(files)):
            wrong.append(f"{row} is built in a test")
        if any(not name.startswith("tests/") or not test for name, test in NAMED.findall(tests)):
            wrong.append(f"{row} is shown by something that is no test")
    return wrong


def covering_tests(files: Iterable[Path], checkout: Path) -> dict[str, set[str]]:
    """Return id to the tests that ``@pytest.mark.covers(id, …)`` says hold it, as ``path::test``."""
    found: dict[str, set[str]] = {}
    for path in files:
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = f"{path.relative_to(checkout).as_posix()}::{node.name}"
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.covers":
                    for word in mark.args:
                        found.setdefault(ast.literal_eval(word), set()).add(name)
    return found


def wrong_citations(text: str, covering: Mapping[str, set[str]]) -> list[str]:
    """Return the rows that markers name and that do not cite exactly the tests with those markers."""
    cited = {}
    for found in (*ROW.finditer(text), *RULE.finditer(text)):
        tests = found[2].split("|")[-2]
        cited[found[1]] = {f"{name}::{test}" for name, test in NAMED.findall(tests)}
    wrong = [f"{row} is no row" for row in covering if row not in cited]
    for row, tests in covering.items():
        wrong += [f"{row} should cite {test}" for test in sorted(tests - cited.get(row, tests))]
        wrong += [
            f"{row} cites {test}, which has no marker" for test in sorted(cited.get(row, tests) - tests)
        ]
    return wrong


def wrong_statements(text: str) -> list[str]:
    """Return statements that are not numbered 1, 2, 3 … within their letters, and references to none."""
    last: Counter[str] = Counter()
    wrong = []
    for letters, number in STATEMENT.findall(text):
        last[letters] += 1
        if int(number) != last[letters]:
            wrong.append(f"{letters}{number} should be {letters}{last[letters]}")
    known = {f"{letters}{number}" for letters, number in STATEMENT.findall(text)}
    mentioned = [name for name in REFERENCE.findall(text) if name.rstrip("0123456789") in last]
    return wrong + [f"{name} is no statement" for name in mentioned if name not in known]


@pytest.fixture(scope="module", params=DOCUMENTS)
def document(request: pytest.FixtureRequest, checkout: Path) -> str:
    """The text of each document."""
    path = checkout / request.param
    files = sorted(path.glob("*.md")) if path.is_dir() else [path]
    return "\n".join(file.read_text("utf-8") for file in files)


@pytest.fixture(scope="module")
def coverage(checkout: Path) -> str:
    """The text of docs/coverage.md."""
    return (checkout / "docs" / "coverage.md").read_text("utf-8")


@pytest.fixture(scope="module")
def architecture(checkout: Path) -> str:
    """The text of ARCHITECTURE.md."""
    return (checkout / "ARCHITECTURE.md").read_text("utf-8")


def test_everything_a_document_names_exists(document: str, checkout: Path) -> None:
    """Files, folders and tests in backticks are there."""
    assert missing(document, checkout) == []


def test_every_row_of_the_specification_stands_there_once(coverage: str) -> None:
    """Each row says where it is built and which test shows it, or what is still missing."""
    assert wrong_rows(coverage) == []


def test_rows_cite_the_tests_that_say_so(coverage: str, checkout: Path) -> None:
    """Where a marker names a row or a rule, its line cites the tests with that marker and no others."""
    covering = covering_tests(sorted((checkout / "tests").rglob("test_*.py")), checkout)
    assert covering
    assert wrong_citations(coverage, covering) == []


@pytest.mark.parametrize(
    ("covering", "wrong"),
    [
        ({"C7": {"tests/a.py::test_a"}}, []),
        ({"C7": {"tests/a.py::test_b"}}, ["should cite", "has no marker"]),
        ({"C7": {"tests/a.py::test_a", "tests/a.py::test_b"}}, ["should cite"]),
        ({"C9": {"tests/a.py::test_a"}}, ["is no row"]),
        ({"REL-P6": {"tests/a.py::test_c"}}, []),
    ],
)
def test_planted_citation_is_found(covering: dict[str, set[str]], wrong: list[str]) -> None:
    """A marked test that is not cited, a cited one without the marker, and an unknown id are found."""
    text = "| C7 | what | `a.py` | `tests/a.py::test_a` | |\n| REL-P6 | what | `tests/a.py::test_c` | |\n"
    found = wrong_citations(text, covering)
    assert [words in line for words, line in zip(wrong, found, strict=True)] == [True] * len(wrong)


def test_every_room_has_its_line(architecture: str, checkout: Path) -> None:
    """The table of floors knows every folder and module right beneath the package."""
    floors = architecture.partition("## Floors")[2].partition("\n## ")[0]
    entries = [path for path in (checkout / "sessiontree").iterdir() if not path.name.startswith("_")]
    rooms = {f"{path.name}/" if path.is_dir() else path.name for path in entries if path.name != "py.typed"}
    assert rooms - {name for name, _ in NAMED.findall(floors)} == set()


def test_statements_are_numbered_and_cited_as_they_are(checkout: Path) -> None:
    """A number can be cited: within its letters it is the next, and every citation leads to one."""
    text = (checkout / "SEMANTICS.md").read_text("utf-8")
    assert len(STATEMENT.findall(text)) >= 100
    assert wrong_statements(text) == []


@pytest.mark.parametrize(
    "named",
    [
        "runtime/nowhere.py",
        "nowhere/",
        "runtime/tree_controller.py/",
        "tests/house/test_docs_trace.py::test_nowhere",
        "NOWHERE.md",
    ],
)
def test_planted_dead_end_is_found(checkout: Path, named: str) -> None:
    """A file, a folder, a file taken for a folder, a test and a document that are not there are found."""
    known = "`runtime/tree_controller.py`, `tests/house/`, `pyproject.toml`"
    text = f"See {known} and `{named}`; not `main/b1/w2` or `a.b`."
    assert missing(text, checkout) == [named]


GOOD = "| `runtime/tree_controller.py` | `tests/house/test_docs_trace.py::test_planted_row_is_found` | |"


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        (f"| C1 | what {GOOD}\n| C1 | what {GOOD}", "C1 stands there 2 times"),
        (f"| C1 | what {GOOD}\n| C99 | what {GOOD}", "C99 is no row"),
        ("", "C1 stands there 0 times"),
        ("| C1 | what | | | |", "C1 has no test and nothing later"),
        (
            "| C1 | what | `runtime/tree_controller.py` | | |",
            "C1 has no test and nothing later",
        ),
        ("| C1 | what | `tests/house/conftest.py` | | later |", "C1 is built in a test"),
        ("| C1 | what | | `tests/house/conftest.py` | later |", "C1 is shown by something that is no test"),
        ("| C1 | what | |", "C1 has 2 cells after its id"),
    ],
)
def test_planted_row_is_found(planted: str, complaint: str) -> None:
    """A row that is missing, doubled, unknown, empty or misplaced is found, and nothing else is."""
    others = "\n".join(f"| {row} | what | | | later |" for row in ROWS if row != "C1")
    assert wrong_rows(f"{others}\n{planted}\n") == [complaint]


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("- ORD1. first\n- ORD3. third", "ORD3 should be ORD2"),
        ("- ORD1. first\n- ORD1. again", "ORD1 should be ORD2"),
        ("- ORD1. first, see ORD7", "ORD7 is no statement"),
    ],
)
def test_planted_number_is_found(planted: str, complaint: str) -> None:
    """A gap, a repeat and a citation of nothing are found; words such as ADR-0004 are no citations."""
    assert wrong_statements(f"{planted}\nas in ADR-0004\n") == [complaint]
