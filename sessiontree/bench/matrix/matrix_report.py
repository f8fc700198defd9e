"""What a matrix came to: one line for each cell, from the report of its run."""

from __future__ import annotations

from typing import Any, Final

from sessiontree import ConfigError
from sessiontree.bench.matrix.matrix_file import MatrixCell, MatrixPlan
from sessiontree.bench.results.recorded_run import LEDGER, RecordedRun
from sessiontree.bench.results.report import RunReport, build_report, format_percent, format_span
from sessiontree.bench.statistics.intervals import Estimate, compute_wilson_interval
from sessiontree.contracts.values.quick_dataclass import dataclass

OWN_MODEL: Final = "(the suite's own)"
KINDS_SHOWN: Final = 3
REPORT: Final = "report.html"
"""The page of a run, in its directory."""


@dataclass(frozen=True, slots=True)
class CellReport:
    """One cell as it is now."""

    cell: MatrixCell
    report: RunReport | None
    """None = nothing of it is scored."""
    problem: str = ""
    """Why its run could not begin or could not be read; empty = it could."""

    @property
    def model(self) -> str:
        """The model as it is shown."""
        return self.cell.model or OWN_MODEL

    @property
    def state(self) -> str:
        """``complete``, ``incomplete``, ``not begun`` or ``refused``."""
        if self.report is None:
            return "refused" if self.problem else "not begun"
        counts = self.report.counts
        return "complete" if counts.scored == counts.total else "incomplete"

    @property
    def rate(self) -> Estimate | None:
        """The share of scored pairs that passed, with an interval that fits its epochs."""
        if self.report is None or not self.report.overall.scored:
            return None
        overall = self.report.overall
        if overall.samples == overall.scored:
            return overall.pass_rate
        drawn = overall.clustered_pass_rate
        if drawn.low != drawn.high:
            return drawn
        # All samples came out alike. No draw differs then, and that says nothing of how sure the rate is.
        return compute_wilson_interval(round((drawn.value or 0.0) * overall.samples), overall.samples)

    @property
    def coverage(self) -> str:
        """How many of all pairs are scored."""
        if self.report is None:
            return "-"
        counts = self.report.counts
        return f"{counts.scored:,} of {counts.total:,}" + (
            f" ({format_percent(counts.coverage)})" if counts.scored < counts.total else ""
        )

    @property
    def cost_usd(self) -> float:
        """What all its trees cost, those that were not scored included."""
        report = self.report
        return 0.0 if report is None else report.totals.cost_usd + report.unscored.cost_usd

    @property
    def failures(self) -> str:
        """The kinds of samples that did not pass, most frequent first."""
        groups = () if self.report is None else self.report.failures
        said = [f"{group.kind} {group.count:,}" for group in groups[:KINDS_SHOWN]]
        rest = sum(group.count for group in groups[KINDS_SHOWN:])
        return ", ".join([*said, f"{rest:,} more"] if rest else said)

    @property
    def rate_text(self) -> str:
        """The rate and its interval; a dash where nothing is scored."""
        rate = self.rate
        return "-" if rate is None else f"{format_percent(rate.value)} ({format_span(rate, format_percent)})"

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        rate = self.rate
        return {
            "model": self.cell.model,
            "suite": self.cell.shown_suite,
            "settings": self.cell.settings,
            "chosen": self.cell.chosen.model_dump(exclude_none=True),
            "run_dir": str(self.cell.run_dir),
            "state": self.state,
            "problem": self.problem,
            "pass_rate": None if rate is None else [rate.value, rate.low, rate.high],
            "cost_usd": self.cost_usd,
            "report": None if self.report is None else self.report.to_json(),
        }


@dataclass(frozen=True, slots=True)
class MatrixReport:
    """All cells of a matrix."""

    matrix: MatrixPlan
    cells: tuple[CellReport, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every sample of every cell is scored."""
        return all(each.state == "complete" for each in self.cells)

    @property
    def cost_usd(self) -> float:
        """What all cells cost."""
        return sum(each.cost_usd for each in self.cells)

    def render_summary(self) -> list[str]:
        """Return what is said of the whole matrix, one line each."""
        done = sum(each.state == "complete" for each in self.cells)
        most = self.matrix.file.max_cost_usd
        capped = "" if most is None else f" of ${most:,.4g} at most"
        scored = sum(each.report.counts.scored for each in self.cells if each.report is not None)
        return [
            (
                f"{done:,} of {len(self.cells):,} runs are complete; {scored:,} samples are scored; "
                f"${self.cost_usd:,.4f}{capped}"
            )
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "title": self.matrix.title,
            "file": str(self.matrix.path.absolute()),
            "dir": str(self.matrix.folder),
            "cost_usd": self.cost_usd,
            "max_cost_usd": self.matrix.file.max_cost_usd,
            "complete": self.is_complete,
            "cells": [each.to_json() for each in self.cells],
        }


def build_cell_report(cell: MatrixCell, problem: str = "") -> CellReport:
    """Return a cell as its directory has it now; ``problem`` is why its run could not begin."""
    if not (cell.run_dir / LEDGER).is_file():
        return CellReport(cell, None, problem)
    try:
        run = RecordedRun(cell.run_dir)
        counts = run.counts()
        has_results = counts.scored + counts.undecided + counts.failed > 0
        return CellReport(cell, build_report(run) if has_results else None, problem)
    except ConfigError as error:
        return CellReport(cell, None, str(error))
