"""The output of a command: its beginning and its end kept, what lies between counted."""

from __future__ import annotations

import codecs
from typing import Final

SHOWN_AS: Final = "\ufffd"
"""Stands for bytes that are no UTF-8, and for NUL."""
_LONGEST_CHARACTER: Final = 4
_CONTINUES, _CONTINUATION = 0xC0, 0x80


class OutputKeeper:
    """Takes output piece by piece and keeps at most so many bytes of it.

    Args:
        keep_bytes: Half of them from the beginning, half from the end; at least 8.
    """

    __slots__ = ("_half", "_head", "_tail", "total_bytes")

    def __init__(self, keep_bytes: int) -> None:
        self._half = max(_LONGEST_CHARACTER, keep_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self.total_bytes += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    def kept(self) -> tuple[str, str, int]:
        """Return beginning, end, and the number of bytes dropped between them.

        Where nothing was dropped, the end is empty. No character is cut in two.
        """
        tail = bytes(self._tail[-self._half :])
        if self.total_bytes <= len(self._head) + len(tail):
            return shown(bytes(self._head) + tail), "", 0
        head = _without_a_part_at_the_end(bytes(self._head))
        tail = _without_a_part_at_the_beginning(tail)
        return shown(head), shown(tail), self.total_bytes - len(head) - len(tail)


class Decoder:
    """Decodes output piece by piece; a character that comes in two pieces comes with the second."""

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes, *, last: bool = False) -> str:
        """Return what can be told of the next piece."""
        return self._decoder.decode(data, last).replace("\0", SHOWN_AS)


def shown(data: bytes) -> str:
    """Return bytes as text."""
    return data.decode("utf-8", "replace").replace("\0", SHOWN_AS)


def _without_a_part_at_the_end(data: bytes) -> bytes:
    """Return the bytes without the beginning of a character that ends further on."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte & _CONTINUES != _CONTINUATION:
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= _CONTINUES else 1
            return data[:-back] if needed > back else data
    return data


def _without_a_part_at_the_beginning(data: bytes) -> bytes:
    """Return the bytes without the end of a character that began before."""
    parts = 0
    while parts < min(_LONGEST_CHARACTER - 1, len(data)) and data[parts] & _CONTINUES == _CONTINUATION:
        parts += 1
    return data[parts:]
