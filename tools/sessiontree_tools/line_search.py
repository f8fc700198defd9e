"""Going through files with a matcher, within bounds, and writing down what it shows.

Not here: what a match is (line_matcher.py), which files there are (walking.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from sessiontree.contracts.errors import ToolError
from sessiontree.contracts.ports import Reader
from sessiontree_tools.file_walk import WalkedFile, shown_path
from sessiontree_tools.line_matcher import Shown
from sessiontree_tools.pages import is_binary, read_up_to
from sessiontree_tools.threads import Stop, end_if

CHUNK_BYTES = 256 * 1024
GROUP_BREAK = "--"
"""Stands between passages that do not touch, where context is shown."""


class Matcher(Protocol):
    """Says which lines of one file after another to show."""

    more: bool
    overlong: int

    def feed(self, data: bytes, *, last: bool) -> list[Shown]:
        """Return what to show once the file's next bytes are known."""
        ...


class Search:
    """One search through many files.

    Args:
        reader: Opens them.
        matcher: Says what to show.
        stop: Asked between chunks.
        max_bytes: Searched in all files together.
        max_chars: Shown in all files together; a little more may be.
    """

    def __init__(
        self, reader: Reader, matcher: Matcher, stop: Stop, *, max_bytes: int, max_chars: int
    ) -> None:
        self.matches = self.files = self.binary = self.unreadable = 0
        self.exhausted = False
        """Whether ``max_bytes`` ended the search."""
        self._reader = reader
        self._matcher = matcher
        self._stop = stop
        self._left_bytes = max_bytes
        self._left_chars = max_chars

    def lines(self, files: Iterable[WalkedFile], *, breaks: bool) -> list[str]:
        """Return ``path:line: text`` for matches and ``path-line- text`` for context, in order.

        Args:
            files: Searched in this order; what cannot be opened is counted and left out.
            breaks: Whether to write ``--`` between passages that do not touch.

        Raises:
            ToolError: the matcher gave up, or the search was stopped.
        """
        lines: list[str] = []
        for found in files:
            path = shown_path(found.entry.path)
            previous = -1  # so that a new file never touches the last one
            for number, matches, text in self._shown(found):
                if breaks and lines and number != previous + 1:
                    lines.append(GROUP_BREAK)
                previous = number
                mark = ":" if matches else "-"
                lines.append(f"{path}{mark}{number}{mark} {text}")
                self.matches += matches
                self._left_chars -= len(lines[-1])
            if self._matcher.more or self.exhausted or self._left_chars < 0:
                break
        return lines

    def _shown(self, found: WalkedFile) -> Iterator[Shown]:
        for chunk, last in self._chunks(found):
            yield from self._matcher.feed(chunk, last=last)
            if self._matcher.more or self._left_chars < 0:
                return

    def _chunks(self, found: WalkedFile) -> Iterator[tuple[bytes, bool]]:
        """Yield a text file's bytes; the second of each pair tells whether they are its last."""
        try:
            stream = self._reader.open(found.entry.path)
        except ToolError:
            self.unreadable += 1
            return
        with stream:
            chunk = read_up_to(stream, CHUNK_BYTES)
            if is_binary(chunk):
                self.binary += 1
                return
            self.files += 1
            last = False
            while not last:
                end_if(self._stop)
                self.exhausted = len(chunk) > self._left_bytes
                chunk = chunk[: self._left_bytes]
                self._left_bytes -= len(chunk)
                last = self.exhausted or len(chunk) < CHUNK_BYTES
                yield chunk, last
                if not last:
                    chunk = read_up_to(stream, CHUNK_BYTES)
