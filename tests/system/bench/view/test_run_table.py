"""The rows of a run, and its head, as viewers get them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError
from sessiontree.bench.ledger.failure_kinds import FAULTS, FailureKind
from sessiontree.bench.ledger.ledger_schema import SCORE_COLUMNS
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.view.run_rows import COLUMNS, LONGEST, OUTCOMES, SHORTEST, classify_outcome
from sessiontree.bench.view.run_table import RunTable
from sessiontree.bench.view.sample_content import read_sample
from tests.system.bench.recorded_run_fixtures import GivenSample, make_run
from tests.system.bench.view.view_fixtures import fail, write


def _table(run_dir: Path) -> RunTable:
    return RunTable(RecordedRun(run_dir))


def _rows(table: RunTable) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in table.snapshot()["rows"]]


def test_head_parts_answers_from_faults(tmp_path: Path) -> None:
    """The rate is of answers alone; the coverage says how many of all there are."""
    made = [GivenSample(f"s{number}", {"exact": float(number % 2)}) for number in range(8)]
    made += [GivenSample("late", {"exact": 0.0}, status="timeout"), GivenSample("new", state="waiting")]
    run_dir = make_run(tmp_path / "run", made)
    fail(run_dir, "s0", FailureKind.PROVIDER, "no answer")
    fail(run_dir, "s1", FailureKind.SCORER, "KeyError")
    head = _table(run_dir).head()
    assert head["counts"] == {
        "passed": 3, "not passed": 4, "infrastructure": 1, "undecided": 1, "running": 0, "waiting": 1,
    }  # fmt: skip
    assert head["scored"] == 7
    assert head["coverage"] == pytest.approx(0.7)
    assert head["rate"]["value"] == pytest.approx(3 / 7)
    assert head["rate"]["low"] < 3 / 7 < head["rate"]["high"]
    assert {(outcome, kind) for outcome, kind, _, _ in head["kinds"]} == {
        ("infrastructure", "provider"), ("undecided", "scorer"), ("not passed", "timeout"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", FailureKind)
def test_sample_that_failed_is_the_fault_of_its_kind(kind: FailureKind) -> None:
    """By the published table of kinds."""
    assert classify_outcome("failed", kind, passed=False) == FAULTS[kind]
    assert classify_outcome("failed", "SomeError", passed=False) == "infrastructure"
    assert {classify_outcome(state, "", passed=False) for state in ("leased", "waiting")} <= set(OUTCOMES)


def test_delta_has_only_what_moved(tmp_path: Path) -> None:
    """A viewer gets the newest form of each row that changed since its revision, once."""
    run_dir = make_run(tmp_path / "run", [GivenSample(f"s{number}", {"exact": 1.0}) for number in range(12)])
    table = _table(run_dir)
    assert not table.refresh()
    known = table.revision
    fail(run_dir, "s3", FailureKind.NODE, "lost")
    assert table.refresh()
    write(run_dir, ("UPDATE samples SET state = 'waiting' WHERE sample_id = ?", ("s3",)))
    write(run_dir, ("UPDATE samples SET revision = revision + 1 WHERE sample_id = ?", ("s5",)))
    write(run_dir, ("UPDATE scores SET passed = 0 WHERE sample_id = ?", ("s5",)))
    assert table.refresh()
    delta = json.loads(table.dump_changes(table.id, known))
    assert delta["kind"] == "delta"
    assert [(place, row[COLUMNS.index("outcome")]) for place, row in delta["rows"]] == [
        (3, "waiting"), (5, "not passed"),
    ]  # fmt: skip
    assert delta["head"]["counts"]["passed"] == 10
    assert json.loads(table.dump_changes("another", known))["kind"] == "snapshot"
    assert delta["head"] == _table(run_dir).head()


def test_epochs_share_a_cluster(tmp_path: Path) -> None:
    """With epochs the interval draws samples, and is wider than if all pairs were independent."""
    made = [
        GivenSample(f"s{number}", {"exact": float(number < 5)}, epoch=epoch)
        for number in range(10)
        for epoch in range(1, 6)
    ]
    head = _table(make_run(tmp_path / "run", made)).head()
    assert head["interval"] != "Wilson"
    assert head["rate"]["high"] - head["rate"]["low"] > 0.4


def test_rows_hold_a_bounded_beginning_of_each_text(tmp_path: Path) -> None:
    """The page of a run of many samples stays small; what is hidden in a text is made visible."""
    text = "word \u202e\n" + "x" * 5_000
    run_dir = make_run(tmp_path / "run", [GivenSample("s", {"exact": 0.0}, answer=text)])
    (row,) = _rows(_table(run_dir))
    assert SHORTEST <= len(row["answer"]) <= LONGEST + 8
    assert "\u202e" not in row["answer"]
    assert "\n" not in row["answer"]


def test_sample_is_read_with_its_history(tmp_path: Path) -> None:
    """Scores that gave way to another one are shown with the reason."""
    run_dir = make_run(tmp_path / "run", [GivenSample("s", {"exact": 1.0})])
    columns = ", ".join(SCORE_COLUMNS)
    moved = f"SELECT {columns}, 7, 'the scorer was wrong' FROM scores"  # noqa: S608 - names of columns
    write(run_dir, (f"INSERT INTO past_scores({columns}, superseded_at_ms, reason) {moved}", ()))
    run = RecordedRun(run_dir)
    (past,) = read_sample(run, "s", 1)["history"]
    assert past["reason"] == "the scorer was wrong"
    assert past["scores"] == [["exact", 1.0]]
    with pytest.raises(ConfigError, match="epoch 2"):
        read_sample(run, "s", 2)
