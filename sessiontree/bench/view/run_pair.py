"""Two runs side by side: what differs besides scores, and what their comparison says of the scores."""

from __future__ import annotations

from typing import Any

from sessiontree import ConfigError
from sessiontree.bench.results.comparison import compare_runs
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.contracts.errors import describe_error
from sessiontree.view.markdown import make_lines_visible

Json = dict[str, Any]


def build_pair(first: RecordedRun, second: RecordedRun) -> Json:
    """Return what is said of two runs: what differs, the table of their scores, and why they have no table.

    Runs that can't be compared are no error: their samples can still be read side by side.
    """
    try:
        found = compare_runs(first, second)
    except ConfigError as error:
        return {"differences": [], "table": [], "why_not": make_lines_visible(describe_error(error))}
    return {
        "differences": [make_lines_visible(each) for each in found.differences],
        "table": [[make_lines_visible(cell) for cell in row] for row in found.table()],
        "why_not": "",
    }
