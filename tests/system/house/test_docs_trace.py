"""The documents lead somewhere: what they name exists, and statements are numbered as they are cited."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|md|toml|lock|ipynb|txt|json|yaml|sh)))(?:::(\w+))?`")
"""A file, a folder (ending in a slash), or one test of a file."""
PLAIN = re.compile(r"(?<![\w/.`~$-])((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|lock|ipynb|yaml|sh))(?![\w/])")
"""A path in a text or a command, without backticks."""
MODULE = re.compile(r"(?:`|-m )((?:sessiontree|benchmarks|tests)(?:\.\w+)+)")
"""A module, in backticks or behind ``python -m``; what follows it may be a name in it."""
LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")
"""A link; ``tests/system/docs/test_site.py`` follows it."""
MARKED = re.compile(r"@pytest\.mark\.covers\(([^)]*)\)")
READERS = frozenset(
    {
        "SURVEY.md",
        "first.py",
        "addition.py",
        "agents/",
        "dist/",
        "fetched/",
        "mutants/policy/survivors.txt",
        "skills/",
        "src/again.py",
        "suite.json",
        "suite.toml",
    }
)
"""Files and folders of the reader, and what commands write."""
GROUPS = frozenset(
    {
        "sessiontree.pth",
        "sessiontree.suites",
        "sessiontree.tools",
        "sessiontree.tree",
        "sessiontree.unfinished",
    }
)
"""Entry points, a file of the wheel, an attribute of spans: words of the form of a module."""
STATUS = re.compile(r"Status: (?:in force|replaced by (\d{3}))")
STATEMENT = re.compile(r"^- ([A-Z]+)(\d+)\. ", re.MULTILINE)
REFERENCE = re.compile(r"\b([A-Z]{3,4}\d+)\b")


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions on a module's top level."""
    body = ast.parse(path.read_text("utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(text: str, checkout: Path) -> list[str]:
    """Return what a text names and the checkout does not have: files, folders, modules and tests.

    A path is beneath the checkout or beneath ``sessiontree/``.
    """
    found = []
    named = [*NAMED.findall(text), *((name, "") for name in PLAIN.findall(LINK.sub(" ", text)))]
    for name, function in named:
        here = [path for path in (checkout / name, checkout / "sessiontree" / name) if path.exists()]
        if name in READERS:
            continue
        if not here or (name.endswith("/") and not here[0].is_dir()):
            found.append(name)
        elif function and function not in functions_of(here[0]):
            found.append(f"{name}::{function}")
    return found + [name for name in MODULE.findall(text) if not has_module(name, checkout)]


def has_module(name: str, checkout: Path) -> bool:
    """Return whether a dotted name is a module, or a name in one.

    A name in a package is written in its ``__init__``, in a module in the module itself.
    """
    if name in GROUPS:
        return True
    *parts, last = name.split(".")
    place = checkout.joinpath(*parts)
    if (place / last).is_dir() or (place / f"{last}.py").is_file():
        return True
    home = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return home.is_file() and re.search(rf"\b{last}\b", home.read_text("utf-8")) is not None


def wrong_statuses(decisions: dict[str, str]) -> list[str]:
    """Return the decisions whose second paragraph is not a status, or that no decision in force replaces.

    Args:
        decisions: The text of each decision by its number, such as ``"033"``.
    """
    found = []
    for number, text in decisions.items():
        status = STATUS.fullmatch([*text.split("\n\n"), ""][1])
        if status is None:
            found.append(
                f"{number}: its second paragraph is neither `Status: in force` nor `Status: replaced by NNN`"
            )
        elif status[1] is not None and status[1] not in decisions.keys() - {number}:
            found.append(f"{number}: replaced by {status[1]}, which is not there")
    return found


def statement_pages(checkout: Path) -> str:
    """Return the text of all pages with statements; the promises come first."""
    pages = sorted((checkout / "docs").glob("*.md"), key=lambda page: (page.name != "promises.md", page.name))
    return "\n".join(page.read_text("utf-8") for page in pages if page.name != "coverage.md")


def wrong_statements(text: str) -> list[str]:
    """Return what is wrong with the numbers of statements, and references to none.

    Within its letters each number from 1 is there once. They may be on several pages.
    """
    last: Counter[str] = Counter()
    wrong = []
    statements = STATEMENT.findall(text)
    for letters, number in sorted(statements, key=lambda each: (each[0], int(each[1]))):
        last[letters] += 1
        if int(number) != last[letters]:
            wrong.append(f"{letters}{number} should be {letters}{last[letters]}")
    known = {f"{letters}{number}" for letters, number in statements}
    mentioned = [name for name in REFERENCE.findall(text) if name.rstrip("0123456789") in last]
    return wrong + [f"{name} is no statement" for name in mentioned if name not in known]


def documents(checkout: Path) -> list[Path]:
    """Return every document: those at the top and those below ``docs/``."""
    return [*sorted(checkout.glob("*.md")), *sorted((checkout / "docs").rglob("*.md"))]


def promises(text: str) -> list[str]:
    """Return the ids of the promises of a page, without what it says is not promised."""
    return ["".join(each) for each in STATEMENT.findall(text.partition("\n## Not promised\n")[0])]


@pytest.fixture(scope="module")
def architecture(checkout: Path) -> str:
    """The text of ARCHITECTURE.md."""
    return (checkout / "ARCHITECTURE.md").read_text("utf-8")


def test_everything_a_document_names_exists(checkout: Path) -> None:
    """Files, folders, modules and tests are there."""
    found = {page.relative_to(checkout).as_posix(): page.read_text("utf-8") for page in documents(checkout)}
    assert len(found) > 90
    assert {page: names for page, text in found.items() if (names := missing(text, checkout))} == {}


def test_every_room_has_its_line(architecture: str, checkout: Path) -> None:
    """The table of floors knows every folder and module right beneath the package."""
    floors = architecture.partition("## Floors")[2].partition("\n## ")[0]
    entries = [path for path in (checkout / "sessiontree").iterdir() if not path.name.startswith("_")]
    rooms = {f"{path.name}/" if path.is_dir() else path.name for path in entries if path.name != "py.typed"}
    assert rooms - {name for name, _ in NAMED.findall(floors)} == set()


def test_statements_are_numbered_and_cited_as_they_are(checkout: Path) -> None:
    """A number can be cited: within its letters it is the next, and every citation leads to one."""
    text = statement_pages(checkout)
    assert len(STATEMENT.findall(text)) >= 400
    assert wrong_statements(text) == []


def test_every_promise_is_held_by_a_test(checkout: Path) -> None:
    """A marker of a test names it."""
    marks = [
        mark for path in (checkout / "tests").rglob("test_*.py") for mark in MARKED.findall(path.read_text())
    ]
    covering = {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}
    promised = promises((checkout / "docs" / "promises.md").read_text("utf-8"))
    assert 50 <= len(promised) <= 70
    assert [name for name in promised if name not in covering] == []


def test_promises_list_every_limit(checkout: Path) -> None:
    """Whoever reads the promises sees where they end: each limit is in the table of its page."""
    table = (checkout / "docs" / "promises.md").read_text("utf-8").partition("\n## Limits\n")[2]
    listed = set(REFERENCE.findall(table))
    for letters, first, last in re.findall(r"\b([A-Z]{3,4})(\d+) to [A-Z]{3,4}(\d+)", table):
        listed |= {f"{letters}{number}" for number in range(int(first), int(last) + 1)}
    limits = re.findall(r"^- ([A-Z]+\d+)\. Limits?:", statement_pages(checkout), re.MULTILINE)
    assert len(limits) > 40
    assert [name for name in limits if name not in listed] == []


def test_decisions_say_whether_they_are_in_force(checkout: Path) -> None:
    """A decision that another one replaced says which."""
    pages = sorted((checkout / "docs/decisions").glob("[0-9]*.md"))
    assert wrong_statuses({page.name[:3]: page.read_text("utf-8") for page in pages}) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# 1. A\n\n**Problem:** x\n", "neither"),
        ("# 1. A\n\nStatus: stale\n\n**Problem:** x\n", "neither"),
        ("# 1. A\n\nStatus: replaced by 9\n\n**Problem:** x\n", "neither"),
        ("# 1. A\n\nStatus: replaced by 009\n\n**Problem:** x\n", "not there"),
        ("# 1. A\n\nStatus: replaced by 001\n\n**Problem:** x\n", "not there"),
    ],
)
def test_planted_status_is_found(text: str, complaint: str) -> None:
    """No status, another word, another form of a number, a decision that is not there, and itself."""
    other = "# 2. B\n\nStatus: replaced by 001\n\n**Problem:** x\n"
    assert [complaint in line for line in wrong_statuses({"001": text, "002": other})] == [True]


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
        "runtime/supervisor/controller/tree_controller.py/",
        "tests/system/house/test_docs_trace.py::test_nowhere",
        "NOWHERE.md",
        "sessiontree.nowhere",
        "sessiontree.sync.Nowhere",
        "benchmarks.nowhere",
    ],
)
def test_planted_dead_end_is_found(checkout: Path, named: str) -> None:
    """A file, a folder, a file taken for a folder, a test and a document that are not there are found."""
    known = (
        "`runtime/replay/tree_fork.py`, `tests/system/house/`, `pyproject.toml`, `sessiontree.SessionTree`"
    )
    text = f"See {known} and `{named}`; not `main/b1/w2` or `a.b`."
    assert missing(text, checkout) == [named]


def test_planted_path_without_backticks_is_found(checkout: Path) -> None:
    """A path in a sentence or a command is looked up; addresses and the targets of links are not."""
    text = (
        "docs/programs.md, docs/nowhere.md; https://example.org/x/y.py, [a/d.md](b/c.md), benchmarks/chaos.py"
    )
    assert missing(text, checkout) == ["docs/nowhere.md"]


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
