"""The first minutes of a new user: install the wheel, five cells, an approval by a button, a plot.

Run as ``python -m tests.system.notebooks.first_minutes_program``. It prints a line of JSON: the seconds of
each step. What is installed comes from where pip gets packages, so the steps of installing depend on that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.system.notebooks.jupyter_fixtures import WIDGET, Jupyter

CHECKOUT = Path(__file__).parents[3]
CELLS = (
    """
    %load_ext sessiontree
    from sessiontree import FunctionModel, PermissionTier, SessionTree, script_call, tool
    from sessiontree.notebook.figures import figure
    """,
    """
    @tool(tier=PermissionTier.ELEVATED)
    def publish(name: str) -> str:
        \"\"\"Publish a file.\"\"\"
        return f"{name} is published"

    def answer(request):
        last = request.messages[-1]
        return last.text if request.turn > 1 else script_call("publish", name=last.text)
    """,
    """
    model = FunctionModel(answer)
    tree = await SessionTree(".", model=model, tools=[publish], backend="local").start()
    tree
    """,
    "await tree.main.send('report.txt')",
    "figure(tree, 'time')",
)
"""The fourth one waits for a person."""
ASKS = 3


def take_first_steps(place: Path) -> dict[str, float]:
    """Take the steps in a new environment, and return the seconds of each.

    Args:
        place: An empty directory.

    Raises:
        AssertionError: a cell did not show what it should.
        CalledProcessError: the wheel can't be built or installed.
    """
    took_s: dict[str, float] = {}
    began = time.monotonic()

    def note(step: str) -> None:
        took_s[step] = round(time.monotonic() - began - sum(took_s.values()), 1)

    dist, python = place / "dist", place / "venv" / "bin" / "python"
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)])
    note("build the wheel")
    _run([sys.executable, "-m", "venv", str(place / "venv")])
    note("make an environment")
    (wheel,) = dist.glob("*.whl")
    _run([str(python), "-m", "pip", "install", "--quiet", f"{wheel}[notebook,plot]"])
    note("install")
    jupyter = Jupyter(place, python)
    try:
        note("start the kernel")
        shown: list[dict[str, Any]] = []
        for number, cell in enumerate(CELLS):
            waiting = jupyter.begin(cell)
            if number == ASKS:
                _press_approve(jupyter, waiting)
            shown = jupyter.end(waiting)
            note(f"cell {number + 1}")
            if number == ASKS:
                assert "report.txt is published" in shown[-1]["text/plain"]
        assert "image/png" in shown[-1]
        jupyter.run("await tree.close()")
    finally:
        jupyter.close()
    return took_s


def _press_approve(jupyter: Jupyter, waiting: str) -> None:
    """Send what the button of the widget sends that a waiting cell shows."""
    shell = jupyter.open_subshell()
    widget = jupyter.displayed(waiting)[-1][WIDGET]["model_id"]
    request = jupyter.request_in(widget, shell)
    answer, _ = jupyter.ask(widget, "approve", {"id": request}, shell)
    assert answer["value"] == {}


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Take the steps and print them."""
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write(json.dumps(take_first_steps(Path(place))) + "\n")


if __name__ == "__main__":
    main()
