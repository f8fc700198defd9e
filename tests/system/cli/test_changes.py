"""Changes: a watched tree has a line for each change, or a picture and lines for what needs attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from sessiontree.cli.changes import TreeWatch, change_text
from sessiontree.cli.live_view import LiveView
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import SessionResult
from tests.unit.view.live_strategies import ended, records, spawned

ENDED = [
    "ended main/w1: completed, 3 of 7 files",
    "ended main/w2: failed: over, 3 of 7 files",
]


def facts(output: Any) -> list[object]:
    """Return the facts of two Workers, one of which completes with an output, and one fails."""
    result: SessionResult[Any] = SessionResult(SessionStatus.COMPLETED, "over", output)
    return [
        spawned("main"),
        spawned("main/w1", "main", "one"),
        spawned("main/w2", "main"),
        replace(ended("main/w1"), result=result),
        ended("main/w2", SessionStatus.FAILED),
    ]


@pytest.mark.parametrize(
    ("view", "known_seq", "expected"),
    [
        (None, 0, ["started main: main", "started main/w1: worker one", "started main/w2: worker", *ENDED]),
        (None, 3, ENDED),
        (LiveView(Console()), 0, ENDED[1:]),
    ],
)
def test_watch_says_what_no_picture_shows(view: LiveView | None, known_seq: int, expected: list[str]) -> None:
    """Every change in lines, but for what an earlier process said; with a picture failures alone."""
    said: list[str] = []
    watch = TreeWatch(lambda line, _: said.append(line), view, known_seq)
    watch.expect(7)
    for record in records(facts({"totals": {"files": 3}})):
        watch.take(record)
    assert said == expected
    assert watch.amounts() == (3, 2, 3)


@pytest.mark.parametrize("output", [None, 3, {}, {"totals": 3}, {"totals": {"files": "3"}}])
def test_watch_counts_files_where_a_result_says_so(output: object) -> None:
    """Any other result counts for nothing."""
    watch = TreeWatch(lambda *_: None)
    for record in records(facts(output)):
        watch.take(record)
    assert watch.amounts() == (3, 2, 0)


@pytest.mark.parametrize(
    ("decision", "by", "words"),
    [
        ("expired", "time", "expired: deploy for main, nobody answered within 5 s"),
        ("cancelled", "stop", "cancelled: deploy for main, nobody answered within 5 s"),
        ("denied", "nobody", "denied: deploy for main, nobody answered within 5 s"),
        ("denied", "ada", "denied by ada: deploy for main, nobody answered within 5 s"),
    ],
)
def test_decision_that_nobody_made_is_laid_to_nobody(decision: str, by: str, words: str) -> None:
    """Time, a stop and the absence of people are no deciders."""
    change = {
        "change": "approval_decided",
        "session": "main",
        "tool": "deploy",
        "decision": decision,
        "by": by,
        "reason": "nobody answered within 5 s",
    }
    assert change_text(change) == words
