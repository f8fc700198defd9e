"""The progress of a run in a notebook: the cell that runs shows it, and a link to the page of the run."""

from __future__ import annotations

from collections import deque
from html import escape
from pathlib import Path
from typing import Final

from sessiontree import make_visible
from sessiontree.api.runtime.runtime import get_ipython_shell
from sessiontree.bench.ledger.leases import Tally
from sessiontree.bench.run.place.progress import RunPace, RunProgress
from sessiontree.bench.view.notebook_links import link_html, run_address
from sessiontree.notebook.cell_html import escape_cell_text
from sessiontree.notebook.displays import RUNNING, is_in_kernel, show_values

EVERY_S: Final = 0.2
"""Least time between two pictures."""
LINES: Final = 5
"""How many of the last failures are shown."""


def make_cell_progress() -> CellProgress | None:
    """Return what shows the progress of a run in the cell that runs; None outside of a notebook."""
    return CellProgress() if is_in_kernel() else None


class CellProgress(RunProgress):
    """Shows a bar, coverage and rate in the cell that runs, and the last failures; updated in place."""

    def __init__(self) -> None:
        super().__init__()
        self._id: str | None = None
        self._drawn_s = 0.0
        self._link = ""
        self._said: deque[str] = deque(maxlen=LINES)

    def begin(self, run: str, tally: Tally) -> None:
        """Show the bar, and the link to the page of the run."""
        super().begin(run, tally)
        show_values(get_ipython_shell())
        address = run_address(Path(run))
        self._link = link_html(address, "look at its samples") if address else ""
        self._draw(self.pace())

    def show(self, pace: RunPace) -> None:
        """Draw again, at most some times a second."""
        if self._now() - self._drawn_s >= EVERY_S:
            self._draw(pace)

    def say(self, text: str) -> None:
        """Show the line below the bar."""
        self._said.append(make_visible(text))

    def end(self, why: str, *, is_complete: bool) -> None:
        """Leave the last picture, with the reason."""
        self.say(why)
        self._draw(self.pace())

    def words(self, pace: RunPace) -> str:
        """Return how far the run is, what its answers are, and how much of it they cover."""
        scored = self.tally.scored
        rate = f", {self.tally.passed / scored:.1%} of {scored:,} answers passed" if scored else ""
        return f"{pace.line()}{rate}, coverage {scored / max(1, pace.total):.1%}"

    def _draw(self, pace: RunPace) -> None:
        self._drawn_s = self._now()
        words = self.words(pace)
        bar = f"<progress max='{pace.total}' value='{pace.done}'></progress> {escape_cell_text(words)}"
        link = f"<br>{self._link}" if self._link else ""
        lines = f"<pre>{escape(chr(10).join(self._said))}</pre>" if self._said else ""
        bundle = {
            "text/plain": "\n".join([words, *self._said]),
            "text/html": f"<div>{bar}{link}{lines}</div>",
        }
        if self._id is None:
            self._id = RUNNING.begin(bundle)
        else:
            RUNNING.update(self._id, bundle)
