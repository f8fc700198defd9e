"""The screen of a command: lines, tables and a live tree, and the exit code of each way to end.

Nothing that is shown can deceive an eye or a terminal.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sessiontree.channels.port import HumanChannel
from sessiontree.channels.safe_text import make_visible
from sessiontree.cli.changes import TreeWatch
from sessiontree.cli.live_view import LiveView, is_live_terminal
from sessiontree.contracts.errors import SessionFailed, SessionTreeError, TreeNotFound
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.runtime.transport.progress import ProgressReader
from sessiontree.version import explain_installation


def format_count(number: int, noun: str) -> str:
    """Return a number with what it counts: ``1 tree``, ``1,200 trees``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class YieldingChannel:
    """Uses the terminal exclusively while it shows a message or asks a person.

    Args:
        channel: Shows messages and asks.
        lent: Frees the terminal while its context is open.
    """

    def __init__(self, channel: HumanChannel, lent: Callable[[], AbstractContextManager[None]]) -> None:
        self._channel = channel
        self._lent = lent

    async def send(self, text: str) -> None:
        """Deliver a message."""
        with self._lent():
            await self._channel.send(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and return the answer."""
        with self._lent():
            return await self._channel.ask(request)


_WIDE = 200
"""Width of tables in a file or pipe, where no cell is folded."""


class RichScreen:
    """Shows lines unchanged, tables in columns, and on a terminal a live tree.

    Args:
        writes: Where everything goes.
        environment: Tells what kind of terminal it is, and what is wanted of it.
        is_quiet: Whether lines and pictures are left out; questions, errors and raw text are shown.
        wait: Waits a number of seconds between two pictures of a tree.
    """

    def __init__(
        self,
        writes: TextIO,
        environment: Mapping[str, str] = os.environ,
        *,
        is_quiet: bool = False,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._writes = writes
        self._is_quiet = is_quiet
        self._console = Console(file=writes, highlight=False, markup=False, emoji=False, _environ=environment)
        if not writes.isatty():
            self._console.width = _WIDE
        self.is_live = not is_quiet and is_live_terminal(writes, environment)
        """Whether a tree can be shown as it goes on."""
        self._wait = wait
        self._view: LiveView | None = None
        self._lent = 0
        """Number of writers that need the terminal exclusively."""
        self._held: list[tuple[str, str]] = []
        """Lines that wait until these writers are done, each with its style."""

    def line(self, text: str, style: str = "") -> None:
        """Show one line at once; above a live tree, and after what others write in its place.

        Args:
            text: The line; what could deceive a reader is made visible.
            style: How it is shown where pictures are drawn, such as ``red``.
        """
        if self._is_quiet:
            return
        # Whoever has borrowed the terminal waits for a line; text in between would look like a part of it.
        if self._view is not None and self._lent:
            self._held.append((text, style))
        elif self._view is not None:
            self._view.line(text, style)
        elif style and self.is_live:
            self._console.print(Text(make_visible(text), style), soft_wrap=True)
            self._writes.flush()
        else:
            self._writes.write(f"{make_visible(text)}\n")
            self._writes.flush()

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""
        self._writes.write(f"{text}\n")
        self._writes.flush()

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Show a table: a column of numbers to the right, any other to the left."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, name in enumerate(header):
            is_number = bool(rows) and all(_is_number(row[index]) for row in rows)
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_format_cell(value)) for value in row))
        self._console.print(table)
        self._writes.flush()

    def share_with(self, channel: HumanChannel) -> HumanChannel:
        """Return a channel that uses the terminal exclusively while it writes there."""
        return YieldingChannel(channel, self.lend) if self.is_live else channel

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Remove a live tree from the terminal while another writer uses it."""
        # Counted, because a channel may ask while another one still shows its message.
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
        """Show a tree as it goes on; None where the stream is not a terminal for that: then say it in lines.

        Args:
            events: Opens a reader of the tree's events; None = events are not shown.
            started_ms: When the tree began, where time is counted from then on; None = now.
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

    @asynccontextmanager
    async def watch(
        self, events: Callable[[], ProgressReader], known_seq: int, *, failures: bool = False
    ) -> AsyncIterator[TreeWatch]:
        """Show the progress of a tree from its facts: drawn, or in lines.

        Args:
            events: Opens a reader of the tree's events.
            known_seq: Number of the last fact that an earlier process made.
            failures: Whether each call that failed has a line.
        """
        async with self.live(events) as view:
            yield TreeWatch(self.line, view, known_seq, failures=failures)

    def _go_on(self) -> None:
        # Taken out first: `line` would put them back if the terminal were lent again meanwhile.
        held, self._held = self._held, []
        for text, style in held:
            self.line(text, style)
        if self._view is not None:
            self._view.put_back()


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value.replace(",", "").replace(".", "").isdecimal()


def _format_cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else make_visible(value)


FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
"""Exit codes: it began and failed, or nobody reads on; usage, configuration or state is wrong; Ctrl-C."""
_OF_THE_SURVEY = ("tree_sitter",)
"""How modules of the extra ``survey`` begin."""


@contextmanager
def _show_plain_warnings() -> Iterator[None]:
    """Show our warnings as one line each: the user of a command wrote no source that they could point to."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if category.__module__.partition(".")[0] == __name__.partition(".")[0]:
                sys.stderr.write(f"sessiontree: {category.__name__}: {make_visible(str(message))}\n")
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


@contextmanager
def exit_on_fault() -> Iterator[None]:
    """Say in one line on stderr what a command can't do, and end the program with an exit code.

    Raises:
        typer.Exit: The command can't do it.
    """
    try:
        with _show_plain_warnings():
            yield
    except BrokenPipeError:
        # what is still buffered must not be written when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(_OF_THE_SURVEY):
            raise
        sys.stderr.write(
            f"sessiontree: {error.name} is not installed; this command needs the extra 'survey'; "
            f"{explain_installation('survey')}\n"
        )
        raise typer.Exit(UNUSABLE) from None
    except (SessionTreeError, OSError) as error:
        if isinstance(error, TreeNotFound) and error.missing == "journal":
            sys.stderr.write(
                f"sessiontree: nothing ran here yet: {make_visible(error.reason)} "
                f"({make_visible(error.path)}); begin with sessiontree run or sessiontree survey, "
                "or name another workspace or --state-dir\n"
            )
            raise typer.Exit(FAILED) from None
        sys.stderr.write(f"sessiontree: {type(error).__name__}: {make_visible(str(error))}\n")
        raise typer.Exit(FAILED if isinstance(error, SessionFailed) else UNUSABLE) from None
    except KeyboardInterrupt:
        sys.stderr.write("sessiontree: interrupted\n")
        raise typer.Exit(INTERRUPTED) from None
