"""Screen: lines and tables on a stream, with nothing in them that could deceive an eye or a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sessiontree.channels.shown import visible

_WIDE = 200
"""Width of tables where nobody looks: no cell is folded in a file or pipe."""


class RichScreen:
    """Shows lines as they are and tables in columns.

    Args:
        writes: Where everything goes.
    """

    def __init__(self, writes: TextIO) -> None:
        """Keep the stream."""
        self._writes = writes
        self._console = Console(file=writes, highlight=False, markup=False, emoji=False)
        if not writes.isatty():
            self._console.width = _WIDE

    def line(self, text: str) -> None:
        """Show one line at once."""
        self._writes.write(f"{visible(text)}\n")
        self._writes.flush()

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it stands."""
        self._writes.write(f"{text}\n")
        self._writes.flush()

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Show a table: a column of numbers to the right, any other to the left."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, name in enumerate(header):
            is_number = bool(rows) and all(_is_number(row[index]) for row in rows)
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(value)) for value in row))
        self._console.print(table)
        self._writes.flush()


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value.replace(",", "").replace(".", "").isdecimal()


def _cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else visible(value)
