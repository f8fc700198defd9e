"""Several runs of a suite: each compared with the first, as one family of comparisons.

The more runs are compared, the more often one of them is better by chance. So the p values are adjusted, by
Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sessiontree import ConfigError
from sessiontree.bench.results.comparison import (
    RunComparison,
    compare_runs,
    format_chance,
    format_signed,
    format_signed_span,
)
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.report import format_percent
from sessiontree.bench.statistics.intervals import CONFIDENCE
from sessiontree.bench.statistics.paired_tests import adjust_by_holm
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.notebook.cell_html import render_html_table


@dataclass(frozen=True, slots=True)
class SeveralRuns:
    """Runs of one suite, each compared with the first one by passing all scores."""

    suite: str
    comparisons: tuple[RunComparison, ...]
    """Of the second run with the first, the third with the first, and so on."""
    adjusted: tuple[float, ...]
    """Their p values, adjusted for their number."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return asdict(self)

    def render_summary(self) -> list[str]:
        """Return what is said of all runs, one line each."""
        first = self.comparisons[0].first
        head = f"suite {self.suite}: {len(self.comparisons) + 1:,} runs; differences are from "
        return [f"{head}{first.run_dir}, on the samples that both have scored"]

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield the header and one line for each run, as text."""
        interval = f"{CONFIDENCE:.0%} interval"
        yield (
            "run",
            "model",
            "shared",
            "pass rate",
            "first",
            "difference",
            interval,
            "better",
            "worse",
            "p",
            "p, adjusted",
        )
        for each, adjusted in zip(self.comparisons, self.adjusted, strict=True):
            found = each.overall
            yield (
                each.second.run_dir,
                each.second.model or "-",
                f"{each.shared:,}",
                format_percent(found.second_mean),
                format_percent(found.first_mean),
                format_signed(found.difference.value, format_percent),
                format_signed_span(found.difference, format_percent),
                f"{found.wins:,}",
                f"{found.losses:,}",
                format_chance(found.p_value),
                format_chance(adjusted),
            )

    def __repr__(self) -> str:
        """Return the number of runs; :meth:`table` has the rest."""
        return f"SeveralRuns(suite={self.suite!r}, runs={len(self.comparisons) + 1})"

    def _repr_html_(self) -> str:
        """Return the table, for a notebook."""
        return render_html_table(self.render_summary(), self.table())


def compare_several(runs: Sequence[RecordedRun]) -> SeveralRuns:
    """Compare each run with the first one.

    Raises:
        ConfigError: they are fewer than two, or two of them can't be compared.
    """
    if len(runs) < 2:
        raise ConfigError(f"{len(runs)} run is given; give at least two runs of one suite")
    first, *others = runs
    places = [run.run_dir.resolve() for run in others]
    for at, place in enumerate(places):
        if place in places[:at]:
            raise ConfigError(f"the run {str(place)!r} is given twice; name it once")
    comparisons = tuple(compare_runs(first, other) for other in others)
    adjusted = adjust_by_holm([each.overall.p_value for each in comparisons])
    return SeveralRuns(first.suite, comparisons, tuple(adjusted))
