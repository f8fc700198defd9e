"""Reports: the numbers of a run, its pictures, and its page, whatever its samples and errors hold."""

from __future__ import annotations

import base64
import html
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from sessiontree import ConfigError
from sessiontree.bench import RunResults
from sessiontree.bench.results.plots import plots_of
from sessiontree.bench.results.report import MAX_CASES, OVERALL
from sessiontree.bench.results.report_page import MAX_SHOWN, render_report_page
from sessiontree.bench.statistics.intervals import (
    Estimate,
    compute_clustered_error,
    compute_clustered_mean,
    compute_wilson_interval,
)
from tests.system.bench.recorded_run_fixtures import (
    HOSTILE,
    GivenSample,
    add_lost_attempt,
    make_run,
    passes,
    run_sums,
    tree_of,
)

BIDI = "\u202egnp.exe\x1b[31m"
"""Turns what follows around, and colours a terminal."""


def hostile_run(run_dir: Path) -> RunResults:
    """A run whose texts all try to be something else."""
    samples = [
        GivenSample(
            f"{HOSTILE}{BIDI}", {f"exact{HOSTILE}": 0.0}, answer=f"<img src=x onerror=alert(1)>{BIDI}"
        ),
        GivenSample(
            '"><svg onload=alert(1)>',
            {f"exact{HOSTILE}": 0.0},
            status="error",
            error_kind="ValueError",
            error=f"'{HOSTILE}' {BIDI} $\\frac{{1}}{{0}}$",
        ),
        GivenSample("fine", {f"exact{HOSTILE}": 1.0}, models=(f"model{HOSTILE}",)),
        GivenSample("gone", state="failed", error_kind=f"Lost{HOSTILE}", error=HOSTILE),
    ]
    return RunResults(make_run(run_dir, samples, suite=f"suite{HOSTILE}{BIDI}", model=HOSTILE))


class PageParser(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag and keep its attributes."""
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.text += data


def parsed(page: str) -> PageParser:
    """Return what a page consists of."""
    parser = PageParser()
    parser.feed(page)
    return parser


def test_scores_have_both_intervals(tmp_path: Path) -> None:
    """Rates and means over all epochs, which are not independent: only the bootstrap has an interval."""
    samples = [
        GivenSample(f"s{index}", {"exact": float(index % 2), "near": index / 10 + epoch / 100}, epoch=epoch)
        for index in range(6)
        for epoch in (1, 2)
    ]
    report = RunResults(make_run(tmp_path / "run", samples)).report()
    exact, near = report.scores
    assert (exact.name, exact.samples, exact.scored, exact.passed) == ("exact", 6, 12, 6)
    assert exact.pass_rate == Estimate(0.5, None, None, 12)
    both = [[float(index % 2)] * 2 for index in range(6)]
    assert exact.clustered_pass_rate == compute_clustered_mean(both)
    assert exact.error == compute_clustered_error(both)
    alone = [each for each in samples if each.epoch == 1]
    once = RunResults(make_run(tmp_path / "once", alone)).report()
    assert once.scores[0].pass_rate == compute_wilson_interval(3, 6)
    assert exact.mean == exact.clustered_pass_rate
    assert near.mean == compute_clustered_mean(
        [[index / 10 + epoch / 100 for epoch in (1, 2)] for index in range(6)]
    )
    assert (near.passed, report.overall.passed) == (0, 0)
    head, *rows = report.score_table()
    assert [row[0] for row in rows] == ["exact", "near", OVERALL]
    assert rows[0][1:6] == ("6", "12", "6", "50.0%", "100.0%")
    assert len(head) == len(rows[0])


def test_costs_times_tokens_and_attempts_are_added_up(tmp_path: Path) -> None:
    """Over whole trees; repeated and lost attempts are counted, given-up samples are no scores."""
    samples = [
        GivenSample("a", {"exact": 1.0}, wall_ms=1_000, cost_usd=0.5, models=("big", "small")),
        GivenSample("b", {"exact": 0.0}, wall_ms=3_000, cost_usd=0.25, lost=2),
        GivenSample("c", {"exact": 0.0}, wall_ms=2_000, cost_usd=0.0, status="timeout"),
        GivenSample("d", state="failed", lost=1, error_kind="EngineLost", error="Ray is gone"),
        GivenSample("e", state="waiting"),
    ]
    report = RunResults(make_run(tmp_path / "run", samples)).report()
    totals = report.totals
    assert (totals.trees, totals.sessions, totals.turns, totals.tool_calls) == (3, 4, 4, 4)
    assert (totals.input_tokens, totals.output_tokens, totals.cost_usd) == (400, 40, 0.75)
    assert {each.model: each.input_tokens for each in report.models} == {
        "scripted": 200,
        "big": 100,
        "small": 100,
    }
    told = report.to_json()
    assert told["wall_ms"] == {"p50": 2_000.0, "p95": pytest.approx(2_900.0), "max": 3_000.0, "sum": 6_000.0}
    assert told["finished"] is False
    tried = report.attempts
    assert (tried.attempts, tried.repeated, tried.lost, tried.errors) == (7, 3, 3, {"EngineLost": 1})
    assert {each.kind: [case.sample_id for case in each.cases] for each in report.failures} == {
        "not passed": ["b"],
        "timeout": ["c"],
        "given up: EngineLost": ["d"],
    }
    failed = next(each for each in report.failures if each.kind.startswith("given up"))
    assert failed.cases[0].tree_id == tree_of(3, 1, 2)
    text = "\n".join(report.render_summary())
    assert "3 of 5 scored (coverage 60.0%), 1 given up, 1 unfinished" in text
    assert "median 2.0 s" in text
    assert "3 lost, 1 EngineLost" in text


async def test_lost_attempts_are_paid_for_too(tmp_path: Path) -> None:
    """What their trees used is read from the journals, and is apart from what was scored."""
    results = await run_sums(tmp_path / "run")
    before = results.report()
    assert before.unscored.trees == 0
    await add_lost_attempt(results.run_dir, "sum-1-1")
    report = results.report()
    assert report.totals == before.totals
    assert report.unscored.trees == 1
    assert report.unscored.input_tokens == 10 * len("hello")
    assert report.attempts.unreadable == 0
    assert report.totals.input_tokens == sum(results.to_arrow("sessions")["input_tokens"].to_pylist())
    assert "trees that were not scored used $0.05" in "\n".join(report.render_summary())


def test_one_sample_has_no_bootstrap_interval(tmp_path: Path) -> None:
    """Nothing says how much samples differ; the rate has Wilson's interval all the same."""
    report = RunResults(make_run(tmp_path / "run", passes(1))).report()
    assert report.scores[0].clustered_pass_rate.low is None
    assert report.scores[0].pass_rate.low == pytest.approx(0.2065, abs=1e-3)
    assert list(report.score_table())[1][8] == "-"
    assert plots_of(report)


def test_run_without_results_is_refused(tmp_path: Path) -> None:
    """The error says what to do."""
    results = RunResults(make_run(tmp_path / "run", [GivenSample("a", state="waiting")]))
    with pytest.raises(
        ConfigError, match=r"no results yet: 1 samples, none scored; run `sessiontree bench run`"
    ):
        results.report()


def test_run_with_given_up_samples_only_is_reported(tmp_path: Path) -> None:
    """No rate is known, and nothing is drawn."""
    run_dir = make_run(tmp_path / "run", [GivenSample("a", state="failed", error_kind="EngineLost")])
    report = RunResults(run_dir).report()
    assert report.scores == ()
    assert report.overall.pass_rate.value is None
    assert plots_of(report) == ()
    assert "given up: EngineLost: 1" in render_report_page(report, ())


def test_many_failures_are_counted_and_some_are_named(tmp_path: Path) -> None:
    """The report stays small."""
    report = RunResults(make_run(tmp_path / "run", passes(*[0] * (MAX_CASES + 5)))).report()
    (group,) = report.failures
    assert (group.count, len(group.cases)) == (MAX_CASES + 5, MAX_CASES)
    page = render_report_page(report, ())
    assert page.count("exact: expected 42") == MAX_SHOWN
    assert f"not passed: {MAX_CASES + 5:,}" in page


def test_pictures_are_png(tmp_path: Path) -> None:
    """One of the rates, one of time and one of cost, each with a description; costs of zero are not drawn."""
    report = RunResults(make_run(tmp_path / "run", passes(1, 0, 1))).report()
    plots = plots_of(report)
    assert [plot.name for plot in plots] == ["pass_rates", "wall_time", "cost"]
    for plot in plots:
        with Image.open(BytesIO(plot.png)) as image:
            assert image.format == "PNG"
            assert image.width > 800
            colors = image.convert("RGB").getcolors(2**24)
            assert colors is not None
            assert len(colors) > 10  # not an empty sheet
    assert "exact 66.7%, Wilson 20.8% to 93.9%" in plots[0].description
    free = [GivenSample("a", {"exact": 1.0}, cost_usd=0.0)]
    names = [plot.name for plot in plots_of(RunResults(make_run(tmp_path / "free", free)).report())]
    assert names == ["pass_rates", "wall_time"]


def test_names_in_pictures_are_text(tmp_path: Path) -> None:
    """Formulas are not set, letters without a glyph raise no warning, and control characters are shown."""
    scores = {"$\\frac{1}{$": 1.0, "順位": 0.0, f"x{BIDI}": 0.0, "n" * 300: 1.0}
    report = RunResults(
        make_run(tmp_path / "run", [GivenSample("a", scores), GivenSample("b", scores)])
    ).report()
    assert len(plots_of(report)) == 3


def test_page_stands_alone(tmp_path: Path) -> None:
    """Pictures are inside, nothing is fetched, nothing runs; captions and descriptions are there."""
    report = RunResults(make_run(tmp_path / "run", passes(1, 0, 1))).report()
    plots = plots_of(report)
    page = parsed(render_report_page(report, plots))
    sources = [value for _, name, value in page.attributes if name in {"src", "href", "srcset", "action"}]
    assert len(sources) == len(plots)
    for source, plot in zip(sources, plots, strict=True):
        kind, _, data = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == plot.png
    assert not {"script", "link", "iframe", "object", "base", "form"} & page.tags.keys()
    assert ("html", "lang", "en") in page.attributes
    assert ("meta", "name", "viewport") in page.attributes
    policy = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert page.tags["img"] == len([value for _, name, value in page.attributes if name == "alt" and value])
    assert page.tags["table"] == page.tags["caption"]
    assert (page.tags["h1"], page.tags["main"], page.tags["title"]) == (1, 1, 1)


def hostile_text_is_text(source: str) -> None:
    """Nothing that the hostile run holds is more than text, and nothing reorders it."""
    page = parsed(source)
    assert not {"script", "svg"} & page.tags.keys()
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.tags["img"] == 3
    assert page.text.count(HOSTILE) >= 5
    assert "\u202e" not in source
    assert "\x1b" not in source
    assert r"\u{202e}" in page.text


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    """Ids, names, errors and answers are escaped wherever they are shown."""
    report = hostile_run(tmp_path / "run").report()
    page = render_report_page(report, plots_of(report))
    hostile_text_is_text(page)
    for planted in (html.unescape(page), page.replace(r"\u{202e}", "\u202e")):
        with pytest.raises(AssertionError):
            hostile_text_is_text(planted)
