"""Notebooks run from top to bottom in a real kernel, and their files hold what their cells show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.system.notebooks.kernel_fixtures import Kernel
from tests.system.notebooks.notebook_program import NOTEBOOKS, run_notebook

CHANGING = re.compile(
    r"[\d.,]+ m?s\b|(?<=<br>first: )\S+/|(?<=second: )\S+/|(?<=<tr><td>)\d+(?=</td>)|/\S*/tmp\w+|(?<=seq=)\d+"
    r"|[\d.,]+/s\b|http://127\.0\.0\.1:\d+/|(?<=made with )[^<\\]+|(?<=last command )[^<\\]+"
)
"""Times, places, releases and tokens, and numbers of facts, which depend on what ended first."""
pytestmark = pytest.mark.slow


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's code cells."""
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def shown_in(cell: dict[str, Any]) -> list[str]:
    """Return what a cell shows without what differs between runs; of a picture, that it is one."""
    return [
        "picture"
        if "image/png" in each.get("data", ())
        else CHANGING.sub("…", json.dumps(each.get("data", each.get("text"))))
        for each in cell["outputs"]
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_shows_what_its_file_holds(path: Path) -> None:
    """Run again, each cell shows the same; `python -m tests.system.notebooks.notebook_program` writes it."""
    run = [cell for cell in run_notebook(path)["cells"] if cell["cell_type"] == "code"]
    assert [shown_in(cell) for cell in run] == [shown_in(cell) for cell in code_cells(path)]


@pytest.mark.covers("C13")
def test_saved_notebook_shows_trees_without_a_kernel() -> None:
    """As tables in HTML without a script; nothing belongs to a kernel that has ended."""
    stored = "".join(path.read_text("utf-8") for path in NOTEBOOKS)
    assert "<td>main/w1</td>" in stored
    assert "widget-view" not in stored
    assert "<script" not in stored
    assert "?token=" not in stored


@pytest.mark.covers("C13")
def test_tools_and_models_of_cells_work_in_processes_of_ray() -> None:
    """The second notebook's cells up to the first reply, with sessions that run elsewhere."""
    (path,) = [path for path in NOTEBOOKS if path.stem == "02_approvals_and_policies"]
    cells = ["".join(cell["source"]) for cell in code_cells(path)]
    on_ray = cells[0].replace('"backend": "local"', '"backend": "ray"')
    assert on_ray != cells[0]
    with Kernel() as kernel:
        kernel.run(on_ray)
        kernel.run(cells[1])
        assert kernel.value(cells[2]) == "main heard: report.txt is published"
        loaded = kernel.value("import sys\n['ray' in sys.modules, 'IPython' in sys.modules]")
        kernel.run("await tree.close()\nplace.cleanup()")
    assert loaded == [True, False]
