"""The page of a matrix: a table of rates, one of all cells, and what is wrong; no script, no other file.

Its links lead to the pages of the runs, in the folder that it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from sessiontree.bench.matrix.matrix_report import REPORT, CellReport, MatrixReport
from sessiontree.bench.results.report import format_percent, format_seconds, format_span
from sessiontree.bench.results.report_page import Linked, escape_visible, page_around, render_table
from sessiontree.bench.statistics.intervals import compute_quantile


def render_matrix_page(report: MatrixReport) -> str:
    """Return the page of a matrix as HTML."""
    parts = [
        "".join(f"<p>{escape_visible(line)}</p>" for line in report.render_summary()),
        f"<p>Runs: <code>{escape_visible(str(report.matrix.folder))}</code></p>",
        *(_render_rates(report, name) for name in report.matrix.file.settings),
        "<h2>Runs</h2>",
        _render_runs(report),
    ]
    problems = [each for each in report.cells if each.problem]
    if problems:
        rows = [(*_build_cells(each, report.matrix.folder), each.problem) for each in problems]
        parts += [
            "<h2>Runs that could not go on</h2>",
            render_table(
                "Mend the cause, then run the same command.",
                ("model", "suite", "settings", "reason"),
                rows,
                numbers=(),
            ),
        ]
    return page_around(f"{report.matrix.title}: benchmark matrix", parts)


def _render_rates(report: MatrixReport, settings: str) -> str:
    """Return the pass rates of one choice of settings: a row for each model, a column for each suite."""
    cells = {
        (each.model, each.cell.shown_suite): each for each in report.cells if each.cell.settings == settings
    }
    models = list(dict.fromkeys(model for model, _ in cells))
    suites = report.matrix.file.suites
    rows = [
        (model, *(_rate(cells[model, suite], report.matrix.folder) for suite in suites)) for model in models
    ]
    title = f"Pass rates: {settings}" if len(report.matrix.file.settings) > 1 else "Pass rates"
    caption = "The share of scored samples that passed, its 95% interval, and how many of all are scored."
    return f"<h2>{escape_visible(title)}</h2>" + render_table(caption, ("model", *suites), rows, numbers=())


def _rate(each: CellReport, folder: Path) -> Linked | str:
    rate = each.rate
    if rate is None:
        return each.state
    return Linked(
        format_percent(rate.value),
        _link(each, folder),
        f" ({format_span(rate, format_percent)}), {each.coverage}",
    )


def _render_runs(report: MatrixReport) -> str:
    head = (
        "model", "suite", "settings", "scored", "pass rate", "cost in USD", "median time", "in all",
        "did not pass",
    )  # fmt: skip
    rows = [_run(each, report.matrix.folder) for each in report.cells]
    caption = "Wilson's interval where each sample has one epoch, else a bootstrap that draws whole samples."
    return render_table(caption, head, rows, numbers=(3, 4, 5, 6, 7), words=(1, 2))


def _run(each: CellReport, folder: Path) -> tuple[Linked | str, ...]:
    found = each.report
    return (
        *_build_cells(each, folder),
        each.coverage if found is not None else each.state,
        each.rate_text,
        "-" if found is None else f"{each.cost_usd:,.4f}",
        "-" if found is None else format_seconds(compute_quantile(found.wall_ms, 0.5)),
        "-" if found is None else format_seconds(found.elapsed_ms),
        each.failures or ("-" if found is None else "none"),
    )


def _build_cells(each: CellReport, folder: Path) -> Sequence[Linked | str]:
    cell = each.cell
    suite: Linked | str = cell.shown_suite
    if each.report is not None:
        suite = Linked(cell.shown_suite, _link(each, folder))
    return (each.model, suite, cell.settings)


def _link(each: CellReport, folder: Path) -> str:
    return quote(f"{each.cell.run_dir.relative_to(folder)}/{REPORT}")
