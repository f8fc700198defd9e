"""The results of a run: its tables as Arrow, pandas or Parquet, and its report.

The run may be finished, running or interrupted. What is heavy, PyArrow and NumPy, is loaded when it is first
needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sessiontree import ConfigError
from sessiontree.bench.recorded_run import RecordedRun, RunCounts

if TYPE_CHECKING:
    from sessiontree.bench.comparison import RunComparison
    from sessiontree.bench.report import RunReport
    from sessiontree.bench.result_tables import WrittenResults

TABLES: Final = ("samples", "sessions", "events", "usage")
RESULTS: Final = "results"
"""The directory of the Parquet files, below the run's."""
_HEAVY: Final = {
    "read_table": "sessiontree.bench.result_tables:read_table",
    "write_tables": "sessiontree.bench.result_tables:write_tables",
    "cell_text": "sessiontree.bench.report:cell_text",
    "report_of": "sessiontree.bench.report:report_of",
    "compare_runs": "sessiontree.bench.comparison:compare_runs",
}


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
            table: ``samples``, ``sessions``, ``events`` or ``usage``.

        Raises:
            ConfigError: another table is named, or the ledger can't be read.
        """
        return _heavy("read_table")(self._run, _known(table))

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
        chosen = [_known(table) for table in tables]
        written: WrittenResults = _heavy("write_tables")(self._run, self.run_dir / RESULTS, chosen)
        return written

    def report(self) -> RunReport:
        """Return pass rates with intervals, cost, time, tokens and failures."""
        report: RunReport = _heavy("report_of")(self._run)
        return report

    def compare(self, other: RunResults) -> RunComparison:
        """Return what another run of the suite did better or worse on the same samples.

        Raises:
            ConfigError: it is of another suite, or shares no scored sample with this one.
        """
        comparison: RunComparison = _heavy("compare_runs")(self._run, other._run)
        return comparison

    def __repr__(self) -> str:
        """Return the suite, and how far the run is."""
        counts = self.counts
        return (
            f"RunResults(suite={self.suite!r}, scored={counts.scored}, failed={counts.failed}, "
            f"unfinished={counts.unfinished})"
        )

    def _repr_html_(self) -> str:
        """Return a table of the scores, for a notebook."""
        counts = self.counts
        if counts.scored + counts.failed == 0:
            return f"<p>{_heavy('cell_text')(repr(self))}</p>"
        return self.report()._repr_html_()


def _known(table: str) -> str:
    if table not in TABLES:
        raise ConfigError(f"results have no table {table!r}; there are {', '.join(TABLES)}")
    return table


def _heavy(name: str) -> Any:
    module, _, wanted = _HEAVY[name].partition(":")
    return getattr(importlib.import_module(module), wanted)
