"""The comparison of two runs of a suite, paired by sample: what changed, and whether chance explains it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from sessiontree import ConfigError
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.report import OVERALL, UNKNOWN, format_percent, number
from sessiontree.bench.results.run_history import run_differences
from sessiontree.bench.statistics.intervals import CONFIDENCE, Estimate, choose_resamples
from sessiontree.bench.statistics.paired_tests import PairedComparison, compare_paired
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.notebook.cell_html import render_html_table

Clusters: TypeAlias = dict[str, list[float]]
"""The values of each sample, one per epoch."""
_SMALL_P: Final = 0.0001


@dataclass(frozen=True, slots=True)
class ScoreComparison:
    """One score of two runs. Differences are second minus first."""

    name: str
    passes: PairedComparison
    """Of outcomes: 1 for a pass, 0 for a failure."""
    values: PairedComparison
    """Of the scores' values."""


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the two runs."""

    run_dir: str
    model: str
    samples: int
    """Number of samples with a score."""
    unscored: tuple[str, ...]
    """Samples without any score: given up, or not finished; sorted."""
    cost_usd: float
    wall_ms: int
    """Sum over its scored pairs."""
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs of one suite, compared by sample."""

    suite: str
    first: ComparedRun
    second: ComparedRun
    differences: tuple[str, ...]
    """What differs between the runs besides their scores: model, settings, code, releases, git commit."""
    changed: tuple[str, ...]
    """Samples of both runs with another input, target, metadata or files in each. They are left out."""
    shared: int
    """Number of samples that both have scored; all comparisons are about these."""
    only_first: tuple[str, ...]
    """Samples that only the first run has scored, sorted."""
    only_second: tuple[str, ...]
    overall: PairedComparison
    """Of passing all scores."""
    scores: tuple[ScoreComparison, ...]
    """Scores that both runs have, in the first run's order."""
    missing_scores: tuple[str, ...]
    """Scores that only one of the runs has."""
    improved: tuple[str, ...]
    """Samples that pass all scores more often in the second run, in the suite's order."""
    worsened: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return asdict(self)

    def render_summary(self) -> list[str]:
        """Return what is said of the two runs, one line each."""
        lines = [f"suite {self.suite}: {self.shared:,} samples that both runs have scored"]
        for name, run in (("first", self.first), ("second", self.second)):
            model = f"model {run.model}, " if run.model else ""
            lines.append(
                f"{name}: {run.run_dir}: {model}{run.samples:,} samples, ${run.cost_usd:,.4f}, "
                f"{run.input_tokens + run.output_tokens:,} tokens, {len(run.unscored):,} without a score"
            )
        lines.append(f"what differs: {'; '.join(self.differences) or 'nothing that the runs have noted'}")
        if self.changed:
            lines.append(f"left out: {len(self.changed):,} samples that are not the same in both runs")
        return lines

    def __repr__(self) -> str:
        """Return the difference in short; the members hold much more."""
        found = self.overall
        return (
            f"RunComparison(suite={self.suite!r}, shared={self.shared}, better={found.wins}, "
            f"worse={found.losses}, p_value={found.p_value:.4g})"
        )

    def _repr_html_(self) -> str:
        """Return the table of differences, for a notebook."""
        return render_html_table(self.render_summary(), self.table())

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield the header and one row for each comparison, as text."""
        yield (
            "score",
            "first",
            "second",
            "difference",
            "standard error",
            f"{CONFIDENCE:.0%} interval",
            "better",
            "worse",
            "equal",
            "p",
            "test",
        )
        for each in self.scores:
            yield _format_row(f"{each.name}, pass rate", each.passes, format_percent)
            if each.values != each.passes:
                yield _format_row(f"{each.name}, mean", each.values, number)
        if len(self.scores) != 1:
            yield _format_row(f"{OVERALL}, pass rate", self.overall, format_percent)


def _format_row(name: str, found: PairedComparison, shown: Any) -> tuple[str, ...]:
    return (
        name,
        shown(found.first_mean),
        shown(found.second_mean),
        format_signed(found.difference.value, shown),
        UNKNOWN if not found.error else f"± {shown(found.error)}",
        format_signed_span(found.difference, shown),
        f"{found.wins:,}",
        f"{found.losses:,}",
        f"{found.ties:,}",
        format_chance(found.p_value),
        found.test,
    )


def format_signed(value: float | None, shown: Any) -> str:
    """Return a difference as text: what rounds to zero has no sign, and an unknown one is a dash."""
    if value is None:
        return UNKNOWN
    text = str(shown(value))
    if not any(digit in "123456789" for digit in text.partition("e")[0]):
        return text.removeprefix("-")
    return f"+{text}" if value > 0 else text


def format_signed_span(estimate: Estimate, shown: Any) -> str:
    """Return the interval of a difference as text; a dash where the samples do not allow one."""
    if estimate.low is None or estimate.high is None:
        return UNKNOWN
    return f"{format_signed(estimate.low, shown)} to {format_signed(estimate.high, shown)}"


def format_chance(value: float) -> str:
    """Return a p value as text."""
    return f"< {_SMALL_P}" if value < _SMALL_P else f"{value:.4f}"


def compare_runs(first: RecordedRun, second: RecordedRun) -> RunComparison:
    """Compare two runs of one suite.

    Raises:
        ConfigError: they are of different suites, the same run, or share no sample that both have scored.
    """
    if first.suite != second.suite:
        raise ConfigError(
            f"run {str(first.run_dir)!r} is of suite {first.suite!r} and run {str(second.run_dir)!r} "
            f"of suite {second.suite!r}; only runs of one suite can be compared"
        )
    if first.run_dir.resolve() == second.run_dir.resolve():
        raise ConfigError(f"both runs are {str(first.run_dir)!r}; name two different runs")
    changed = _find_changed_samples(first, second)
    one, other = _Outcomes(first, set(changed)), _Outcomes(second, set(changed))
    overall = _compare(OVERALL, one.passes, other.passes)
    if overall.first_mean is None:
        raise ConfigError(
            f"runs {str(first.run_dir)!r} and {str(second.run_dir)!r} share no sample that both have scored "
            f"({len(one.passes):,} and {len(other.passes):,} samples are scored); nothing can be compared"
        )
    names = [name for name in one.outcomes if name in other.outcomes]
    shared = {sample: other.passes[sample] for sample in one.passes if sample in other.passes}
    changes = {
        sample: _compute_mean(after) - _compute_mean(one.passes[sample]) for sample, after in shared.items()
    }
    return RunComparison(
        first.suite,
        one.described(first),
        other.described(second),
        tuple(run_differences(first, second)),
        changed,
        len(shared),
        overall.only_first,
        overall.only_second,
        overall,
        tuple(
            ScoreComparison(
                name,
                _compare(name, one.outcomes[name], other.outcomes[name]),
                _compare(name, one.values[name], other.values[name]),
            )
            for name in names
        ),
        tuple(sorted(one.outcomes.keys() ^ other.outcomes.keys())),
        tuple(sample for sample, change in changes.items() if change > 0),
        tuple(sample for sample, change in changes.items() if change < 0),
    )


def _find_changed_samples(first: RecordedRun, second: RecordedRun) -> tuple[str, ...]:
    """Return the samples that both runs have and that differ, in the first run's order."""
    known = dict(second.rows("SELECT sample_id, digest FROM sample_data"))
    rows = first.rows(
        "SELECT d.sample_id, d.digest FROM sample_data d JOIN samples s ON s.sample_id = d.sample_id "
        "GROUP BY d.sample_id ORDER BY min(s.position)"
    )
    return tuple(name for name, digest in rows if known.get(name, digest) != digest)


class _Outcomes:
    """The values of a run's scores by sample.

    Args:
        run: The run.
        without: Samples that are left out.
    """

    def __init__(self, run: RecordedRun, without: Collection[str]) -> None:
        self._without = frozenset(without)
        self.passes: Clusters = defaultdict(list)
        self.outcomes: dict[str, Clusters] = defaultdict(lambda: defaultdict(list))
        self.values: dict[str, Clusters] = defaultdict(lambda: defaultdict(list))
        self._sums = [0.0, 0, 0, 0]
        for scored in run.scored():
            if scored.passed is None:
                continue  # nothing says whether it passes
            if scored.sample_id in self._without:
                continue
            self.passes[scored.sample_id].append(float(scored.passed))
            for name, score in scored.scores.items():
                self.outcomes[name][scored.sample_id].append(float(score["passed"]))
                self.values[name][scored.sample_id].append(float(score["value"]))
            amounts = (scored.cost_usd, scored.wall_ms, scored.input_tokens, scored.output_tokens)
            self._sums = [total + amount for total, amount in zip(self._sums, amounts, strict=True)]

    def described(self, run: RecordedRun) -> ComparedRun:
        """Return what is said of the run itself."""
        known = {str(sample) for (sample,) in run.rows("SELECT DISTINCT sample_id FROM samples")}
        cost_usd, *whole = self._sums
        unscored = tuple(sorted(known - self.passes.keys() - self._without))
        amounts = (int(each) for each in whole)
        return ComparedRun(str(run.run_dir), run.model, len(self.passes), unscored, cost_usd, *amounts)


def _compare(
    name: str, first: Mapping[str, list[float]], second: Mapping[str, list[float]]
) -> PairedComparison:
    try:
        return compare_paired(first, second, resamples=choose_resamples(len(first)))
    except ValueError as error:
        raise ConfigError(
            f"score {name!r} can't be compared: {error}; the table `samples` holds it"
        ) from error


def _compute_mean(values: list[float]) -> float:
    return sum(values) / len(values)
