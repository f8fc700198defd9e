"""Notebooks run from top to bottom, as a person would run them, and are stored without outputs."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

NOTEBOOKS = sorted(Path(__file__).parents[2].joinpath("notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's code cells."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


async def run(path: Path) -> dict[str, Any]:
    """Run all code cells in one namespace, with ``await`` allowed at their top level."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path)):
        source = "".join(cell["source"])
        made = compile(source, f"{path.name}[{number}]", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(made, CodeType)
        if made.co_flags & inspect.CO_COROUTINE:
            await eval(made, names)  # noqa: S307 - a cell of our own notebook
        else:
            exec(made, names)  # noqa: S102 - a cell of our own notebook
    return names


def test_there_is_a_notebook() -> None:
    """The folder is not empty, so that the tests below test something."""
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    """Outputs of somebody's machine are never committed."""
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code_cells(path))


async def test_first_tree_counts_lines_and_ends_every_session() -> None:
    """The first notebook's own claims hold: counts by Workers, a file by Main, a receipt of all sessions."""
    names = await run(next(path for path in NOTEBOOKS if path.stem == "01_first_tree"))
    assert names["reply"] == "main heard: hello"
    assert names["counts"] == [3, 5]
    assert names["written"] == "[3, 5]"
    statuses = {line.session_id: str(line.status) for line in names["receipt"]}
    assert statuses == {
        "main": "cancelled",
        "main/b1": "completed",
        "main/w1": "completed",
        "main/w2": "completed",
    }
