"""Typed lines: what a person types, or a program pipes in, line by line, without a thread."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
from contextlib import suppress
from typing import TextIO

READ_BYTES = 64 * 1024


class TypedLines:
    """Reads lines as they are typed. Use it as a context manager on a running loop.

    Args:
        reads: Where lines come from; None = nobody types anything.
    """

    def __init__(self, reads: TextIO | None) -> None:
        self._reads = reads
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._watched: int | None = None

    def __enter__(self) -> TypedLines:
        """Begin to read."""
        if self._reads is None:
            self._end()
            return self
        try:
            descriptor = self._reads.fileno()
            asyncio.get_running_loop().add_reader(descriptor, self._read, descriptor)
            self._watched = descriptor
        except (io.UnsupportedOperation, PermissionError):
            # a file, or no descriptor at all: everything is there already
            self._take(self._reads.read())
            self._end()
        return self

    def __exit__(self, *_: object) -> None:
        """Read no more."""
        self._stop()

    async def next(self) -> str | None:
        """Return the next line without its end, None where no more will come."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
        return line

    def _read(self, descriptor: int) -> None:
        data = b""
        with suppress(OSError):  # the terminal is gone: nothing more is typed there
            data = os.read(descriptor, READ_BYTES)
        self._take(self._decoder.decode(data, final=not data))
        if not data:
            self._end()

    def _take(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._lines.put_nowait(line)

    def _end(self) -> None:
        self._stop()
        if self._rest:
            self._lines.put_nowait(self._rest)
        self._lines.put_nowait(None)

    def _stop(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None
