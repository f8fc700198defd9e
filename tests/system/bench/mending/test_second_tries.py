"""Retrying: what has ended is solved again, by how it ended or by its name; its score stays as history."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree import ConfigError
from sessiontree.bench import Attempt, RunResults
from sessiontree.bench.suite.retry_choice import RetryChoice
from tests.system.bench.suite_fixtures import Heard, rows, suite

BROKEN = {"s1"}


async def solve(attempt: Attempt[str]) -> str:
    """Repeat the sample; some raise, and one is wrong."""
    if attempt.sample.id in BROKEN:
        raise KeyError("planted")
    if attempt.sample.id == "s2" and attempt.number == 1:
        return "wrong"
    return await attempt.tree.main.send(attempt.sample.input)


@pytest.mark.slow
@pytest.mark.covers("SUI13")
async def test_errors_are_solved_again(tmp_path: Path) -> None:
    """Only those that are chosen; the earlier score stays with the reason."""
    run_dir = tmp_path / "run"
    asked = suite(solver=solve)
    await asked.run(run_dir, backend="local", progress=Heard())
    assert RunResults(run_dir).counts.undecided == 1
    BROKEN.clear()
    await asked.run(run_dir, backend="local", progress=Heard())
    assert RunResults(run_dir).counts.undecided == 1, "an error is not solved again by itself"
    await asked.run(run_dir, backend="local", progress=Heard(), retry=RetryChoice(["error"]))
    assert RunResults(run_dir).to_arrow()["passed"].to_pylist() == [True, True, False]
    await asked.run(run_dir, backend="local", progress=Heard(), retry=RetryChoice(samples=["s2"]))
    assert RunResults(run_dir).to_arrow()["passed"].to_pylist() == [True, True, True]
    past = rows(run_dir, "SELECT sample_id, revision, passed, reason FROM past_scores ORDER BY 1")
    assert past == [
        ("s1", 1, None, "retried: its status was error"),
        ("s2", 1, 0, "retried: it was named"),
    ]
    assert rows(run_dir, "SELECT sample_id, attempts, revision FROM samples ORDER BY 1") == [
        ("s0", 1, 1),
        ("s1", 2, 2),
        ("s2", 2, 2),
    ]


@pytest.mark.slow
async def test_refused_retry_changes_nothing(tmp_path: Path) -> None:
    """With other code it is refused before a sample waits; unknown names are refused with what is near."""
    run_dir = tmp_path / "run"
    await suite(2).run(run_dir, backend="local", progress=Heard())
    with pytest.raises(ConfigError, match="solver solve was"):
        await suite(2, solver=solve).run(run_dir, backend="local", retry=RetryChoice(samples=["s*"]))
    with pytest.raises(ConfigError, match="the run has no sample 's11'; did you mean 's1'"):
        await suite(2).run(run_dir, backend="local", retry=RetryChoice(samples=["s11"]))
    assert rows(run_dir, "SELECT DISTINCT state FROM samples") == [("scored",)]
    with pytest.raises(ConfigError, match="status 'errors'; give one of error, timeout"):
        RetryChoice(["errors"])
    with pytest.raises(ConfigError, match="nothing is chosen"):
        RetryChoice()
