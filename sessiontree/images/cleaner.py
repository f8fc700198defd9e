"""Making images fit for a model in a process of its own, ended when one takes too long.

Not here: what makes them fit (program.py).
"""

from __future__ import annotations

import asyncio
import binascii
import json
import os
import select
import signal
import subprocess
import time
from base64 import b64encode
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from sessiontree.contracts.errors import ImageRefused
from sessiontree.contracts.images import MAX_SOURCE_BYTES, MAX_SOURCE_PIXELS, ImageLimits
from sessiontree.contracts.messages import ImageContent
from sessiontree.contracts.thread_calls import Stop, in_thread_until_told
from sessiontree.interpreter.import_guard import words_for

LIMIT_S: Final = 15.0
"""Longest work on one image, the start of the interpreter included."""
TICK_S: Final = 0.05
"""How often a waiting thread looks whether it should stop."""
PROGRAM: Final = Path(__file__).resolve().with_name("program.py")


@dataclass(frozen=True, slots=True)
class CleanImage:
    """An image as a model may see it."""

    content: ImageContent
    width: int
    """Pixels."""
    height: int
    source_width: int
    """Of the image as it came, upright."""
    source_height: int

    @property
    def was_shrunk(self) -> bool:
        """Whether it has fewer pixels than it came with."""
        return (self.width, self.height) != (self.source_width, self.source_height)


class ImageCleaner:
    """Makes one session's images fit, one after another: one process at a time.

    Args:
        limits: How large they may be.
        limit_s: Longest work on one image.
    """

    def __init__(self, limits: ImageLimits, *, limit_s: float = LIMIT_S) -> None:
        self._limits = limits
        self._limit_s = limit_s
        self._turn = asyncio.Lock()

    async def clean(self, image: ImageContent, name: str) -> CleanImage:
        """Return an image within the limits: the first frame, upright, encoded anew, without metadata.

        Args:
            image: As a tool gave it; the type it names is not trusted.
            name: What to call it where it is refused.

        Raises:
            ImageRefused: it is no base64, too large, of no format models take, damaged, or takes too long.

        Contract: when the awaiting task is cancelled, the process is ended first, or 2 s have passed.
        """
        async with self._turn:
            return await in_thread_until_told(
                lambda stop: cleaned(image, self._limits, name, self._limit_s, stop)
            )


def cleaned(image: ImageContent, limits: ImageLimits, name: str, limit_s: float, stop: Stop) -> CleanImage:
    """Return an image within the limits. Blocks: call it from a thread.

    Raises:
        ImageRefused: as :meth:`ImageCleaner.clean` says, or ``stop`` said so.
    """
    data = _decoded(image.data, name)
    order = limits.model_dump() | {"max_pixels": MAX_SOURCE_PIXELS, "limit_s": limit_s * 2}
    with ExitStack() as open_files:
        # Files in memory, not pipes: how long an answer may be is the kernel's to bound, and nobody waits.
        given, answer, complaint = (open_files.enter_context(_memory_file()) for _ in range(3))
        given.write(json.dumps(order).encode() + b"\n")
        given.write(data)
        given.seek(0)
        _run(given, answer, complaint, name, limit_s, stop)
        answer.seek(0)
        found = _told(answer.readline(2**16))
        shown = answer.read(limits.max_bytes + 1)
        complaint.seek(0)
        if found is None:
            last = complaint.read(2**16).decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise ImageRefused(name, f"the process that read it ended by itself ({last or 'no word'})")
    if "refused" in found:
        raise ImageRefused(name, found["refused"])
    (width, height), (source_width, source_height) = found["shown"], found["source"]
    content = ImageContent(b64encode(shown).decode("ascii"), found["mime_type"])
    return CleanImage(content, width, height, source_width, source_height)


def _decoded(text: str, name: str) -> bytes:
    if len(text) > (MAX_SOURCE_BYTES + 2) // 3 * 4:
        raise ImageRefused(name, f"it has more than {MAX_SOURCE_BYTES:,} bytes")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ImageRefused(name, f"its data is no base64 ({str(error)[:80]})") from error


def _memory_file() -> IO[bytes]:
    return os.fdopen(os.memfd_create("image"), "w+b")


def _run(
    given: IO[bytes],
    answer: IO[bytes],
    complaint: IO[bytes],
    name: str,
    limit_s: float,
    stop: Stop,
) -> None:
    """Run the program to its end, or end it."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
            words_for("-B", str(PROGRAM)),
            stdin=given,
            stdout=answer,
            stderr=complaint,
            env={key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ImageRefused(name, f"no process could be started to read it: {error.strerror}") from error
    try:
        _await(process.pid, name, limit_s, stop)
    finally:
        # It is not yet waited for, so the id is still its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(pid: int, name: str, limit_s: float, stop: Stop) -> None:
    deadline = time.monotonic() + limit_s
    ending = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(ending, select.POLLIN)
        while not poll.poll(max(0, min(TICK_S, deadline - time.monotonic())) * 1000):
            if stop():
                raise ImageRefused(name, "the call was cancelled or its time is over")
            if time.monotonic() >= deadline:
                raise ImageRefused(name, f"reading it takes longer than {limit_s:g} s")
    finally:
        os.close(ending)


def _told(line: bytes) -> dict[str, Any] | None:
    """Return the first line of an answer; None where the program did not come so far."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found
