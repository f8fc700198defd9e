"""A body as it arrives: decompressed piece by piece, and never more of it than allowed.

Sources: RFC 9110, content codings; RFC 1952, gzip members.
"""

from __future__ import annotations

import zlib
from typing import Final

from sessiontree.contracts.errors import ExecutionError

ACCEPTED: Final = "gzip"
"""What is asked for as Accept-Encoding; a body as it is need not be asked for."""
STEP_BYTES: Final = 64 * 1024
"""Most bytes decompressed at a time."""
SPARE_WIRE_BYTES: Final = 2**20
"""Bytes on the wire that may come to nothing, such as empty blocks, before a body is given up."""
FREE_PIECES: Final = 4096
"""Pieces a body may come in, however small they are."""
LEAST_PIECE_BYTES: Final = 16
"""Mean size of pieces beyond those: smaller ones cost more time than they carry."""
MAX_MEMBERS: Final = 64
"""Gzip members of one body."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class Body:
    """Takes a body's bytes from the wire and keeps at most ``max_bytes`` of what they say.

    Args:
        coding: The Content-Encoding header.
        max_bytes: Kept at most; the rest is never made.

    Raises:
        ExecutionError: the coding is none that was asked for.
    """

    def __init__(self, coding: str, *, max_bytes: int) -> None:
        codings = [
            name for part in coding.split(",") if (name := part.strip().lower()) not in {"", "identity"}
        ]
        if codings not in ([], ["gzip"], ["x-gzip"]):
            raise ExecutionError(
                "the answer comes in a coding that nobody asked for; only gzip was asked for"
            )
        self.truncated = False
        """Whether there was more than ``max_bytes``."""
        self._is_gzip = bool(codings)
        self._inflating = zlib.decompressobj(_GZIP)
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._wire_bytes = 0
        self._pieces = 0
        self._in_member = False
        self._members = 0

    def take(self, piece: bytes) -> bool:
        """Take the next bytes; returns whether more are wanted.

        Raises:
            ExecutionError: they are no gzip, or come in pieces so small that they never end.
        """
        self._wire_bytes += len(piece)
        self._pieces += 1
        if self._pieces > FREE_PIECES and self._wire_bytes < self._pieces * LEAST_PIECE_BYTES:
            raise ExecutionError(f"the answer came in {self._pieces} tiny pieces; it was given up")
        if self._wire_bytes > self._max_bytes + SPARE_WIRE_BYTES:
            self.truncated = True
        elif not self._is_gzip:
            self._keep(piece)
        else:
            try:
                self._inflate(piece)
            except zlib.error as error:
                raise ExecutionError(f"the answer is said to be gzip and is not: {error}") from error
        return not self.truncated

    def whole(self) -> bytes:
        """Return what was kept, once the body is over or no more is wanted.

        Raises:
            ExecutionError: it is gzip that was cut off on the way.
        """
        if self._in_member and not self.truncated:
            raise ExecutionError("the answer broke off in the middle of its gzip data")
        return bytes(self._kept)

    def _keep(self, data: bytes) -> None:
        room = self._max_bytes - len(self._kept)
        self._kept += data[:room]
        self.truncated = len(data) > room

    def _inflate(self, data: bytes) -> None:
        while data and not self.truncated:
            if self._inflating.eof:
                # Servers pad with zeros; anything else is the next member (RFC 1952, section 2.2).
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._members += 1
                if self._members >= MAX_MEMBERS:
                    raise ExecutionError(
                        f"the answer has more than {MAX_MEMBERS} gzip members; it was given up"
                    )
                self._inflating = zlib.decompressobj(_GZIP)
            self._keep(self._inflating.decompress(data, STEP_BYTES))
            self._in_member = not self._inflating.eof
            data = self._inflating.unconsumed_tail or self._inflating.unused_data
