"""Metrics of a run: epochs reduced to one value a sample, by groups of samples, with standard errors.

The report has the pass rates of the whole run. Here are those of its parts, and what one value for each
sample says of them: pass@k, for example, by difficulty.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal, TypeAlias

from sessiontree import ConfigError
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.report import OVERALL, UNKNOWN, format_percent, format_span, number
from sessiontree.bench.statistics.intervals import (
    CONFIDENCE,
    Estimate,
    choose_resamples,
    compute_clustered_error,
    compute_clustered_mean,
    compute_wilson_interval,
)
from sessiontree.bench.statistics.reducers import Reducer, find_reducer
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.notebook.cell_html import render_html_table

PASS_RATE: Final = "pass rate"  # noqa: S105 - no secret
"""Label of the row that says how many (sample, epoch) pairs passed."""
ALL: Final = "all"
"""The group of all samples."""
MISSING: Final = "(none)"
"""The group of the samples that do not have the field."""
Interval: TypeAlias = Literal["wilson", "bootstrap"]
Values: TypeAlias = dict[str, list[float]]
"""The values of each sample, one for each epoch."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of one score, over the samples of one group."""

    score: str
    group: str
    """:data:`ALL`, or the field's value as text."""
    metric: str
    """:data:`PASS_RATE`, or a reducer as it is shown, such as ``pass@5``."""
    samples: int
    """Number of samples that the metric is about."""
    left_out: int
    """Samples with too few epochs for it."""
    value: Estimate
    error: float | None
    """Standard error of the value, by clusters; None = fewer than two."""
    interval: Interval
    """``wilson`` for outcomes of independent samples with one epoch each, else ``bootstrap`` by clusters."""
    is_share: bool
    """Whether the value is a share of samples, and shown in percent."""

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        shown = format_percent if self.is_share else number
        left_out = f" ({self.left_out:,} left out)" if self.left_out else ""
        return (
            self.score,
            self.group,
            self.metric,
            f"{self.samples:,}{left_out}",
            shown(self.value.value),
            UNKNOWN if not self.error else f"± {shown(self.error)}",
            format_span(self.value, shown),
            self.interval,
        )


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Metrics of a run, one row for each score, group and metric."""

    run_dir: str
    suite: str
    by: str
    """The field of the groups; empty = none."""
    cluster: str
    """The field whose equal values make a cluster; empty = each sample with its epochs is one."""
    rows: tuple[MetricRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return asdict(self)

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield the header and one line for each row, as text."""
        interval = f"{CONFIDENCE:.0%} interval"
        group = self.by or "group"
        yield ("score", group, "metric", "samples", "value", "standard error", interval, "kind")
        for row in self.rows:
            yield row.cells()

    def __repr__(self) -> str:
        """Return the number of rows; :meth:`table` has them."""
        return f"RunMetrics(suite={self.suite!r}, by={self.by!r}, rows={len(self.rows)})"

    def _repr_html_(self) -> str:
        """Return the table, for a notebook."""
        return render_html_table((), self.table())


def compute_metrics(
    run: RecordedRun, reducers: Sequence[str] = ("mean",), by: str = "", cluster: str = ""
) -> RunMetrics:
    """Return the metrics of a run as it is now.

    Args:
        run: The run.
        reducers: Names of :func:`sessiontree.bench.statistics.reducers.find_reducer`, such as ``pass_at_5``.
        by: A field of the samples' metadata: a group for each of its values, after the group of all samples.
        cluster: A field whose equal values make a cluster, such as the document that questions are about;
            samples of one cluster are not counted as independent.

    Raises:
        ConfigError: the reducer or field is unknown, nothing is scored yet, or a sum of values is not
            finite.
    """
    chosen = [find_reducer(name) for name in reducers]
    groups, clusters = _read_field(run, by), _read_field(run, cluster)
    passes, values = _read(run)
    members: dict[str, set[str]] = {ALL: {sample for each in passes.values() for sample in each}}
    if by:
        named: dict[str, set[str]] = defaultdict(set)
        for sample in members[ALL]:
            named[groups.get(sample, MISSING)].add(sample)
        members |= {name: named[name] for name in sorted(named)}
    rows: list[MetricRow] = []
    for score in passes:
        for group, inside in members.items():
            outcomes = {sample: each for sample, each in passes[score].items() if sample in inside}
            found = {sample: each for sample, each in values[score].items() if sample in inside}
            try:
                rows += _build_rows(score, group, outcomes, found, chosen, clusters)
            except ValueError as error:
                raise ConfigError(
                    f"score {score!r} has no metrics: {error}; the table `samples` holds it"
                ) from error
    return RunMetrics(str(run.run_dir), run.suite, by, cluster, tuple(rows))


def _build_rows(
    score: str,
    group: str,
    outcomes: Values,
    values: Values,
    reducers: Iterable[Reducer],
    clusters: Mapping[str, str],
) -> Iterator[MetricRow]:
    yield _rate(score, group, outcomes, clusters)
    for reducer in reducers:
        is_plain_rate = reducer.name == "mean" and values == outcomes
        if not is_plain_rate:
            yield _reduce(score, group, outcomes if reducer.of_passes else values, reducer, clusters)


def _rate(score: str, group: str, outcomes: Values, clusters: Mapping[str, str]) -> MetricRow:
    grouped = _group_by_cluster(outcomes, clusters)
    scored = sum(map(len, outcomes.values()))
    estimate = compute_clustered_mean(grouped, resamples=choose_resamples(len(grouped)), bounds=(0.0, 1.0))
    interval: Interval = "bootstrap"
    if scored == len(outcomes) == len(grouped):
        estimate = compute_wilson_interval(int(sum(map(sum, outcomes.values()))), scored)
        interval = "wilson"
    error = compute_clustered_error(grouped)
    return MetricRow(score, group, PASS_RATE, len(outcomes), 0, estimate, error, interval, is_share=True)


def _reduce(
    score: str, group: str, values: Values, reducer: Reducer, clusters: Mapping[str, str]
) -> MetricRow:
    found = {sample: reducer.reduce(each) for sample, each in values.items()}
    reduced = {sample: [value] for sample, value in found.items() if value is not None}
    grouped = _group_by_cluster(reduced, clusters)
    bounds = (0.0, 1.0) if reducer.of_passes else None
    return MetricRow(
        score,
        group,
        reducer.label,
        len(reduced),
        len(found) - len(reduced),
        compute_clustered_mean(grouped, resamples=choose_resamples(len(grouped)), bounds=bounds),
        compute_clustered_error(grouped),
        "bootstrap",
        is_share=reducer.of_passes,
    )


def _group_by_cluster(values: Values, clusters: Mapping[str, str]) -> list[list[float]]:
    """Return values by cluster; a sample that has none is one by itself."""
    named: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for sample, each in values.items():
        named[sample in clusters, clusters.get(sample, sample)] += each
    return list(named.values())


def _read(run: RecordedRun) -> tuple[dict[str, Values], dict[str, Values]]:
    """Return the outcomes and the values of each score, and of all scores together, by sample."""
    passes: dict[str, Values] = defaultdict(lambda: defaultdict(list))
    values: dict[str, Values] = defaultdict(lambda: defaultdict(list))
    whole: Values = defaultdict(list)
    for scored in run.scored():
        if scored.passed is None:
            continue
        whole[scored.sample_id].append(float(scored.passed))
        for name, score in scored.scores.items():
            passes[name][scored.sample_id].append(float(score["passed"]))
            values[name][scored.sample_id].append(float(score["value"]))
    if not whole:
        raise ConfigError(
            f"run {str(run.run_dir)!r} of suite {run.suite!r} has no scores yet; run `sessiontree bench run` "
            "with this directory"
        )
    if len(passes) > 1:
        passes[OVERALL] = values[OVERALL] = whole
    return passes, values


def _read_field(run: RecordedRun, name: str) -> dict[str, str]:
    """Return a field of the metadata of each sample that has it, as text; dots lead into objects.

    Raises:
        ConfigError: no sample has it; says which there are.
    """
    if not name:
        return {}
    found, known = dict[str, str](), set[str]()
    for sample, text in run.rows("SELECT sample_id, metadata FROM sample_data"):
        value: Any = json.loads(text or "{}")
        known.update(value)
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            found[str(sample)] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if not found:
        there = f"there are {', '.join(sorted(known))}" if known else "they have no metadata"
        raise ConfigError(f"no sample of run {str(run.run_dir)!r} has the field {name!r}; {there}")
    return found
