"""Screen: what a survey shows itself on; the command line brings one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from sessiontree.channels.port import HumanChannel
from sessiontree.journal.record import Record
from sessiontree.runtime.progress import ProgressReader


class View(Protocol):
    """A picture of a running tree. What it is told changes it; when it is drawn is its own business."""

    def take(self, record: Record) -> None:
        """Take the tree's next fact in."""
        ...

    def count(self, session: str, files: int) -> None:
        """Count files a session has done."""
        ...

    def expect(self, files: int) -> None:
        """Say how many files there are."""
        ...

    def pace_from_now(self) -> None:
        """Begin to measure how fast it goes: what was counted before was done by an earlier process."""
        ...


class Screen(Protocol):
    """Takes lines, tables and a running tree.

    Text may hold anything: a screen makes what is invisible visible.
    """

    def line(self, text: str) -> None:
        """Show one line at once."""
        ...

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Show a table: columns of numbers to the right, any other to the left."""
        ...

    def shared_with(self, channel: HumanChannel) -> HumanChannel:
        """Return a channel that tells and asks on the same terminal, and has it for itself meanwhile."""
        ...

    def live(self, events: Callable[[], ProgressReader]) -> AbstractAsyncContextManager[View | None]:
        """Show a tree as it goes on, for as long as the context is open.

        Args:
            events: Opens a reader of what the tree does and does not journal; called where it is shown.

        Returns:
            Its view; None where nothing but lines can be shown.
        """
        ...
