"""Lines: a stream of bytes cut into lines, however it arrives, and never more held than one of them."""

from __future__ import annotations

MAX_LINE_BYTES = 8 * 1024 * 1024


class Lines:
    """Cuts a stream into lines.

    Args:
        max_bytes: Longest line, without its end; after a longer one nothing more is taken.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self.is_overlong = False
        """Whether a line was too long: the stream is of no use any more."""

    @property
    def is_within(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that data completes, without their ends. Linear in the data's length."""
        if self.is_overlong:
            return []
        found: list[bytes] = []
        searched = len(self._rest)
        self._rest += data
        begin = 0
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0 and end - begin <= self._max_bytes:
            found.append(bytes(self._rest[begin:end]))
            begin = end + 1
        # what is left holds no end of a line, or an end that comes too late
        self.is_overlong = (len(self._rest) if end < 0 else end) - begin > self._max_bytes
        if self.is_overlong:
            self._rest.clear()
        else:
            del self._rest[:begin]
        return found
