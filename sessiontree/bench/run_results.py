"""The results of a run: its tables as Arrow, pandas or Parquet, and its report.

The run may be finished, running or interrupted. What is heavy, PyArrow and NumPy, is loaded when it is first
needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sessiontree import ConfigError
from sessiontree.bench.results.recorded_run import RESULTS, RecordedRun, RunCounts

if TYPE_CHECKING:
    from sessiontree.bench.results.comparison import RunComparison
    from sessiontree.bench.results.metrics import RunMetrics
    from sessiontree.bench.results.report import RunReport
    from sessiontree.bench.results.result_tables import WrittenResults
    from sessiontree.bench.results.several_runs import SeveralRuns

TABLES: Final = ("samples", "history", "commands", "sessions", "events", "usage")


class RunResults:
    """The results of one run. Tables are read from its ledger and journals as they are at that time.

    Args:
        run_dir: The run's directory.

    Raises:
        ConfigError: it holds no run, or the ledger can't be read.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self._run = RecordedRun(run_dir)

    @property
    def run_dir(self) -> Path:
        """Absolute path of the run's directory."""
        return self._run.run_dir

    @property
    def suite(self) -> str:
        """Name of the suite."""
        return self._run.suite

    @property
    def model(self) -> str:
        """Name of the model that was chosen for the run; empty = the suite's own choice."""
        return self._run.model

    @property
    def counts(self) -> RunCounts:
        """How many (sample, epoch) pairs wait, are worked on, are scored, or were given up."""
        return self._run.counts()

    @property
    def is_finished(self) -> bool:
        """Whether every (sample, epoch) pair is scored or was given up."""
        return self.counts.unfinished == 0

    def to_arrow(self, table: str = "samples") -> Any:
        """Return a table as a ``pyarrow.Table``.

        ``events`` of a large run do not fit in memory: write them, and read the parts.

        Args:
            table: ``samples``, ``history``, ``commands``, ``sessions``, ``events`` or ``usage``.

        Raises:
            ConfigError: another table is named, or the ledger can't be read.
        """
        from sessiontree.bench.results.result_tables import read_table

        return read_table(self._run, _check_table(table))

    def to_pandas(self, table: str = "samples") -> Any:
        """Return a table as a ``pandas.DataFrame``; otherwise as :meth:`to_arrow`.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"table {table!r} can't become a data frame: pandas is not installed; install it with "
                "`pip install pandas`, or use to_arrow()"
            ) from error
        return self.to_arrow(table).to_pandas()

    def write(self, tables: Iterable[str] = TABLES) -> WrittenResults:
        """Write tables as Parquet, as ``results/<table>/part-*.parquet`` in the run's directory. Blocks.

        Parts of an earlier write are replaced one by one; a reader finds whole parts at any time, and no row
        twice. Memory does not depend on the size of the run.

        Args:
            tables: The tables to write.

        Raises:
            ConfigError: another table is named, or the ledger can't be read.
            OSError: the directory can't be written.
        """
        from sessiontree.bench.results.result_tables import write_tables

        return write_tables(self._run, self.run_dir / RESULTS, [_check_table(table) for table in tables])

    def write_events(self, owner: str) -> int:
        """Write the events of the trees that one program has run; return of how many trees.

        Args:
            owner: The program, as the ledger knows it.

        Raises:
            OSError: the run's directory can't be written.
        """
        from sessiontree.bench.results.shard_events import write_events

        return write_events(self.run_dir, owner)

    def report(self) -> RunReport:
        """Return pass rates with intervals, cost, time, tokens and failures."""
        from sessiontree.bench.results.report import build_report

        return build_report(self._run)

    def metrics(self, reducers: Sequence[str] = ("mean",), *, by: str = "", cluster: str = "") -> RunMetrics:
        """Return pass rates and reduced epochs, of all samples and by groups, with standard errors.

        Args:
            reducers: ``mean``, ``median``, ``mode``, ``max``, ``at_least_K``, ``pass_at_K``, ``pass_hat_K``.
            by: A field of the samples' metadata: a group for each of its values.
            cluster: A field whose equal values make a cluster: such samples do not count as independent.

        Raises:
            ConfigError: the reducer or field is unknown, or nothing is scored yet.
        """
        from sessiontree.bench.results.metrics import compute_metrics

        return compute_metrics(self._run, reducers, by, cluster)

    def compare_all(self, *others: RunResults) -> SeveralRuns:
        """Return each of some runs of the suite compared with this one, as one family of comparisons.

        Args:
            others: The runs, at least one.

        Raises:
            ConfigError: as for :meth:`compare`, or none is given.
        """
        from sessiontree.bench.results.several_runs import compare_several

        return compare_several([each._run for each in (self, *others)])  # noqa: SLF001 - of this class

    def compare(self, other: RunResults) -> RunComparison:
        """Return what the run ``other`` of the suite did better or worse on the same samples.

        Raises:
            ConfigError: it is of another suite, or shares no scored sample with this one.
        """
        from sessiontree.bench.results.comparison import compare_runs

        return compare_runs(self._run, other._run)

    def open_page(self) -> None:
        """Open the page of the run, with all samples, in the browser of this machine.

        The page lives as long as this program.

        Raises:
            ConfigError: the extra ``serve`` is not installed, or the run can't be read.
        """
        from sessiontree.bench.view.notebook_links import open_page

        open_page(self.run_dir)

    def __repr__(self) -> str:
        """Return the suite, and how far the run is."""
        counts = self.counts
        return (
            f"RunResults(suite={self.suite!r}, scored={counts.scored}, failed={counts.failed}, "
            f"unfinished={counts.unfinished})"
        )

    def _repr_html_(self) -> str:
        """Return a table of the scores and links to samples, for a notebook."""
        from sessiontree.bench.view.notebook_links import sample_links
        from sessiontree.notebook.cell_html import escape_cell_text

        counts = self.counts
        if counts.scored + counts.failed == 0:
            return f"<p>{escape_cell_text(repr(self))}</p>"
        return self.report()._repr_html_() + sample_links(self._run)


def _check_table(table: str) -> str:
    if table not in TABLES:
        raise ConfigError(f"results have no table {table!r}; there are {', '.join(TABLES)}")
    return table
