"""Screen: what a survey shows itself on; the command line brings one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Screen(Protocol):
    """Takes lines and tables. Text may hold anything: a screen makes what is invisible visible."""

    def line(self, text: str) -> None:
        """Show one line at once."""
        ...

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Show a table: columns of numbers to the right, any other to the left."""
        ...
