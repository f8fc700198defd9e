"""The documents lead somewhere: what they name exists, and statements are numbered as they are cited."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

DOCUMENTS = (
    "ARCHITECTURE.md",
    "SEMANTICS.md",
    "CHANGELOG.md",
    "docs/agents.md",
    "tests/house/coverage_rows.md",
    "docs/hierarchies.md",
    "docs/notebooks.md",
    "docs/operators.md",
    "docs/programs.md",
    "docs/tools.md",
    "docs/traces.md",
    "docs/decisions",
)

NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|md|toml|lock|ipynb)))(?:::(\w+))?`")
"""A file, a folder (ending in a slash), or one test of a file."""
STATEMENT = re.compile(r"^- ([A-Z]+)(\d+)\. ", re.MULTILINE)
REFERENCE = re.compile(r"\b([A-Z]{3,4}\d+)\b")


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions on a module's top level."""
    body = ast.parse(path.read_text("utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(text: str, checkout: Path) -> list[str]:
    """Return what a text names in backticks and the checkout does not have.

    A path is beneath the checkout or beneath ``sessiontree/``.
    """
    found = []
    for name, function in NAMED.findall(text):
        here = [path for path in (checkout / name, checkout / "sessiontree" / name) if path.exists()]
        if not here or (name.endswith("/") and not here[0].is_dir()):
            found.append(name)
        elif function and function not in functions_of(here[0]):
            found.append(f"{name}::{function}")
    return found


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
def architecture(checkout: Path) -> str:
    """The text of ARCHITECTURE.md."""
    return (checkout / "ARCHITECTURE.md").read_text("utf-8")


def test_everything_a_document_names_exists(document: str, checkout: Path) -> None:
    """Files, folders and tests in backticks are there."""
    assert missing(document, checkout) == []


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


def test_decisions_are_numbered_without_gaps(checkout: Path) -> None:
    """The number of a decision's file is its number, in the heading too, and no two share one."""
    found = []
    for path in sorted((checkout / "docs/decisions").glob("[0-9]*.md")):
        heading = path.read_text("utf-8").splitlines()[0]
        number = int(path.name[:3])
        assert heading.startswith(f"# {number}. "), path.name
        found.append(number)
    assert found == list(range(1, len(found) + 1))


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
