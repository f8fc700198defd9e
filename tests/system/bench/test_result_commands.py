"""The commands report, compare and show: what they print for people and programs, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from sessiontree.bench import RunResults
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.sample_view import view_sample
from sessiontree.cli.app import app
from tests.system.bench.recorded_run_fixtures import (
    HOSTILE,
    GivenSample,
    anyio_backend,
    make_run,
    passes,
    run_sums_with_a_loss,
)

__all__ = ["anyio_backend"]  # a fixture


@pytest.fixture(scope="module")
async def sums(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> RunResults:
    """A run that really ran, with one attempt that was lost."""
    return await run_sums_with_a_loss(tmp_path_factory.mktemp("sums") / "run")


def said(*words: str | Path, code: int = 0) -> str:
    """Run a command of ``sessiontree bench``, and return what it printed or complained about."""
    done = CliRunner().invoke(app, ["bench", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def object_of(*words: str | Path) -> dict[str, Any]:
    """Return the object that a command prints for programs."""
    found: dict[str, Any] = json.loads(said(*words, "--json"))
    return found


def test_report_names_failures_and_their_trees(sums: RunResults) -> None:
    """Text for a terminal: rates, costs, and for each failure the sample and the tree; nothing hidden."""
    text = said("report", sums.run_dir)
    rows = {row["sample_id"]: row for row in sums.to_arrow().to_pylist()}
    assert "6 of 7 scored (coverage 85.7%), 1 undecided" in text
    assert "83.3%" in text
    assert "not passed: 1" in text
    for sample in ("sum-2-3", HOSTILE):
        line = next(line for line in text.splitlines() if sample in line)
        assert rows[sample]["tree_id"] in line
    assert r"\u{1b}[31m" in text
    assert "\x1b" not in text


def test_report_is_an_object_for_programs(sums: RunResults) -> None:
    """The same numbers, with all cases of each failure."""
    told = object_of("report", sums.run_dir)
    assert told["suite"] == "sums"
    assert told["finished"] is True
    assert told["scores"][0]["pass_rate"]["value"] == pytest.approx(5 / 6)
    assert told["coverage"] == pytest.approx(6 / 7)
    assert {case["sample_id"] for group in told["failures"] for case in group["cases"]} == {
        "sum-2-3",
        HOSTILE,
    }
    assert told["unscored"]["trees"] == 1
    assert told["files"] == []


def test_report_writes_page_pictures_and_tables(sums: RunResults, tmp_path: Path) -> None:
    """Where it is asked to; it says where they are."""
    page, pictures = tmp_path / "report.html", tmp_path / "pictures"
    text = said("report", sums.run_dir, "--html", page, "--plots", pictures, "--parquet")
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert {path.name for path in pictures.iterdir()} == {"pass_rates.png", "wall_time.png", "cost.png"}
    assert ds.dataset(sums.run_dir / "results" / "samples").count_rows() == 7
    for path in (page, pictures / "cost.png", sums.run_dir / "results"):
        assert f"written: {path}" in text.replace("\n", "")


def test_run_is_found_by_its_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was given no directory is below ``runs``, by the suite's name."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "my_sums", passes(1, 0), suite="my sums")
    assert object_of("report", "my sums")["counts"]["scored"] == 2
    text = said("report", "your sums", code=2)
    assert "ConfigError" in text
    assert "runs here: runs/my_sums" in text


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A missing directory, a run without results, and a module that can't be loaded."""
    assert "no results under" in said("report", tmp_path / "nothing", code=2)
    make_run(tmp_path / "empty", [GivenSample("a", state="waiting")])
    assert "no results yet" in said("report", tmp_path / "empty", code=2)
    assert "ConfigError" in said("show", "no_such_module:suite", "a", code=2)


def test_compare_says_what_changed(tmp_path: Path) -> None:
    """Text and object; runs of different suites are refused."""
    first = make_run(tmp_path / "first", passes(1, 1, 0, 0))
    second = make_run(tmp_path / "second", passes(1, 0, 1, 1))
    text = said("compare", first, second)
    assert "4 samples that both runs have scored" in text
    assert "+25.0%" in text
    assert "pass more often in the second (2): s2, s3" in text
    assert "pass less often in the second (1): s1" in text
    assert object_of("compare", first, second)["overall"]["wins"] == 2
    other = make_run(tmp_path / "other", passes(1), suite=HOSTILE)
    assert "only runs of one suite can be compared" in said("compare", first, other, code=2)


def test_show_has_scores_attempts_tree_and_transcript(sums: RunResults) -> None:
    """Of a sample that was tried twice: all of it, and the tree as ``sessiontree tree`` draws it."""
    text = said("show", sums.run_dir, "sum-2-3")
    assert "sample sum-2-3, epoch 1, suite sums: scored" in text
    assert "near: 0.5000, not passed" in text
    assert "main/w1: message from parent" in text
    assert "    2 + 3" in text
    assert "main: reply" in text
    assert "tree t" in text
    assert "w1  " in text
    twice = said("show", sums.run_dir, "sum-1-1")
    assert [
        line.split()[:2] for line in twice.splitlines() if line.split()[1:2] in (["lost"], ["scored"])
    ] == [
        ["0", "lost"],
        ["1", "scored"],
    ]


def test_show_deceives_no_terminal(sums: RunResults) -> None:
    """What a sample, an answer or an error holds is shown, and does nothing."""
    text = said("show", sums.run_dir, HOSTILE)
    assert HOSTILE in text
    assert r"\u{1b}[31m" in text
    assert "\x1b" not in text
    told = object_of("show", sums.run_dir, HOSTILE)
    assert told["scored"]["error"].endswith("\x1b[31m")


def test_show_is_an_object_for_programs(sums: RunResults) -> None:
    """With every entry of the transcript, uncut."""
    told = object_of("show", sums.run_dir, "sum-1-2")
    assert (told["state"], told["epoch"], told["scored"]["passed"]) == ("scored", 1, True)
    assert [(each["session"], each["what"], each["text"]) for each in told["transcript"]] == [
        ("main", "spawned main", ""),
        ("main", "spawned main/w1", "1 + 2"),
        ("main/w1", "message from parent", "1 + 2"),
        ("main/w1", "reply", "3"),
        ("main/w1", "ended: completed", "3"),
        ("main", "message from user", "3"),
        ("main", "reply", "3"),
        ("main", "ended: completed", "scored"),
    ]


def test_show_writes_the_tree_of_a_sample_as_a_page(sums: RunResults, tmp_path: Path) -> None:
    """One file, in which nothing that a sample wrote is markup; without a tree the error says why."""
    page = tmp_path / "sample.html"
    assert f"to {page}" in said("show", sums.run_dir, HOSTILE, "--html", str(page))
    written = page.read_text("utf-8")
    assert "Content-Security-Policy" in written
    assert HOSTILE not in written
    assert "\x1b" not in written
    run_dir = make_run(tmp_path / "run", [GivenSample("b", state="waiting")])
    assert "'b' has no page: no tree was opened" in said("show", run_dir, "b", "--html", str(page), code=2)


def test_unknown_sample_names_similar_ones(sums: RunResults) -> None:
    """An error that helps; so does that of an epoch."""
    assert "did you mean 'sum-1-1' or 'sum-1-2' or 'sum-1-3'?" in said("show", sums.run_dir, "sum-1", code=2)
    assert "'sum-2-3'" in said("show", sums.run_dir, "sun-2-3", code=2)
    assert "has no epoch 7 in this run; it has 1" in said(
        "show", sums.run_dir, "sum-1-1", "--epoch", "7", code=2
    )


def test_sample_without_a_tree_is_shown(tmp_path: Path) -> None:
    """Its scores and attempts are known; that the tree's journal is elsewhere is said."""
    run_dir = make_run(
        tmp_path / "run",
        [
            GivenSample("a", {"exact": 1.0}, epoch=1),
            GivenSample("a", {"exact": 0.0}, epoch=2, lost=1),
            GivenSample("b", state="waiting"),
        ],
    )
    text = said("show", run_dir, "a")
    assert "epoch 2 of 2" in text  # the first that did not pass
    assert "the tree can't be shown" in text
    assert "no tree was opened" in said("show", run_dir, "b")
    view = view_sample(RecordedRun(run_dir), "a", 1)
    assert view.scored is not None
    assert view.scored.passed
