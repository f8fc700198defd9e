"""Notebooks run from top to bottom, as a person would run them, and are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.notebooks.kernel_fixtures import Kernel

NOTEBOOKS = sorted(Path(__file__).parents[3].joinpath("notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's code cells."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_is_a_notebook() -> None:
    """The folder is not empty, so that the tests below test something."""
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    """Outputs of somebody's machine are never committed."""
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code_cells(path))


@pytest.mark.covers("C13")
@pytest.mark.slow
def test_first_tree_counts_lines_and_ends_every_session() -> None:
    """The first notebook's own claims hold, in a kernel of its own and on Ray."""
    (path,) = [path for path in NOTEBOOKS if path.stem == "01_first_tree"]
    with Kernel() as kernel:
        outcomes = [kernel.run("".join(cell["source"])) for cell in code_cells(path)]
        loaded = kernel.value(
            "import sys\n['ray' in sys.modules, 'sessiontree.backends.local.backend' in sys.modules]"
        )
    _, reply, counts, written, asked, published, replies, receipt = outcomes
    assert loaded == [True, False]
    assert reply.value == "main heard: hello"
    assert counts.value == [3, 5]
    assert counts.printed.count("tool_execution_end") == 2
    assert {line.split()[0] for line in counts.printed.splitlines()} >= {"main/w1", "main/w2"}
    assert written.value == "[3, 5]"
    assert asked.value == "main wants to publish counts.txt"
    assert published.value == "main heard: counts.txt is published"
    assert replies.value[0] == "main heard: counts.txt is published"
    assert "denied" in replies.value[1]
    assert receipt.value == [
        ("main", "cancelled"),
        ("main/b1", "completed"),
        ("main/w1", "completed"),
        ("main/w2", "completed"),
    ]


@pytest.mark.slow
def test_suite_is_run_reported_and_compared() -> None:
    """The second notebook's own claims hold; a run that is run again does nothing, and results are shown."""
    (path,) = [path for path in NOTEBOOKS if path.stem == "02_suite"]
    cells = ["".join(cell["source"]) for cell in code_cells(path)]
    with Kernel() as kernel:
        outcomes = [kernel.run(cell) for cell in cells[:3]]
        shown = kernel.value("six._repr_html_()")
        again = kernel.run(cells[2])
        outcomes += [kernel.run(cell) for cell in cells[3:]]
        assert kernel.value("'sessiontree.backends.ray.backend' in __import__('sys').modules") is False
    _, _, six, wrong, failures, comparison, compared = outcomes
    assert six.shown == again.shown == "RunResults(suite='sums', scored=25, failed=0, unfinished=0)"
    assert "<td>60.0%</td>" in shown
    assert wrong.value == [("2+5", '"0"'), ("3+4", '"0"'), ("3+5", '"0"')]
    assert failures.value == [("not passed", 10, "2+5")]
    assert comparison.shown == "RunComparison(suite='sums', shared=25, better=7, worse=0, p_value=0.01563)"
    assert compared.value == (7, 0, ("2+5", "3+4", "3+5"))
