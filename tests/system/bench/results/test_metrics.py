"""Metrics by groups and clusters: what a table says, and what a family of comparisons says."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sessiontree import ConfigError
from sessiontree.bench import RunResults
from sessiontree.bench.results.metrics import ALL, MISSING, PASS_RATE, MetricRow, RunMetrics
from sessiontree.bench.statistics.intervals import compute_clustered_error, compute_wilson_interval
from sessiontree.bench.statistics.reducers import pass_at_k, pass_hat_k
from sessiontree.cli.app import app
from tests.system.bench.recorded_run_fixtures import GivenSample, make_run, passes


def told(run_dir: Path, metadata: dict[str, object]) -> RunResults:
    """Write what a run's samples are, by their ids."""
    with closing(sqlite3.connect(run_dir / "ledger.sqlite")) as ledger, ledger:
        ledger.executemany(
            "INSERT INTO sample_data(sample_id, digest, input, target, metadata, files) "
            "VALUES (?, '', '', '', ?, '{}')",
            [(sample, json.dumps(each)) for sample, each in metadata.items()],
        )
    return RunResults(run_dir)


def row_of(found: RunMetrics, metric: str, group: str = ALL) -> MetricRow:
    """Return the row of a metric and group; there must be one."""
    (row,) = [each for each in found.rows if (each.metric, each.group) == (metric, group)]
    return row


OUTCOMES = {"a": [1, 0, 1], "b": [0, 0, 0], "c": [1, 1, 1], "d": [1, 0]}


def epochs(tmp_path: Path) -> RunResults:
    """Four samples with three epochs, and one of them with two."""
    samples = [
        GivenSample(sample, {"exact": float(value)}, epoch=epoch)
        for sample, values in OUTCOMES.items()
        for epoch, value in enumerate(values, 1)
    ]
    levels = {"a": {"level": "hard", "doc": 1}, "b": {"level": "hard", "doc": 1}, "c": {"level": "easy"}}
    return told(make_run(tmp_path / "run", samples), {**levels, "d": {}})


def test_epochs_become_one_value_a_sample(tmp_path: Path) -> None:
    """pass@k and pass^k are means over samples; a sample with too few epochs is left out, and said so."""
    found = epochs(tmp_path).metrics(["pass_at_3", "pass_hat_3", "max"])
    three = [(sum(each), len(each)) for each in OUTCOMES.values() if len(each) == 3]
    at, hat = row_of(found, "pass@3"), row_of(found, "pass^3")
    assert at.value.value == pytest.approx(sum(pass_at_k(*each, 3) or 0 for each in three) / 3)
    assert hat.value.value == pytest.approx(sum(pass_hat_k(*each, 3) or 0 for each in three) / 3)
    assert (at.samples, at.left_out, at.interval) == (3, 1, "bootstrap")
    assert row_of(found, "max").value.value == 0.75
    rate = row_of(found, PASS_RATE)
    assert (rate.interval, rate.samples) == ("bootstrap", 4)
    assert rate.error == compute_clustered_error(
        [[float(value) for value in each] for each in OUTCOMES.values()]
    )


def test_groups_are_values_of_a_field(tmp_path: Path) -> None:
    """All samples first; those without the field are a group of their own."""
    found = epochs(tmp_path).metrics(by="level")
    assert [row.group for row in found.rows] == [ALL, MISSING, "easy", "hard"]
    assert row_of(found, PASS_RATE, "hard").value.value == pytest.approx(2 / 6)
    head, *rows = found.table()
    assert head[1] == "level"
    assert rows[3][:5] == ("exact", "hard", PASS_RATE, "2", "33.3%")


def test_samples_of_one_cluster_are_not_independent(tmp_path: Path) -> None:
    """Two questions about one document count as one draw."""
    found = row_of(epochs(tmp_path).metrics(cluster="doc"), PASS_RATE)
    together = [[1.0, 0.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0]]
    assert found.error == pytest.approx(compute_clustered_error(together))
    assert found.value.n == 3


def test_single_epochs_have_wilson_s_interval(tmp_path: Path) -> None:
    """Unless the samples are in clusters."""
    run = told(
        make_run(tmp_path / "run", passes(1, 0, 1, name="exact")), {"s0": {"doc": 1}, "s1": {"doc": 1}}
    )
    alone = row_of(run.metrics(), PASS_RATE)
    passed = round((alone.value.value or 0) * alone.samples)
    assert (alone.interval, alone.value) == ("wilson", compute_wilson_interval(passed, alone.samples))
    assert row_of(run.metrics(cluster="doc"), PASS_RATE).interval == "bootstrap"


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    """A field that no sample has, a reducer that does not exist, a run without scores."""
    run = epochs(tmp_path)
    with pytest.raises(ConfigError, match=r"'size'; there are doc, level"):
        run.metrics(by="size")
    with pytest.raises(ConfigError, match="pass_at_K"):
        run.metrics(["best"])
    waiting = RunResults(make_run(tmp_path / "waiting", [GivenSample("a", state="waiting")]))
    with pytest.raises(ConfigError, match="no scores yet"):
        waiting.metrics()


def test_several_runs_are_compared_with_the_first(tmp_path: Path) -> None:
    """Each has its row, and p values that are adjusted for their number."""
    runs = [
        RunResults(
            make_run(
                tmp_path / name,
                [GivenSample(f"s{index}", {"exact": float(index < passed)}) for index in range(20)],
            )
        )
        for name, passed in (("base", 5), ("better", 14), ("same", 5))
    ]
    found = runs[0].compare_all(*runs[1:])
    assert found.adjusted == pytest.approx([2 * 2 / 2**9, 1.0])
    rows = list(found.table())
    assert [row[3] for row in rows[1:]] == ["70.0%", "25.0%"]
    assert rows[2][5] == "0.0%"
    assert rows[2][6] != "0.0% to 0.0%"
    with pytest.raises(ConfigError, match="at least two"):
        runs[0].compare_all()
    with pytest.raises(ConfigError, match="twice"):
        runs[0].compare_all(runs[1], runs[1])


def test_commands_show_the_same(tmp_path: Path) -> None:
    """``bench metrics`` and ``bench compare`` with three runs, for people and programs."""
    run = epochs(tmp_path)
    done = CliRunner().invoke(
        app, ["bench", "metrics", str(run.run_dir), "--reducer", "pass_at_2", "--by", "level", "--json"]
    )
    assert (
        json.loads(done.output)["rows"]
        == json.loads(json.dumps(run.metrics(["pass_at_2"], by="level").to_json()))["rows"]
    )
    shown = CliRunner().invoke(app, ["bench", "metrics", str(run.run_dir)])
    assert "pass rate" in shown.output
    others = [str(make_run(tmp_path / name, passes(1, 0, name="exact"))) for name in "xyz"]
    table = CliRunner().invoke(app, ["bench", "compare", *others])
    assert "p, adjusted" in table.output, table.output
