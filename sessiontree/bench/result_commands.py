"""Commands: what ``sessiontree bench`` does with results, up to the exit code."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sessiontree import ConfigError
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.bench.results.comparison import RunComparison, compare_runs
from sessiontree.bench.results.metrics import compute_metrics
from sessiontree.bench.results.recorded_run import LEDGER, RecordedRun
from sessiontree.bench.results.report import FailureGroup, RunReport, build_report
from sessiontree.bench.results.report_page import render_report_page
from sessiontree.bench.results.sample_view import view_sample
from sessiontree.bench.results.several_runs import compare_several
from sessiontree.bench.run_commands import RUNS, get_default_place
from sessiontree.bench.run_results import RunResults
from sessiontree.bench.suite.suite_loader import load_suite
from sessiontree.version import explain_installation

if TYPE_CHECKING:
    from sessiontree.bench.results.plots import Plot

CASES_SHOWN: Final = 5
"""Most samples that are named for each kind of failure; JSON and HTML name more."""
NAMES_SHOWN: Final = 20


class ResultScreen(Protocol):
    """Takes lines and tables; makes what is invisible visible."""

    def line(self, text: str) -> None:
        """Show one line at once."""

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Show a table: columns of numbers to the right, any other to the left."""


def find_run(name: str) -> RecordedRun:
    """Return the run that a command names: its directory, or a suite that was run from this directory.

    Raises:
        ConfigError: neither exists; says where was looked.
    """
    if (make_absolute(name, "the run") / LEDGER).is_file():
        return RecordedRun(name)
    suite = load_suite(name).name if ":" in name or name.endswith(".toml") else name
    place = get_default_place(suite)
    if (place / LEDGER).is_file():
        return RecordedRun(place)
    known = sorted(str(each.parent) for each in Path(RUNS).glob(f"*/{LEDGER}"))
    here = f"; runs here: {', '.join(known)}" if known else ""
    raise ConfigError(
        f"no results under {name!r}: neither {name!r} nor {str(place)!r} holds a {LEDGER}; "
        f"give the directory that `sessiontree bench run` was given{here}"
    )


def report(
    screen: ResultScreen,
    *,
    run: str,
    html: str | None,
    samples: str | None,
    plots: str | None,
    parquet: bool,
    as_json: bool,
) -> int:
    """Report a run and return the exit code.

    With ``as_json`` one object: the members of :class:`RunReport` with ``finished``, spreads of ``wall_ms``
    and ``sample_cost_usd``, ``files`` that were written, and ``unreadable`` trees.

    Args:
        screen: Shows the report.
        run: The run's directory, or a suite.
        html: File of a page to write.
        samples: Folder of pages of all samples to write; the page links to them.
        plots: Directory of pictures to write.
        parquet: Whether the tables are written into the run's directory.
        as_json: Whether a program reads it.

    Raises:
        ConfigError: the run does not exist or has no results yet, or the extra ``plot`` is missing.
        OSError: a file can't be written.
    """
    page = None if html is None else make_absolute(html, "--html")
    pictures = None if plots is None else make_absolute(plots, "--plots")
    folder = None if samples is None else make_absolute(samples, "--samples")
    found = find_run(run)
    made = build_report(found)
    index = None if folder is None else _write_samples(found, folder)
    files = [*_write_files(made, page, pictures, index), *([str(index)] if index else [])]
    unreadable: dict[str, str] = {}
    if parquet:
        results = RunResults(found.run_dir)
        unreadable = results.write().unreadable
        files.append(str(found.run_dir / "results"))
    if as_json:
        screen.raw(json.dumps({**made.to_json(), "files": files, "unreadable": unreadable}))
        return 0
    _show_report(screen, made)
    for path in files:
        screen.line(f"written: {path}")
    if unreadable:
        screen.line(
            f"{len(unreadable):,} trees are missing from the tables: {next(iter(unreadable.values()))}"
        )
    return 0


def _write_files(made: RunReport, page: Path | None, pictures: Path | None, index: Path | None) -> list[str]:
    if page is None and pictures is None:
        return []
    drawn = _draw_plots(made)
    files = []
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        files += [str(_replace(pictures / f"{plot.name}.png", plot.png)) for plot in drawn]
    if page is not None:
        from sessiontree.bench.view.run_folder import make_address

        links = None if index is None else partial(make_address, index, page.parent)
        files.append(str(_replace(page, render_report_page(made, drawn, links).encode("utf-8"))))
    return files


def _write_samples(run: RecordedRun, folder: Path) -> Path:
    from sessiontree.bench.view.run_folder import write_folder

    return write_folder([run], folder).index


def _draw_plots(made: RunReport) -> tuple[Plot, ...]:
    try:
        from sessiontree.bench.results.plots import plots_of
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("matplotlib"):
            raise
        raise ConfigError(
            "pictures can't be drawn: matplotlib is not installed; it comes with the extra 'plot'; "
            f"{explain_installation('plot')}. Without --html and --plots the report needs no pictures"
        ) from error
    return plots_of(made)


def _replace(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _show_report(screen: ResultScreen, made: RunReport) -> None:
    for line in made.render_summary():
        screen.line(line)
    head, *rows = made.score_table()
    screen.table(head, rows)
    if len(made.models) > 1:
        screen.table(
            ("model", "sessions", "turns", "input tokens", "output tokens", "cost in USD"),
            [
                (
                    each.model or "(not recorded)",
                    each.sessions,
                    each.turns,
                    each.input_tokens,
                    each.output_tokens,
                    f"{each.cost_usd:,.4f}",
                )
                for each in made.models
            ],
        )
    if made.failures:
        cases = [row for group in made.failures for row in _build_case_rows(group)]
        screen.table(("did not pass", "sample", "epoch", "tree", "reason"), cases)
    screen.line(f"run: {made.run_dir}")


def _build_case_rows(group: FailureGroup) -> list[tuple[str | int, ...]]:
    rows: list[tuple[str | int, ...]] = [
        (f"{group.kind}: {group.count:,}", each.sample_id, each.epoch, each.tree_id or "-", each.error)
        for each in group.cases[:CASES_SHOWN]
    ]
    rest = group.count - len(rows)
    return [*rows, ("", f"and {rest:,} more", "", "", "")] if rest else rows


def show_metrics(
    screen: ResultScreen,
    *,
    run: str,
    reducers: Sequence[str] | None,
    by: str,
    cluster: str,
    as_json: bool,
) -> int:
    """Show the metrics of a run by groups, and return the exit code.

    With ``as_json`` one object: the members of :class:`RunMetrics`.

    Raises:
        ConfigError: the run does not exist or has no scores, or the reducer or field is unknown.
    """
    found = compute_metrics(find_run(run), reducers or ("mean",), by, cluster)
    if as_json:
        screen.raw(json.dumps(found.to_json()))
    else:
        head, *rows = found.table()
        screen.table(head, rows)
    return 0


def compare(
    screen: ResultScreen, *, first: str, second: str, others: Sequence[str] | None, as_json: bool
) -> int:
    """Compare two runs of a suite by sample, or several with the first, and return the exit code.

    With ``as_json`` one object: the members of :class:`RunComparison`, or of :class:`SeveralRuns`.

    Raises:
        ConfigError: a run does not exist, or two of them can't be compared.
    """
    if others:
        several = compare_several([find_run(each) for each in (first, second, *others)])
        if as_json:
            screen.raw(json.dumps(several.to_json()))
            return 0
        for line in several.render_summary():
            screen.line(line)
        head, *rows = several.table()
        screen.table(head, rows)
        return 0
    found = compare_runs(find_run(first), find_run(second))
    if as_json:
        screen.raw(json.dumps(found.to_json()))
    else:
        _show_comparison(screen, found)
    return 0


def _show_comparison(screen: ResultScreen, found: RunComparison) -> None:
    for line in found.render_summary():
        screen.line(line)
    head, *rows = found.table()
    screen.table(head, rows)
    for what, names in (
        ("pass more often in the second", found.improved),
        ("pass less often in the second", found.worsened),
        ("scored only in the first", found.only_first),
        ("scored only in the second", found.only_second),
        ("scores that only one run has", found.missing_scores),
    ):
        if names:
            rest = f", and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
            screen.line(f"{what} ({len(names):,}): {', '.join(names[:NAMES_SHOWN])}{rest}")


def show(  # noqa: PLR0913 - each is an option of the command, or a body of another one
    screen: ResultScreen,
    *,
    run: str,
    sample: str,
    epoch: int | None,
    html: Path | None,
    as_json: bool,
    show_tree: Callable[..., int],
    save_tree: Callable[..., int],
) -> int:
    """Show a sample: its scores, its attempts, its tree and the transcript; return the exit code.

    With ``as_json`` one object: the members of :class:`SampleView`.

    Args:
        screen: Shows it.
        run: The run's directory, or a suite.
        sample: The sample's id.
        epoch: Which epoch; None = the first that did not pass, or the first of all.
        html: File of a page to write instead: the sample's tree.
        as_json: Whether a program reads it.
        show_tree: Draws a stored tree on the screen: the body of ``sessiontree tree``.
        save_tree: Writes a stored tree as a page: the body of ``sessiontree tree --html``.

    Raises:
        ConfigError: the run, the sample or the epoch does not exist, or a page can't be made of it.
        JournalError: the tree is damaged.
    """
    found = find_run(run)
    view = view_sample(found, sample, epoch)
    if html is not None:
        if view.missing:
            raise ConfigError(f"sample {sample!r} has no page: {view.missing}")
        return save_tree(screen, path=None, state_dir=found.state_dir, tree_id=view.tree_id, html=html)
    if as_json:
        screen.raw(json.dumps(view.to_json()))
        return 0
    for line in view.lines():
        screen.line(line)
    screen.table(("attempt", "outcome", "time", "tree", "error"), view.attempt_rows())
    if history := view.build_history_rows():
        screen.table(("score", "verdict", "values", "made by", "code", "reason"), history)
    if view.missing:
        screen.line(f"the tree can't be shown: {view.missing}")
        return 0
    show_tree(screen, path=None, state_dir=found.state_dir, tree_id=view.tree_id, as_json=False)
    for line in view.render_transcript():
        screen.line(line)
    return 0
