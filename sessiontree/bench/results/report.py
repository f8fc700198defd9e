"""The report of a run: pass rates with intervals, cost, time, tokens over whole trees, and failures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from sessiontree import ConfigError, JournalError, Usage
from sessiontree.bench.results.recorded_run import (
    ANSWERED,
    AttemptRecord,
    RecordedRun,
    RunCounts,
    ScoredSample,
    sum_usage_by_model,
)
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.results.run_history import RunOrigin, find_origin, sum_worked_ms
from sessiontree.bench.statistics.intervals import (
    CONFIDENCE,
    Estimate,
    choose_resamples,
    compute_clustered_error,
    compute_clustered_mean,
    compute_quantile,
    compute_wilson_interval,
)
from sessiontree.bench.suite.judge_use import JudgeUse, judge_use
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.notebook.cell_html import render_html_table

OVERALL: Final = "all scores"
"""Name of the row that counts a sample as passed if all its scores passed."""
MAX_CASES: Final = 1_000
"""Most samples that a report names for each kind of failure; the number of all is given."""
UNKNOWN: Final = "-"
"""Shown instead of a value that nothing determines."""
_ERROR_CHARS: Final = 400
_ALL: Final = 2**62


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """One score over all scored (sample, epoch) pairs."""

    name: str
    samples: int
    """Number of different samples."""
    scored: int
    """Number of (sample, epoch) pairs."""
    passed: int
    pass_rate: Estimate
    """With Wilson's interval; without one if samples have several epochs, which are not independent."""
    clustered_pass_rate: Estimate
    """With a bootstrap interval that draws samples with all their epochs."""
    error: float | None
    """Standard error of the pass rate, by samples with all their epochs; None = fewer than two samples."""
    mean: Estimate
    """Mean value, with a bootstrap interval of the same kind."""


@dataclass(frozen=True, slots=True)
class FailureCase:
    """One (sample, epoch) that did not pass, and the tree to look at."""

    sample_id: str
    epoch: int
    tree_id: str
    """Empty = no tree was opened."""
    error: str


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Samples that did not pass for the same kind of reason."""

    kind: str
    """``not passed``, ``empty reply``, ``timeout``, ``budget``, ``undecided: <class>`` or ``given up: …``."""
    count: int
    cases: tuple[FailureCase, ...]
    """At most :data:`MAX_CASES` of them, in the suite's order."""


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """What the scored trees' sessions of one model used."""

    model: str
    sessions: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Sums over whole trees, all sessions included."""

    trees: int
    sessions: int
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class AttemptTotals:
    """How often samples were tried."""

    attempts: int
    repeated: int
    """Attempts beyond the first of their (sample, epoch)."""
    lost: int
    """Attempts whose process died, or whose lease expired: the sample was leased again."""
    errors: dict[str, int]
    """Infrastructure errors that were not scored, by class: the sample was leased again or given up."""
    unreadable: int
    """Trees of unscored attempts that no journal here holds: what they used is unknown."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run came to. Times are in milliseconds, costs in US dollars."""

    run_dir: str
    suite: str
    model: str
    counts: RunCounts
    overall: ScoreSummary
    """A pair passes if all its scores pass; its value is 1 or 0."""
    scores: tuple[ScoreSummary, ...]
    totals: RunTotals
    """Of the trees that were scored."""
    unscored: RunTotals
    """Of the trees of attempts that were not scored."""
    judging: JudgeUse
    """What models used that judged the scored pairs; it is in none of the sums above."""
    models: tuple[ModelTotals, ...]
    wall_ms: tuple[float, ...]
    """Of each scored pair, in the suite's order."""
    costs_usd: tuple[float, ...]
    elapsed_ms: int
    """How long programs worked on it: the time between commands does not count."""
    attempts: AttemptTotals
    failures: tuple[FailureGroup, ...]
    """Most frequent first."""
    origin: RunOrigin
    """The commands, the code and the settings that its rows come from."""

    @property
    def all_scores(self) -> tuple[ScoreSummary, ...]:
        """The scores, and the overall row if there are several."""
        return self.scores if len(self.scores) == 1 else (*self.scores, self.overall)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the values of single pairs as a JSON object."""
        told = asdict(self)
        wall, costs = told.pop("wall_ms"), told.pop("costs_usd")
        return {
            **told,
            "finished": self.counts.unfinished == 0,
            "coverage": self.counts.coverage,
            "wall_ms": _spread(wall),
            "sample_cost_usd": _spread(costs),
        }

    def render_summary(self) -> list[str]:
        """Return what is said of the whole run, one line each."""
        counts, totals = self.counts, self.totals
        model = f", model {self.model}" if self.model else ""
        head = f"suite {self.suite}{model}: {counts.scored:,} of {counts.total:,} scored"
        head += f" (coverage {format_percent(counts.coverage)})"
        head += f", {counts.undecided:,} undecided" if counts.undecided else ""
        head += f", {counts.failed:,} given up" if counts.failed else ""
        head += f", {counts.unfinished:,} unfinished" if counts.unfinished else ""
        cost = f"cost: ${totals.cost_usd:,.4f} for {totals.trees:,} trees with {totals.sessions:,} sessions, "
        cost += f"{totals.input_tokens:,} input and {totals.output_tokens:,} output tokens, "
        lines = [head, f"{cost}{totals.turns:,} turns, {totals.tool_calls:,} tool calls"]
        wall = _spread(self.wall_ms)
        lines.append(
            f"time per sample: median {format_seconds(wall['p50'])}, 95th percentile "
            f"{format_seconds(wall['p95'])}, "
            f"longest {format_seconds(wall['max'])}; {format_seconds(self.elapsed_ms)} in all"
        )
        judges = self.judging
        if judges.asked:
            lines.append(
                f"judging: ${judges.cost_usd:,.4f} for {judges.asked:,} scores that a model gave, "
                f"{judges.input_tokens:,} input and {judges.output_tokens:,} output tokens"
            )
        if self.attempts.repeated or self.attempts.lost or self.attempts.errors:
            lines.append(self._attempt_line())
        return lines + self.origin.lines()

    def _attempt_line(self) -> str:
        tried, spent = self.attempts, self.unscored
        reasons = [f"{count:,} {kind}" for kind, count in tried.errors.items()]
        if tried.lost:
            reasons.insert(0, f"{tried.lost:,} lost")
        line = f"attempts: {tried.attempts:,}, of which {tried.repeated:,} repeated"
        line += f" (not scored: {', '.join(reasons)})" if reasons else ""
        if spent.trees:
            line += f"; trees that were not scored used ${spent.cost_usd:,.4f} and "
            line += f"{spent.input_tokens + spent.output_tokens:,} tokens"
        if tried.unreadable:
            line += f"; what {tried.unreadable:,} of them used is unknown: their journals are not here"
        return line

    def __repr__(self) -> str:
        """Return how far the run is and its pass rate; the members hold much more."""
        rate, coverage = format_percent(self.overall.pass_rate.value), format_percent(self.counts.coverage)
        return (
            f"RunReport(suite={self.suite!r}, scored={self.counts.scored}, coverage={coverage!r}, "
            f"pass_rate={rate!r})"
        )

    def _repr_html_(self) -> str:
        """Return the table of scores, for a notebook."""
        return render_html_table(self.render_summary(), self.score_table())

    def score_table(self) -> Iterator[tuple[str, ...]]:
        """Yield the header and one row for each score, as text."""
        level = f"{CONFIDENCE:.0%}"
        coverage = format_percent(self.counts.coverage)
        yield (
            "score",
            "samples",
            "scored",
            "passed",
            "pass rate",
            "coverage",
            "standard error",
            f"{level}, Wilson",
            f"{level}, bootstrap",
            "mean",
            f"{level}, bootstrap",
        )
        for each in self.all_scores:
            yield (
                each.name,
                f"{each.samples:,}",
                f"{each.scored:,}",
                f"{each.passed:,}",
                format_percent(each.pass_rate.value),
                coverage,
                format_percent(each.error or None),  # values without variance are no certainty
                format_span(each.pass_rate, format_percent),
                format_span(each.clustered_pass_rate, format_percent),
                number(each.mean.value),
                format_span(each.mean, number),
            )


def format_percent(value: float | None) -> str:
    """Return a share as text; a dash where it is unknown."""
    return UNKNOWN if value is None else f"{100 * value:.1f}%"


def number(value: float | None) -> str:
    """Return a value as text with four significant digits; a dash where it is unknown."""
    return UNKNOWN if value is None else f"{value:#.4g}"


def format_seconds(value_ms: float | None) -> str:
    """Return a time as text in the unit that suits it."""
    if value_ms is None:
        return UNKNOWN
    if value_ms < 1_000:
        return f"{value_ms:.0f} ms"
    if value_ms < 600_000:
        return f"{value_ms / 1_000:.1f} s"
    return f"{value_ms / 60_000:,.1f} min"


def format_span(estimate: Estimate, shown: Any) -> str:
    """Return an interval as text; a dash where it is unknown."""
    if estimate.low is None or estimate.high is None:
        return UNKNOWN
    return f"{shown(estimate.low)} to {shown(estimate.high)}"


def _spread(values: Iterable[float]) -> dict[str, float | None]:
    found = tuple(values)
    return {
        "p50": compute_quantile(found, 0.5),
        "p95": compute_quantile(found, 0.95),
        "max": compute_quantile(found, 1.0),
        "sum": float(sum(found)),
    }


def build_report(run: RecordedRun) -> RunReport:
    """Return the report of a run as it is now.

    Raises:
        ConfigError: nothing of it is scored or given up yet, or the ledger can't be read.
    """
    counts = run.counts()
    if counts.scored + counts.undecided + counts.failed == 0:
        raise ConfigError(
            f"run {str(run.run_dir)!r} of suite {run.suite!r} has no results yet: {counts.total:,} samples, "
            "none scored; run `sessiontree bench run` with this directory, then report again"
        )
    gathered = _Gathered()
    for scored in run.scored():
        gathered.take(scored)
    for attempt in run.failed():
        gathered.fail(attempt)
    unscored, unreadable = _sum_unscored(run)
    return RunReport(
        str(run.run_dir),
        run.suite,
        run.model,
        counts,
        gathered.overall(),
        gathered.summaries(),
        _sum_totals(run),
        unscored,
        gathered.judging,
        _list_models(run),
        tuple(gathered.wall_ms),
        tuple(gathered.costs_usd),
        sum_worked_ms(run),
        _count_attempts(run, unreadable),
        gathered.groups(),
        find_origin(run),
    )


class _Gathered:
    """Values of the scores by name and sample, and the failures by kind, while rows are read."""

    def __init__(self) -> None:
        self.wall_ms: list[float] = []
        self.costs_usd: list[float] = []
        self.judging = JudgeUse()
        self._samples: dict[str, int] = {}
        """Sample to its place in the lists below."""
        self._passes: list[list[float]] = []
        self._values: dict[str, list[list[float]]] = {}
        self._outcomes: dict[str, list[list[float]]] = {}
        self._failures: dict[str, list[FailureCase]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)

    def take(self, scored: ScoredSample) -> None:
        """Take in a scored pair, or one that is undecided."""
        if scored.passed is None:
            named = f": {scored.error_kind}" if scored.error_kind else ""
            self._fail(f"undecided{named}", scored, scored.error)
            return
        place = self._samples.setdefault(scored.sample_id, len(self._samples))
        if place == len(self._passes):
            self._passes.append([])
        self._passes[place].append(float(scored.passed))
        self.wall_ms.append(scored.wall_ms)
        self.costs_usd.append(scored.cost_usd)
        self.judging += judge_use(score["metadata"] for score in scored.scores.values())
        for name, score in scored.scores.items():
            for table, value in ((self._values, score["value"]), (self._outcomes, score["passed"])):
                clusters = table.setdefault(name, [])
                while len(clusters) <= place:
                    clusters.append([])
                clusters[place].append(float(value))
        if scored.passed:
            return
        if scored.status not in ANSWERED:
            named = f": {scored.error_kind}" if scored.error_kind else ""
            self._fail(f"{scored.status}{named}", scored, scored.error)
        else:
            said = (
                f"{name}: {score.get('explanation') or score['value']}"
                for name, score in _select_not_passed(scored)
            )
            kind = "empty reply" if scored.status == "empty" else "not passed"
            self._fail(kind, scored, "; ".join(said))

    def fail(self, attempt: AttemptRecord) -> None:
        """Take in a pair that was given up."""
        self._fail(f"given up: {attempt.error_kind or attempt.outcome}", attempt, attempt.error)

    def _fail(self, kind: str, found: ScoredSample | AttemptRecord, error: str) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= MAX_CASES:
            cut = error if len(error) <= _ERROR_CHARS else f"{error[:_ERROR_CHARS]}…"
            self._failures[kind].append(FailureCase(found.sample_id, found.epoch, found.tree_id, cut))

    def overall(self) -> ScoreSummary:
        """Return the summary of passing all scores."""
        return _summarize(OVERALL, self._passes, self._passes)

    def summaries(self) -> tuple[ScoreSummary, ...]:
        """Return the summary of each score, in the scorers' order."""
        return tuple(_summarize(name, self._values[name], self._outcomes[name]) for name in self._values)

    def groups(self) -> tuple[FailureGroup, ...]:
        """Return the failures by kind, most frequent first."""
        kinds = sorted(self._counts, key=lambda kind: (-self._counts[kind], kind))
        return tuple(FailureGroup(kind, self._counts[kind], tuple(self._failures[kind])) for kind in kinds)


def _select_not_passed(scored: ScoredSample) -> Iterator[tuple[str, Any]]:
    return ((name, score) for name, score in scored.scores.items() if not score["passed"])


def _summarize(name: str, values: list[list[float]], outcomes: list[list[float]]) -> ScoreSummary:
    scored = sum(map(len, outcomes))
    passed = int(sum(map(sum, outcomes)))
    resamples = choose_resamples(len(outcomes))
    rate = compute_clustered_mean(outcomes, resamples=resamples, bounds=(0.0, 1.0))
    wilson = compute_wilson_interval(passed, scored)
    if scored != rate.n:
        wilson = replace(wilson, low=None, high=None)
    try:
        mean = rate if values == outcomes else compute_clustered_mean(values, resamples=resamples)
    except ValueError as error:
        raise ConfigError(
            f"score {name!r} can't be reported: {error}; the table `samples` holds it"
        ) from error
    return ScoreSummary(name, rate.n, scored, passed, wilson, rate, compute_clustered_error(outcomes), mean)


def _sum_totals(run: RecordedRun) -> RunTotals:
    (row,) = run.rows(
        "SELECT count(tree_id), sum(sessions), sum(turns), sum(tool_calls), sum(input_tokens), "
        "sum(output_tokens), sum(cost_usd) FROM scores"
    )
    return RunTotals(*(each or 0 for each in row))


def _list_models(run: RecordedRun) -> tuple[ModelTotals, ...]:
    rows = run.rows(
        "SELECT coalesce(t.model, ''), count(*), sum(t.turns), sum(t.tool_calls), sum(t.input_tokens), "
        "sum(t.output_tokens), sum(t.cost_usd) FROM scores x JOIN sessions t ON t.tree_id = x.tree_id "
        "GROUP BY 1 ORDER BY 7 DESC, 2 DESC, 1"
    )
    return tuple(ModelTotals(*row) for row in rows)


def _sum_unscored(run: RecordedRun) -> tuple[RunTotals, int]:
    """Return what trees of unscored attempts used, and how many can't be read."""
    total, trees, sessions, unreadable = Usage(), 0, 0, 0
    with RunFacts(run.run_dir) as facts:
        for attempt in run.list_unscored_attempts(0, _ALL):
            try:
                used = sum_usage_by_model(facts.read(attempt.tree_id))
            except JournalError:
                unreadable += 1
                continue
            trees += 1
            for usage, count in used.values():
                total += usage
                sessions += count
    amounts = (total.turns, total.tool_calls, total.input_tokens, total.output_tokens, total.cost_usd)
    return RunTotals(trees, sessions, *amounts), unreadable


def _count_attempts(run: RecordedRun, unreadable: int) -> AttemptTotals:
    ((attempts, pairs),) = run.rows(
        "SELECT (SELECT count(*) FROM attempts), (SELECT count(*) FROM samples WHERE attempts > 0)"
    )
    lost, errors = 0, {}
    for outcome, kind, count in run.rows(
        "SELECT a.outcome, coalesce(a.error_kind, 'error'), count(*) FROM attempts a LEFT JOIN scores x "
        "ON x.sample_id = a.sample_id AND x.epoch = a.epoch AND x.lease_id = a.lease_id "
        "WHERE a.outcome IN ('lost', 'error') AND x.lease_id IS NULL GROUP BY 1, 2 ORDER BY 3 DESC, 2"
    ):
        if outcome == "lost":
            lost += count
        else:
            errors[kind] = count
    return AttemptTotals(attempts, attempts - pairs, lost, errors, unreadable)
