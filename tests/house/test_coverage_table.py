"""The tables of coverage have a line for every row and rule; it cites the tests whose marker names it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house.coverage_program import LINE, TABLES, covering_tests, main, unknown_ids, with_tests

ROWS = tuple(
    f"{letter}{number}"
    for letter, last in (("C", 14), ("A", 43), ("I", 40), ("S", 55), ("U", 21), ("Z", 7))
    for number in range(1, last + 1)
)
"""Ids of the specification's rows: the card, the decision record, and the four seeds after it."""
PROPERTIES = (*range(1, 13), *range(21, 38), 48)
"""Numbers of the rules that hold for any input."""
STORIES = (*range(13, 21), *range(38, 48))
"""Numbers of the rules that hold after any sequence of steps."""
LESSONS = range(1, 72)
RULES = (
    *(f"REL-P{number}" for number in PROPERTIES),
    *(f"REL-S{number}" for number in STORIES),
    *(f"REL-L{number}" for number in LESSONS),
)
CITED = re.compile(r"\bREL-[PSL]\d+\b")


def wrong_lines(text: str) -> list[str]:
    """Return what is wrong with the tables ``| id | what | files | tests | later |``; rules have no files."""
    lines = [(found[1], [cell.strip() for cell in found[2].split("|")]) for found in LINE.finditer(text)]
    counted = Counter(word for word, _ in lines)
    wrong = [f"{word} is there {counted[word]} times" for word in (*ROWS, *RULES) if counted[word] != 1]
    wrong += [f"{word} is no row and no rule" for word in counted if word not in (*ROWS, *RULES)]
    for word, cells in lines:
        if len(cells) != (3 if word.startswith("REL-") else 4):
            wrong.append(f"{word} has {len(cells)} cells after its id")
            continue
        what, *files, tests, later = cells
        if not what:
            wrong.append(f"{word} says nothing")
        if not (all((*files, tests)) or later):
            wrong.append(f"{word} has no test and nothing later")
        if any("tests/" in cell for cell in files):
            wrong.append(f"{word} is built in a test")
    return wrong


@pytest.fixture(scope="module")
def tables(checkout: Path) -> str:
    """The text of docs/coverage.md."""
    return (checkout / TABLES).read_text("utf-8")


def test_tables_cite_the_tests_whose_markers_name_their_lines(tables: str, checkout: Path) -> None:
    """The columns of tests are what ``make coverage-table`` writes."""
    covering = covering_tests((checkout / "tests").rglob("test_*.py"), checkout)
    assert covering
    assert unknown_ids(tables, covering) == []
    assert with_tests(tables, covering) == tables, "run make coverage-table"


def test_every_row_and_every_rule_has_its_line(tables: str) -> None:
    """Each says where it is built and which tests show it, or what is still missing."""
    assert wrong_lines(tables) == []


def test_tests_name_only_rules_that_there_are(checkout: Path) -> None:
    """What tests say of rules can be looked up in the table."""
    cited = {
        (str(path.relative_to(checkout)), rule)
        for path in (checkout / "tests").rglob("test_*.py")
        if path.name != Path(__file__).name
        for rule in CITED.findall(path.read_text("utf-8"))
    }
    assert cited
    assert sorted((path, rule) for path, rule in cited if rule not in RULES) == []


MARKED = """
@pytest.mark.covers("C7", "REL-P6")
@pytest.mark.slow
async def test_b(): ...

def test_unmarked(): ...

@pytest.mark.covers("C7")
def test_a(): ...
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkout with three tests, and tables whose columns of tests are wrong in each way."""
    (tmp_path / "tests" / "room").mkdir(parents=True)
    (tmp_path / "tests" / "room" / "test_room.py").write_text(MARKED)
    (tmp_path / "docs").mkdir()
    (tmp_path / TABLES).write_text(
        "| C7 | what | `a.py` | `tests/gone.py::test_gone` | |\n"
        "| C8 | what | `a.py` | `tests/gone.py::test_gone` | it |\n"
        "text\n| REL-P6 | what | | later |\n"
    )
    return tmp_path


def test_columns_are_written_from_the_markers(small: Path) -> None:
    """Tests by file and line, an empty cell where no marker names the line; nothing else changes."""
    assert main(small) == 0
    written = (small / TABLES).read_text()
    assert written == (
        "| C7 | what | `a.py` | `tests/room/test_room.py::test_b`, `tests/room/test_room.py::test_a` | |\n"
        "| C8 | what | `a.py` | | it |\n"
        "text\n| REL-P6 | what | `tests/room/test_room.py::test_b` | later |\n"
    )
    assert main(small) == 0
    assert (small / TABLES).read_text() == written


def test_marker_of_an_unknown_line_is_found(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named with its test, and nothing is written."""
    (small / "tests" / "test_more.py").write_text('@pytest.mark.covers("C99")\ndef test_c(): ...\n')
    before = (small / TABLES).read_text()
    assert main(small) == 1
    assert capsys.readouterr().err == "tests/test_more.py::test_c: C99 is in no table\n"
    assert (small / TABLES).read_text() == before


def test_marker_that_may_mean_two_things_is_refused() -> None:
    """A row and a statement of one id: nobody could tell which the marker means. Headings are no ids."""
    rows, marked = "| S18 | what | `a.py` | | it |\n", {"S18": ["a.py::test_a"], "EXE3": ["a.py::test_b"]}
    assert unknown_ids(rows, marked, "## S18. Heading\n- EXE3. It holds.\n") == []
    assert unknown_ids(rows, marked, "- S18. It holds.\n- EXE3. It holds.\n") == [
        "a.py::test_a: S18 is a row and a statement"
    ]
    assert unknown_ids(rows, marked, "") == ["a.py::test_b: EXE3 is in no table"]


GOOD = "| `runtime/tree_controller.py` | `tests/a.py::test_a` | |"


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        (f"| C1 | what {GOOD}\n| C1 | what {GOOD}", "C1 is there 2 times"),
        (f"| C1 | what {GOOD}\n| C99 | what {GOOD}", "C99 is no row and no rule"),
        ("", "C1 is there 0 times"),
        (f"| C1 | {GOOD}", "C1 says nothing"),
        ("| C1 | what | | | |", "C1 has no test and nothing later"),
        ("| C1 | what | `runtime/tree_controller.py` | | |", "C1 has no test and nothing later"),
        ("| C1 | what | | `tests/a.py::test_a` | |", "C1 has no test and nothing later"),
        ("| C1 | what | `tests/house/conftest.py` | | later |", "C1 is built in a test"),
        ("| C1 | what | |", "C1 has 2 cells after its id"),
    ],
)
def test_planted_row_is_found(planted: str, complaint: str) -> None:
    """A row that is missing, doubled, unknown, empty or misplaced is found, and nothing else is."""
    others = [f"| {row} | what | | | later |" for row in ROWS if row != "C1"]
    others += [f"| {rule} | what | | later |" for rule in RULES]
    assert wrong_lines("\n".join([*others, planted, ""])) == [complaint]


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("| REL-P1 | what | | |", "REL-P1 has no test and nothing later"),
        ("| REL-P1 | | `tests/a.py::test_a` | |", "REL-P1 says nothing"),
        (f"| REL-P1 | what {GOOD}", "REL-P1 has 4 cells after its id"),
        (
            "| REL-P1 | what | | later |\n| REL-P99 | what | | later |",
            "REL-P99 is no row and no rule",
        ),
        ("", "REL-P1 is there 0 times"),
    ],
)
def test_planted_rule_is_found(planted: str, complaint: str) -> None:
    """The same of rules, which name no files."""
    others = [f"| {row} | what | | | later |" for row in ROWS]
    others += [f"| {rule} | what | | later |" for rule in RULES if rule != "REL-P1"]
    assert wrong_lines("\n".join([*others, planted, ""])) == [complaint]
