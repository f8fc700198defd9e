"""The bar of ``map(…, progress=True)``: how many children have ended, in a cell or on a terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, TextIO

from sessiontree.api.runtime.runtime import get_ipython_shell
from sessiontree.api.tree.child_results import ChildResult
from sessiontree.contracts.recorded.results import ChildOutcome
from sessiontree.contracts.reports.fan_outs import count_outcomes
from sessiontree.notebook.cell_html import escape_cell_text
from sessiontree.notebook.displays import RUNNING, is_in_kernel, show_values

EVERY_S: Final = 0.1
WIDTH: Final = 30


async def show_bar(
    ended: AsyncGenerator[ChildResult[Any], None], total: int, kind: str
) -> AsyncGenerator[ChildResult[Any], None]:
    """Yield the results of children, and show how many there are.

    Args:
        ended: The results, as the children end.
        total: Number of the children.
        kind: Their kind.
    """
    bar = CellBar(total, kind) if is_in_kernel() else TerminalBar(total, kind, sys.stderr)
    bar.draw()
    try:
        # A caller may leave its loop early, and the children's stream must end then and not when it is
        # collected.
        async with aclosing(ended):
            async for result in ended:
                bar.take(result)
                yield result
    finally:
        bar.draw()
        bar.end()


class TerminalBar:
    """A line on a terminal that is written again and again; nothing elsewhere.

    Args:
        total: Number of the children.
        kind: Their kind.
        out: Where it is written.
    """

    def __init__(self, total: int, kind: str, out: TextIO | None = None) -> None:
        self._total = total
        self._kind = kind
        self._out = out if out is not None and out.isatty() else None
        self._ended = 0
        self._outcomes: Counter[ChildOutcome] = Counter()
        self._drawn_s = 0.0

    def take(self, result: ChildResult[Any]) -> None:
        """Count a result, and draw at most ten times a second."""
        self._ended += result.outcome != "not_started"
        self._outcomes[result.outcome] += 1
        if time.monotonic() - self._drawn_s >= EVERY_S:
            self.draw()

    def words(self) -> str:
        """Return the counts as words."""
        counts = count_outcomes(self._outcomes.elements())
        wrong = f": {counts}" if counts.done < counts.total else ""
        return f"{self._ended:,} of {self._total:,} {self._kind}s{wrong}"

    def draw(self) -> None:
        """Show the counts as they are."""
        self._drawn_s = time.monotonic()
        self._show()

    def end(self) -> None:
        """Leave the last line as it is."""
        if self._out is not None:
            self._out.write("\n")

    def _show(self) -> None:
        if self._out is not None:
            full = WIDTH * self._ended // max(1, self._total)
            self._out.write(f"\r[{'#' * full}{'.' * (WIDTH - full)}] {self.words()}")
            self._out.flush()


class CellBar(TerminalBar):
    """A bar in the cell that runs; its display is updated in place."""

    def __init__(self, total: int, kind: str) -> None:
        super().__init__(total, kind)
        show_values(get_ipython_shell())
        self._id: str | None = None

    def _show(self) -> None:
        words = self.words()
        value = f"<progress max='{self._total}' value='{self._ended}'></progress> {escape_cell_text(words)}"
        bundle = {"text/plain": words, "text/html": value}
        if self._id is None:
            self._id = RUNNING.begin(bundle)
        else:
            RUNNING.update(self._id, bundle)
