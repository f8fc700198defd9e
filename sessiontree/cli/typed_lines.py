"""Input that a person types or a program pipes in, line by line without a thread; and concurrent jobs."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TextIO

READ_BYTES = 64 * 1024


class TypedLines:
    """Reads lines as they are typed. Use it as a context manager on a running loop.

    Args:
        reads: Source of lines; None = no input.
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
        """Stop reading."""
        self._stop()

    async def next(self) -> str | None:
        """Return the next line without its end; None at the end of input."""
        line = await self._lines.get()
        if line is None:
            # Put back, so that each later call also finds the end instead of waiting for ever.
            self._lines.put_nowait(None)
        return line

    def _read(self, descriptor: int) -> None:
        data = b""
        with suppress(OSError):  # the terminal is gone: input ends here
            data = os.read(descriptor, READ_BYTES)
        # Decoded piece by piece: a character may be cut at the end of what the terminal gave.
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


async def run_jobs(*jobs: Coroutine[Any, Any, bool]) -> bool:
    """Run jobs concurrently until one returns True or all have ended.

    Returns:
        Whether one returned True. The remaining jobs are cancelled and have ended.

    Raises:
        Exception: what the first job that failed raised.
    """
    running = {asyncio.create_task(job) for job in jobs}
    try:
        while running:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result() for task in ended):
                return True
        return False
    finally:
        for task in running:
            task.cancel()
        # Waited for, so that nothing of them runs after the caller has closed what they use.
        if running:
            await asyncio.wait(running)
