"""The text of replies, shown in lines as a model writes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from sessiontree.contracts.reports.events import Done, TextDelta

_CUT = frozenset({"error", "aborted"})


class ReplyText:
    """Shows a text as it comes: line by line, long lines at a space."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = ""
        self._message = ""
        self.last = ""
        """The last message that was shown whole."""

    def take(self, event: object) -> None:
        """Take what a model says."""
        if isinstance(event, TextDelta):
            self._message += event.delta
            *lines, self._rest = (self._rest + event.delta).split("\n")
            for line in lines:
                self._say(line)
            width = shutil.get_terminal_size().columns - 1
            while len(self._rest) > width:
                place = self._rest.rfind(" ", 0, width)
                place = width if place < 1 else place
                self._say(self._rest[:place])
                self._rest = self._rest[place:].removeprefix(" ")
        elif isinstance(event, Done):
            is_cut = event.stop_reason in _CUT and self._message != ""
            kept = self.last
            self.end()
            if is_cut:
                self.last = kept
                self._say("(the reply was cut short)")

    def end(self) -> None:
        """Show what is left: the message is whole."""
        if self._rest:
            self._say(self._rest)
        self._rest = ""
        self.last, self._message = self._message or self.last, ""
