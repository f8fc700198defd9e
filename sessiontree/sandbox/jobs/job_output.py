"""The output of one job: its beginning in memory, the rest on the disk, up to a size; offsets are of bytes.

The file has no name, so nothing of it is left when its process ends, however it ends. If the disk is full,
the bytes that were not written count as dropped.

The screen of a terminal is drawn by pyte where that is installed. It is loaded by name when a screen is drawn
for the first time. What it reads is hostile; it runs in a thread, over a bounded number of bytes, on a screen
of a bounded size.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import tempfile
from functools import cache
from typing import BinaryIO, Final

from sessiontree.contracts.handles.jobs import WindowSize

HEAD_BYTES: Final = 64 * 1024
RING_BYTES: Final = 8 * 1024 * 1024
_CONTROL: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # a control sequence: colours, movements
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # a string: a title, a link
    r"|\x1b[ -/]*[0-~]"
    r"|\x1b"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]",
    re.DOTALL,
)
_RETURNS: Final = re.compile(r"\r+\n")


class JobOutput:
    """Takes output piece by piece, and keeps its beginning and its end.

    Args:
        head_bytes: How much of the beginning is kept.
        ring_bytes: How much of the end is kept besides.
    """

    __slots__ = ("_file", "_head", "_head_bytes", "_ring_bytes", "_ring_from", "total_bytes")

    def __init__(self, head_bytes: int = HEAD_BYTES, ring_bytes: int = RING_BYTES) -> None:
        self._head = bytearray()
        self._head_bytes = head_bytes
        self._ring_bytes = ring_bytes
        self._file: BinaryIO | None = None
        self._ring_from = head_bytes
        """The first offset on the disk that is still what was written there."""
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            self.total_bytes += len(data[:room])
            data = data[room:]
        if not data:
            return
        # A piece longer than the ring would overwrite its own beginning; only its end is written.
        skipped = max(0, len(data) - self._ring_bytes)
        begin = self.total_bytes + skipped
        self.total_bytes += len(data)
        try:
            self._write(data[skipped:], begin)
        except OSError:  # no room: the lost bytes must not be shown as what was written
            self._ring_from = self.total_bytes
        self._ring_from = max(self._ring_from, self.total_bytes - self._ring_bytes)

    def _write(self, data: bytes, offset: int) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="job-")  # noqa: SIM115 - closed by close()
        while data:
            place = (offset - self._head_bytes) % self._ring_bytes
            written = os.pwrite(self._file.fileno(), data[: self._ring_bytes - place], place)
            data = data[written:]
            offset += written

    def read(self, offset: int, limit: int) -> tuple[bytes, int]:
        """Return at most ``limit`` bytes from an offset, and where they begin: later, if they are dropped.

        Fewer are returned at the end of what is kept of the beginning.
        """
        offset = max(0, min(offset, self.total_bytes))
        if offset < len(self._head) or self.total_bytes <= self._head_bytes:
            return bytes(self._head[offset : offset + limit]), offset
        offset = max(offset, self._ring_from)
        wanted = min(limit, self.total_bytes - offset)
        if wanted <= 0 or self._file is None:
            return b"", offset
        place = (offset - self._head_bytes) % self._ring_bytes
        return os.pread(self._file.fileno(), min(wanted, self._ring_bytes - place), place), offset

    def read_range(self, offset: int, limit: int) -> tuple[bytes, int]:
        """Do as :meth:`read` does, but return fewer bytes only if the output ends or some are dropped."""
        data, begin = self.read(offset, limit)
        while data and len(data) < limit:
            more, at = self.read(begin + len(data), limit - len(data))
            # Bytes between the beginning and the ring may be dropped; parts joined across that hole would be
            # text that never was.
            if not more or at != begin + len(data):
                break
            data += more
        return data, begin

    def close(self) -> None:
        """Drop what is on the disk."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._ring_from = self.total_bytes


@cache
def can_draw() -> bool:
    """Whether this installation can draw screens."""
    return importlib.util.find_spec("pyte") is not None


def draw_screen(data: bytes, window: WindowSize) -> tuple[str, ...] | None:
    """Return the lines of the screen after output, without the empty ones at its end; None if that fails."""
    pyte = importlib.import_module("pyte")
    screen = pyte.Screen(window.columns, window.rows)
    try:
        pyte.ByteStream(screen).feed(data)
        lines = [str(line).rstrip() for line in screen.display]
    except Exception:  # noqa: BLE001 - hostile output must not end more than its own picture
        return None
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def strip_controls(text: str) -> str:
    """Return a terminal's output without control sequences, in lines that end as those of a file."""
    return _RETURNS.sub("\n", _CONTROL.sub("", text))
