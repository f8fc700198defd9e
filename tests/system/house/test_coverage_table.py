"""The tables of coverage have a line for every row and rule; it cites the tests whose marker names it.

The tables are built in memory: the file that ``make coverage-table`` writes is not read.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.system.house.coverage_program import (
    LINE,
    ROWS_FILE,
    TABLES,
    add_tests,
    covering_tests,
    main,
    unknown_ids,
)

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
def covering(checkout: Path) -> dict[str, list[str]]:
    """Ids and the tests whose marker names them."""
    return covering_tests((checkout / "tests").rglob("test_*.py"), checkout)


@pytest.fixture(scope="module")
def rows(checkout: Path) -> str:
    """The rows without their tests."""
    return (checkout / ROWS_FILE).read_text("utf-8")


def test_every_marker_names_a_row_or_a_statement(rows: str, covering: dict[str, list[str]]) -> None:
    """A marker that names something else shows nothing."""
    assert covering
    assert unknown_ids(rows, covering) == []


def test_every_row_and_every_rule_has_its_line(rows: str, covering: dict[str, list[str]]) -> None:
    """Each says where it is built and has tests that show it, or says what is still missing."""
    assert wrong_lines(add_tests(rows, covering)) == []


def test_row_whose_tests_are_gone_is_found(rows: str, covering: dict[str, list[str]]) -> None:
    """Without the markers that name it a row has no test."""
    assert covering["C7"]
    left = {word: tests for word, tests in covering.items() if word != "C7"}
    assert wrong_lines(add_tests(rows, left)) == ["C7 has no test and nothing later"]


def test_rows_keep_no_tests(rows: str) -> None:
    """What the markers say is not written a second time."""
    assert "::test_" not in rows


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


ROWS_OF_SMALL = (
    "| row | what | file | later |\n|---|---|---|---|\n"
    "| C7 | what | `a.py` | |\n| C8 | what | `a.py` | it |\n"
    "text\n| rule | what | later |\n|---|---|---|\n| REL-P6 | what | later |\n"
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkout with three tests and three rows."""
    (tmp_path / "tests" / "room").mkdir(parents=True)
    (tmp_path / "tests" / "room" / "test_room.py").write_text(MARKED)
    (tmp_path / ROWS_FILE).parent.mkdir(parents=True)
    (tmp_path / ROWS_FILE).write_text(ROWS_OF_SMALL)
    return tmp_path


def test_tables_are_built_from_rows_and_markers(small: Path) -> None:
    """Tests by file and line, an empty cell where no marker names the row; the rows do not change."""
    assert main(small) == 0
    written = (small / TABLES).read_text()
    assert written == (
        "| row | what | file | tests | later |\n|---|---|---|---|---|\n"
        "| C7 | what | `a.py` | `tests/room/test_room.py::test_b`, `tests/room/test_room.py::test_a` | |\n"
        "| C8 | what | `a.py` | | it |\n"
        "text\n| rule | what | tests | later |\n|---|---|---|---|\n"
        "| REL-P6 | what | `tests/room/test_room.py::test_b` | later |\n"
    )
    assert (small / ROWS_FILE).read_text() == ROWS_OF_SMALL
    assert main(small) == 0
    assert (small / TABLES).read_text() == written


def test_marker_of_an_unknown_row_is_found(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named with its test, and nothing is written."""
    (small / "tests" / "test_more.py").write_text('@pytest.mark.covers("C99")\ndef test_c(): ...\n')
    assert main(small) == 1
    assert capsys.readouterr().err == "tests/test_more.py::test_c: C99 is in no row\n"
    assert not (small / TABLES).exists()


def test_marker_that_may_mean_two_things_is_refused() -> None:
    """A row and a statement of one id: nobody could tell which the marker means. Headings are no ids."""
    rows, marked = "| S18 | what | `a.py` | | it |\n", {"S18": ["a.py::test_a"], "EXE3": ["a.py::test_b"]}
    assert unknown_ids(rows, marked, "## S18. Heading\n- EXE3. It holds.\n") == []
    assert unknown_ids(rows, marked, "- S18. It holds.\n- EXE3. It holds.\n") == [
        "a.py::test_a: S18 is a row and a statement"
    ]
    assert unknown_ids(rows, marked, "") == ["a.py::test_b: EXE3 is in no row"]


GOOD = "| `runtime/supervisor/controller/tree_controller.py` | `tests/a.py::test_a` | |"


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        (f"| C1 | what {GOOD}\n| C1 | what {GOOD}", "C1 is there 2 times"),
        (f"| C1 | what {GOOD}\n| C99 | what {GOOD}", "C99 is no row and no rule"),
        ("", "C1 is there 0 times"),
        (f"| C1 | {GOOD}", "C1 says nothing"),
        ("| C1 | what | | | |", "C1 has no test and nothing later"),
        (
            "| C1 | what | `runtime/supervisor/controller/tree_controller.py` | | |",
            "C1 has no test and nothing later",
        ),
        ("| C1 | what | | `tests/a.py::test_a` | |", "C1 has no test and nothing later"),
        ("| C1 | what | `tests/system/house/conftest.py` | | later |", "C1 is built in a test"),
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
