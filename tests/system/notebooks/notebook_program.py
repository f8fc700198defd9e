"""Run the notebooks of this checkout, and keep what their cells show in their files.

Run as ``python -m tests.system.notebooks.notebook_program`` after a change of a notebook. A widget is not
kept: it belongs to a kernel. What is kept in addition is what a reader of the file sees.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.system.notebooks.jupyter_fixtures import Jupyter

NOTEBOOKS = sorted(Path(__file__).parents[3].joinpath("notebooks").glob("*.ipynb"))
CHANCE = re.compile(r"\bt?[0-9a-f]{12,}\b")
"""Ids, which are others in every run."""


def run_notebook(path: Path) -> dict[str, Any]:
    """Run a notebook from top to bottom in a kernel of its own; return its file's content with outputs."""
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as place:
        jupyter = Jupyter(Path(place))
        try:
            cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(cells, 1):
                cell["execution_count"] = number
                cell["outputs"] = [
                    {**each, "execution_count": number} if each["output_type"] == "execute_result" else each
                    for each in jupyter.outputs("".join(cell["source"]))
                ]
        finally:
            jupyter.close()
    same: dict[str, Any] = json.loads(CHANCE.sub(lambda found: "0" * len(found[0]), json.dumps(content)))
    return same


def main() -> None:
    """Write the files."""
    for path in NOTEBOOKS:
        text = json.dumps(run_notebook(path), indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, "utf-8")
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
