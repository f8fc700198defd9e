"""Screen: lines, tables and a live tree on a stream; nothing in them could deceive an eye or a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sessiontree.channels.port import HumanChannel
from sessiontree.channels.shown import visible
from sessiontree.cli.live_channel import YieldingChannel
from sessiontree.cli.live_view import LiveView, is_live_terminal
from sessiontree.runtime.progress import ProgressReader

_WIDE = 200
"""Width of tables where nobody looks: no cell is folded in a file or pipe."""


class RichScreen:
    """Shows lines as they are, tables in columns, and on a terminal a tree as it goes on.

    Args:
        writes: Where everything goes.
        environment: Tells what kind of terminal it is, and what is wanted of it.
        wait: Waits a number of seconds between two pictures of a tree.
    """

    def __init__(
        self,
        writes: TextIO,
        environment: Mapping[str, str] = os.environ,
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._writes = writes
        self._console = Console(file=writes, highlight=False, markup=False, emoji=False, _environ=environment)
        if not writes.isatty():
            self._console.width = _WIDE
        self.is_live = is_live_terminal(writes, environment)
        """Whether a tree can be shown as it goes on."""
        self._wait = wait
        self._view: LiveView | None = None
        self._lent = 0
        """How many others need the terminal for themselves."""
        self._held: list[str] = []
        """Lines that wait until they don't."""

    def line(self, text: str) -> None:
        """Show one line at once; above a live tree, and after what others write in its place."""
        if self._view is None:
            self._writes.write(f"{visible(text)}\n")
            self._writes.flush()
        elif self._lent:
            self._held.append(text)
        else:
            self._view.line(text)

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

    def shared_with(self, channel: HumanChannel) -> HumanChannel:
        """Return a channel that has the terminal for itself while it writes there."""
        return YieldingChannel(channel, self.lent) if self.is_live else channel

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Take a live tree off the terminal for as long as somebody else writes there."""
        self._lent += 1
        if self._view is not None:
            self._view.take_off()
        try:
            yield
        finally:
            self._lent -= 1
            if not self._lent:
                self._go_on()

    @asynccontextmanager
    async def live(
        self, events: Callable[[], ProgressReader] | None = None, started_ms: int | None = None
    ) -> AsyncIterator[LiveView | None]:
        """Show a tree as it goes on; None where the stream is no terminal for that: then say it in lines.

        Args:
            events: Opens a reader of the tree's events; None = there are none.
            started_ms: When the tree began, where time is told from then on; None = now.
        """
        if not self.is_live:
            yield None
            return
        view = LiveView(
            self._console, events, started_ms=started_ms, is_off=bool(self._lent), wait=self._wait
        )
        self._view = view
        try:
            async with view:
                yield view
        finally:
            self._view = None

    def _go_on(self) -> None:
        held, self._held = self._held, []
        for text in held:
            self.line(text)
        if self._view is not None:
            self._view.put_back()


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value.replace(",", "").replace(".", "").isdecimal()


def _cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else visible(value)
