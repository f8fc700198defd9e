"""The table of rules leads somewhere: every rule and every lesson has its line, and the tests it names."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house.test_docs_trace import NAMED, RULE

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


def wrong_rules(text: str) -> list[str]:
    """Return what is wrong with the table of rules: ``| id | what | tests | later |``."""
    lines = [(found[1], [cell.strip() for cell in found[2].split("|")]) for found in RULE.finditer(text)]
    counted = Counter(rule for rule, _ in lines)
    wrong = [f"{rule} stands there {counted[rule]} times" for rule in RULES if counted[rule] != 1]
    wrong += [f"{rule} is no rule" for rule in counted if rule not in RULES]
    for rule, cells in lines:
        if len(cells) != 3:
            wrong.append(f"{rule} has {len(cells)} cells after its id")
            continue
        what, tests, later = cells
        named = NAMED.findall(tests)
        if not what:
            wrong.append(f"{rule} says nothing")
        if not (named or later):
            wrong.append(f"{rule} has no test and nothing later")
        if any(not name.startswith("tests/") or not test for name, test in named):
            wrong.append(f"{rule} is shown by something that is no test")
    return wrong


def test_every_rule_has_its_line(checkout: Path) -> None:
    """Each rule names the tests that show it, or what it still lacks; the tests are looked for elsewhere."""
    assert wrong_rules((checkout / "docs" / "coverage.md").read_text("utf-8")) == []


def test_no_test_names_a_rule_that_is_none(checkout: Path) -> None:
    """What tests say of rules can be looked up in the table."""
    cited = {
        (str(path.relative_to(checkout)), rule)
        for path in (checkout / "tests").rglob("test_*.py")
        if path.name != Path(__file__).name
        for rule in CITED.findall(path.read_text("utf-8"))
    }
    assert cited
    assert sorted((path, rule) for path, rule in cited if rule not in RULES) == []


GOOD = "`tests/house/test_rules_trace.py::test_planted_line_is_found`"


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        (f"| REL-P1 | what | {GOOD} | |\n| REL-P1 | what | {GOOD} | |", "REL-P1 stands there 2 times"),
        (f"| REL-P1 | what | {GOOD} | |\n| REL-P99 | what | {GOOD} | |", "REL-P99 is no rule"),
        ("", "REL-P1 stands there 0 times"),
        ("| REL-P1 | what | | |", "REL-P1 has no test and nothing later"),
        (f"| REL-P1 | | {GOOD} | |", "REL-P1 says nothing"),
        (
            "| REL-P1 | what | `runtime/tree_controller.py` | |",
            "REL-P1 is shown by something that is no test",
        ),
        (
            "| REL-P1 | what | `tests/house/conftest.py` | |",
            "REL-P1 is shown by something that is no test",
        ),
        (f"| REL-P1 | {GOOD} | |", "REL-P1 has 2 cells after its id"),
    ],
)
def test_planted_line_is_found(planted: str, complaint: str) -> None:
    """A line that is missing, doubled, unknown, empty or misplaced is found, and nothing else is."""
    others = "\n".join(f"| {rule} | what | | later |" for rule in RULES if rule != "REL-P1")
    assert wrong_rules(f"{others}\n{planted}\n") == [complaint]
