"""Running a matrix: each cell is a run of its own, by a process of its own, one after another.

A suite may need an environment of its own, which is a process of its own; and a suite that ends its process
ends its cell alone. Cells take turns because each one uses all the concurrency that there is, and so that
what the earlier ones have spent is known when the next one gets the rest of the money.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from sessiontree import ConfigError
from sessiontree.bench.matrix.matrix_file import MatrixCell, MatrixPlan
from sessiontree.bench.matrix.matrix_page import render_matrix_page
from sessiontree.bench.matrix.matrix_report import REPORT, CellReport, MatrixReport, build_cell_report
from sessiontree.bench.results.report_page import render_report_page
from sessiontree.bench.run_commands import COMMAND, INCOMPLETE

PAGE: Final = "matrix.html"
TABLE: Final = "matrix.json"
NO_MONEY: Final = "max_cost_usd is used up; raise it in the file, then run the same command"
SAID_CHARS: Final = 1000
_CENTS: Final = 1e-9


class MatrixScreen(Protocol):
    """Takes lines and tables; makes what is invisible visible."""

    def line(self, text: str) -> None:
        """Show one line at once."""

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""

    def table(self, header: Any, rows: Any) -> None:
        """Show a table: columns of numbers to the right, any other to the left."""


def run_matrix_command(screen: MatrixScreen, *, file: Path, directory: Path | None, as_json: bool) -> int:
    """Run what is left of a matrix, write its page, and return the exit code: 1 if a cell is incomplete.

    Args:
        screen: Shows what happens.
        file: The matrix, in TOML.
        directory: The folder of its runs; None = the one that the file names.
        as_json: Whether a program reads it: then the last line is :meth:`MatrixReport.to_json`.

    Raises:
        ConfigError: the file is wrong, or the folder can't be made.
    """
    found = MatrixPlan.read(file, directory)
    say = (lambda _: None) if as_json else screen.line
    report = run_matrix(found, say)
    if as_json:
        screen.raw(json.dumps(report.to_json()))
    else:
        screen.table(
            ("model", "suite", "settings", "scored", "pass rate", "cost in USD", "did not pass"),
            [
                (
                    each.model,
                    each.cell.shown_suite,
                    each.cell.settings,
                    each.coverage,
                    each.rate_text,
                    f"{each.cost_usd:,.4f}",
                    each.problem or each.failures,
                )
                for each in report.cells
            ],
        )
        for line in report.render_summary():
            screen.line(line)
        screen.line(f"written: {found.folder / PAGE}")
    return 0 if report.is_complete else INCOMPLETE


def run_matrix(found: MatrixPlan, say: Callable[[str], None]) -> MatrixReport:
    """Run the cells that are not complete; after each one, the page and the table are written again.

    Raises:
        ConfigError: the folder of the runs can't be made.
        OSError: the page can't be written.
    """
    try:
        found.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {str(found.folder)!r} can't be made: {error}") from error
    reports = [build_cell_report(cell) for cell in found.cells]
    write_page(MatrixReport(found, tuple(reports)))
    for number, each in enumerate(reports):
        if each.state == "complete":
            continue
        cell, most = each.cell, _compute_left(found, reports, number)
        name = f"{number + 1} of {len(reports)}: {each.model}, {cell.shown_suite}, {cell.settings}"
        if most is not None and most - each.cost_usd <= _CENTS:
            reports[number] = build_cell_report(cell, NO_MONEY)
        else:
            say(f"run {name}")
            reports[number] = build_cell_report(cell, _run_cell(found, cell, most))
        now = reports[number]
        came_to = f"{now.coverage} scored, passed {now.rate_text}, ${now.cost_usd:,.4f}"
        say(f"run {name}: {now.problem or came_to}")
        write_page(MatrixReport(found, tuple(reports)), cell=now)
    return MatrixReport(found, tuple(reports))


def _compute_left(found: MatrixPlan, reports: list[CellReport], number: int) -> float | None:
    """Return what a cell may have spent at its end; None = any amount."""
    most = found.file.max_cost_usd
    if most is None:
        return None
    return most - sum(each.cost_usd for index, each in enumerate(reports) if index != number)


def _run_cell(found: MatrixPlan, cell: MatrixCell, most_usd: float | None) -> str:
    """Run one cell in a process of its own; return why it could not begin or go on, or nothing."""
    file = found.file
    words = ["bench", "run", f"--dir={cell.run_dir}", f"--concurrency={file.concurrency}", "--json"]
    words += [f"--backend={file.backend}", f"--shards={file.shards}", *cell.chosen.words()]
    words += [f"--model={cell.model}"] if cell.model else []
    words += [f"--address={file.address}"] if file.address else []
    words += [f"--max-cost={most_usd}"] if most_usd is not None else []
    done = _run_to_end([sys.executable, *COMMAND, *words, "--", cell.suite])
    if done.returncode in {0, INCOMPLETE}:
        return ""
    said = " ".join((done.stderr or done.stdout or "it said nothing").split())
    return f"exit code {done.returncode}: {said[-SAID_CHARS:]}"


def _run_to_end(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. After an interrupt it has time to end, then the interrupt is raised."""
    with (
        subprocess.Popen(  # noqa: S603 - this package's own command
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program,
        _ensure_ended(program),
    ):
        output, errors = program.communicate()
    if program.returncode == -signal.SIGINT or program.returncode == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    return subprocess.CompletedProcess(words, program.returncode, output, errors)


@contextlib.contextmanager
def _ensure_ended(program: subprocess.Popen[str]) -> Iterator[None]:
    """Have a program end before this one goes on, also after an interrupt."""
    try:
        yield
    except BaseException:
        program.send_signal(signal.SIGINT)
        program.wait()
        raise


def write_page(report: MatrixReport, cell: CellReport | None = None) -> None:
    """Write the page and the table of a matrix, and the page of one cell's run.

    Raises:
        OSError: a file can't be written.
    """
    folder = report.matrix.folder
    pages = [each for each in report.cells if each.report is not None] if cell is None else [cell]
    for each in pages:
        if each.report is not None:
            _replace(each.cell.run_dir / REPORT, render_report_page(each.report, ()))
    _replace(folder / TABLE, json.dumps(report.to_json(), indent=2) + "\n")
    _replace(folder / PAGE, render_matrix_page(report))


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
