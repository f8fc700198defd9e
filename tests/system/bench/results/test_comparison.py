"""Comparisons of two runs: what changed from sample to sample, and what can't be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree import ConfigError
from sessiontree.bench.results.comparison import RunComparison, compare_runs
from sessiontree.bench.results.recorded_run import RecordedRun
from tests.system.bench.recorded_run_fixtures import GivenSample, make_run, passes


def compared(place: Path, first: list[GivenSample], second: list[GivenSample]) -> RunComparison:
    """Make two runs and compare them."""
    return compare_runs(
        RecordedRun(make_run(place / "first", first, model="small")),
        RecordedRun(make_run(place / "second", second, model="big")),
    )


def test_wins_and_losses_are_counted_by_sample(tmp_path: Path) -> None:
    """The difference is second minus first; samples are matched by id, not by order."""
    found = compared(tmp_path, passes(1, 1, 0, 0, 0), list(reversed(passes(1, 0, 1, 1, 0))))
    (score,) = found.scores
    assert (score.passes.wins, score.passes.losses, score.passes.ties) == (2, 1, 2)
    assert score.passes.difference.value == pytest.approx(0.2)
    assert score.passes.p_value == 1.0
    assert (found.improved, found.worsened) == (("s2", "s3"), ("s1",))
    assert (found.first.model, found.second.model) == ("small", "big")
    head, *rows = found.table()
    assert len(rows) == 1
    assert rows[0][:4] == ("exact, pass rate", "40.0%", "60.0%", "+20.0%")
    assert len(head) == len(rows[0])


def test_epochs_of_a_sample_count_as_one(tmp_path: Path) -> None:
    """A sample is better where it passes more often, in whatever number of epochs."""
    first = [GivenSample("a", {"exact": float(epoch == 1)}, epoch=epoch) for epoch in (1, 2, 3)]
    second = [GivenSample("a", {"exact": float(epoch == 1)}, epoch=epoch) for epoch in (1, 2)]
    found = compared(
        tmp_path, [*first, GivenSample("b", {"exact": 1.0})], [*second, GivenSample("b", {"exact": 1.0})]
    )
    assert (found.overall.wins, found.overall.losses, found.overall.ties) == (1, 0, 1)
    assert found.overall.difference.value == pytest.approx((1 / 2 - 1 / 3) / 2)
    assert found.overall.difference.n == 2


def test_what_only_one_run_has_is_named(tmp_path: Path) -> None:
    """Samples and scores; samples without a score are of neither."""
    first = [*passes(1, 1), GivenSample("only-first", {"exact": 1.0}), GivenSample("s5", state="waiting")]
    second = [
        GivenSample("s0", {"exact": 0.0, "near": 0.5}),
        GivenSample("s1", {"exact": 1.0, "near": 0.5}),
        GivenSample("only-second", {"exact": 1.0}),
        GivenSample("gone", state="failed", error_kind="EngineLost"),
    ]
    found = compared(tmp_path, first, second)
    assert (found.only_first, found.only_second) == (("only-first",), ("only-second",))
    assert (found.first.unscored, found.second.unscored) == (("s5",), ("gone",))
    assert found.missing_scores == ("near",)
    assert [each.name for each in found.scores] == ["exact"]
    assert found.shared == 2


def test_values_are_compared_where_they_say_more(tmp_path: Path) -> None:
    """A score other than 0 or 1 also has a row of means, and several scores have one of all."""
    first = [GivenSample(f"s{index}", {"exact": 1.0, "near": 0.5}) for index in range(5)]
    second = [GivenSample(f"s{index}", {"exact": 1.0, "near": 0.75}) for index in range(5)]
    found = compared(tmp_path, first, second)
    assert [row[0] for row in found.table()][1:] == [
        "exact, pass rate",
        "near, pass rate",
        "near, mean",
        "all scores, pass rate",
    ]
    near = found.scores[1].values
    assert near.wins == 5
    assert near.difference.value == pytest.approx(0.25)
    assert near.p_value == pytest.approx(2 / 32)


def test_cost_time_and_tokens_of_both_are_there(tmp_path: Path) -> None:
    """Sums over what each run has scored."""
    first = [
        GivenSample("a", {"exact": 1.0}, cost_usd=0.5, wall_ms=10),
        GivenSample("b", {"exact": 1.0}, cost_usd=0.5),
    ]
    found = compared(tmp_path, first, [*passes(1, name="exact"), GivenSample("a", {"exact": 1.0})])
    assert (found.first.cost_usd, found.first.wall_ms) == (1.0, 1_010)
    assert (found.first.input_tokens, found.first.output_tokens) == (200, 20)
    assert found.to_json()["second"]["samples"] == 2


def test_what_can_not_be_compared_is_refused(tmp_path: Path) -> None:
    """Runs of two suites, the same run twice, and runs without a common sample."""
    sums = RecordedRun(make_run(tmp_path / "sums", passes(1)))
    with pytest.raises(ConfigError, match=r"of suite 'sums' and run .* of suite 'other'"):
        compare_runs(sums, RecordedRun(make_run(tmp_path / "other", passes(1), suite="other")))
    with pytest.raises(ConfigError, match="name two different runs"):
        compare_runs(sums, RecordedRun(tmp_path / "sums"))
    apart = RecordedRun(make_run(tmp_path / "apart", [GivenSample("x", {"exact": 1.0})]))
    with pytest.raises(ConfigError, match=r"share no sample .* \(1 and 1 samples are scored\)"):
        compare_runs(sums, apart)
