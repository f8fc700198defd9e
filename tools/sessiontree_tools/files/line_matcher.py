"""Which lines of a file fit a pattern; usable in process, and a program that can be killed.

Room: lines, matches and their context, fed with chunks of bytes. The program answers over its standard
streams and needs no file but this one: ``python -I -S line_matcher.py``, standard library alone.
Not here: reading files (grep.py), starting and ending the program (matcher_process.py).
"""

from __future__ import annotations

import codecs
import json
import re
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, TypeAlias

MAX_LINE_CHARS = 1_000_000
"""Only this much of a line is searched."""
SHOWN_CHARS = 500
"""Longest text shown of a line."""
MAX_MEMORY_BYTES = 1 << 30
"""Address space of the program."""

Span: TypeAlias = tuple[int, int]
Shown: TypeAlias = tuple[int, bool, str]
"""Number of a line, whether it matches (else it is context), and its text."""


class LineMatcher:
    """Takes one file after another as chunks of bytes and says which lines to show.

    Args:
        find: Returns where the first match in a line is, or None.
        context: Lines shown before and after each match.
        limit: Matching lines shown in all files together.
        needed: A text that is in every match, so that what lacks it is passed over quickly.
    """

    def __init__(
        self, find: Callable[[str], Span | None], *, context: int, limit: int, needed: str = ""
    ) -> None:
        """Stand at the start of the first file."""
        self.more = False
        """Whether a line matched beyond the limit; nothing is shown from there on."""
        self.overlong = 0
        """Lines of which only the head was searched."""
        self._find = find
        self._context = context
        self._left = limit
        self._needed = needed
        self._tail = ""
        self._in_overlong = False
        self._begin_file()

    def feed(self, data: bytes, *, last: bool) -> list[Shown]:
        """Return what to show once these bytes are known.

        Args:
            data: The file's next bytes; cut anywhere.
            last: Whether the file ends with them; the next bytes are another file's.
        """
        text = self._tail + self._decoder.decode(data, last)
        shown: list[Shown] = []
        # Most chunks hold no match: counting their line ends costs far less than taking the lines apart.
        if self._context or self._in_overlong or self._needed in text:
            self._take_lines(text, shown)
        else:
            self._number += text.count("\n")
            self._tail = text[text.rfind("\n") + 1 :]
        if self._in_overlong:
            self._tail = ""
        # A file without line ends would otherwise be kept whole, and searched again with each chunk.
        elif len(self._tail) > MAX_LINE_CHARS:
            self._take(self._tail, shown)
            self._tail = ""
            self._in_overlong = True
        if last:
            if self._tail:
                self._take(self._tail, shown)
            self._begin_file()
        return shown

    def _begin_file(self) -> None:
        # This codec takes a byte-order mark away, so that "^" matches the first letter.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._tail = ""
        self._in_overlong = False
        self._number = 0
        self._before: deque[tuple[int, str]] = deque(maxlen=self._context)
        self._after = 0

    def _take_lines(self, text: str, shown: list[Shown]) -> None:
        lines = text.split("\n")
        self._tail = lines.pop()
        if self._in_overlong and lines:
            del lines[0]
            self._in_overlong = False
        for line in lines:
            self._take(line, shown)

    def _take(self, line: str, shown: list[Shown]) -> None:
        self._number += 1
        if self.more:
            return
        if len(line) > MAX_LINE_CHARS:
            line = line[:MAX_LINE_CHARS]
            self.overlong += 1
        line = line.removesuffix("\r")
        span = self._find(line)
        if span is None:
            if self._after:
                self._after -= 1
                shown.append((self._number, False, cut_around(line, (0, 0))))
            elif self._context:
                self._before.append((self._number, line))
        elif self._left:
            self._left -= 1
            shown += [(number, False, cut_around(text, (0, 0))) for number, text in self._before]
            shown.append((self._number, True, cut_around(line, span)))
            self._before.clear()
            self._after = self._context
        else:
            self.more = True


def cut_around(line: str, span: Span) -> str:
    """Return at most 500 characters of a line with the span's start among them; ``…`` marks a cut."""
    if len(line) <= SHOWN_CHARS:
        return line
    spare = max(0, SHOWN_CHARS - (span[1] - span[0])) // 2
    start = max(0, min(span[0] - spare, len(line) - SHOWN_CHARS))
    end = start + SHOWN_CHARS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def make_regex_finder(pattern: str, *, ignore_case: bool) -> Callable[[str], Span | None]:
    """Return a search for a regular expression; it may take for ever.

    Raises:
        re.error: the pattern is not valid.
    """
    search = re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG).search

    def find(line: str) -> Span | None:
        match = search(line)
        return match.span() if match else None

    return find


def make_text_finder(text: str) -> Callable[[str], Span | None]:
    """Return a search for a text as it is; linear in the line."""
    length = len(text)

    def find(line: str) -> Span | None:
        start = line.find(text)
        return (start, start + length) if start >= 0 else None

    return find


def send(stream: BinaryIO, message: bytes) -> None:
    """Write one message: its length in four bytes, then itself."""
    stream.write(len(message).to_bytes(4, "big") + message)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Return the next message, or None where the stream ends."""
    length = stream.read(4)
    return stream.read(int.from_bytes(length, "big")) if len(length) == 4 else None


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the source ends.

    The first request is a JSON object ``{pattern, ignore_case, context, limit, alarm_s}``, each further one
    a byte (1 = the file ends here) and then bytes of the file. Each answer is a JSON object: ``{}`` or
    ``{error}`` first, then ``{shown, more, overlong, spent_s}``, the last in seconds of processor time. A
    greeting ``{}`` goes before everything.
    """
    send(sink, b"{}")
    request = receive(source)
    if request is None:
        return
    order = json.loads(request)
    alarm_s = order["alarm_s"]
    _set_alarm(alarm_s)
    try:
        find = make_regex_finder(order["pattern"], ignore_case=order["ignore_case"])
    # All that a hostile pattern makes the compiler raise; the session reads it as an answer, and not as a
    # crash.
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        _answer(sink, {"error": str(error) or type(error).__name__})
        return
    matcher = LineMatcher(find, context=order["context"], limit=order["limit"])
    _answer(sink, {})
    while request := receive(source):
        _set_alarm(alarm_s)
        # Processor time: on a busy machine a simple pattern must not run out of time that others used.
        started = time.process_time()
        shown = matcher.feed(request[1:], last=request[0] == 1)
        spent_s = time.process_time() - started
        _answer(
            sink, {"shown": shown, "more": matcher.more, "overlong": matcher.overlong, "spent_s": spent_s}
        )


def _answer(sink: BinaryIO, answer: dict[str, Any]) -> None:
    _set_alarm(0)
    send(sink, json.dumps(answer).encode())


def _set_alarm(seconds: float) -> None:
    # Unhandled, the alarm ends this process: a search outlives its limit by little even when whoever
    # started it is gone.
    signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    with suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    serve(sys.stdin.buffer, sys.stdout.buffer)
