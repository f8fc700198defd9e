"""The text of a file: the page of it that one call shows, and text as the bytes of a file.

A page is decided without reading more than necessary.
Not here: opening the file and wording the hints (read.py).
"""

from __future__ import annotations

import codecs
from typing import BinaryIO

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.handles.ports import Entry, Reader
from sessiontree.contracts.tools.thread_calls import Stop, end_if
from sessiontree.contracts.values.quick_dataclass import dataclass

CHUNK_BYTES = 1 << 20
BYTE_ORDER_MARK = "\ufeff"
MAX_BYTES = 10 * 1024 * 1024
"""Most bytes of a file that is changed in part."""
HEAD_BYTES = 8 * 1024
"""A NUL among these makes a file binary."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class TextPage:
    """Whole lines, or the start of one line that is longer than a page."""

    data: bytes
    lines: int
    """How many lines the data shows, a cut one included."""
    cut: bool
    """Whether the one line shown lacks its end."""
    more: bool
    """Whether bytes follow."""


def cut_first_page(block: bytes, *, max_lines: int, max_bytes: int) -> TextPage:
    """Return the page that is at the head of a block.

    Args:
        block: The file from the page's first line on: ``max_bytes + 1`` bytes, or fewer where it ends.
        max_lines: Most lines shown; at least 1.
        max_bytes: Most bytes shown; at least 4, the longest code point.

    Contract: pure. Data never ends inside a UTF-8 code point of well-formed text.
    """
    end = lines = 0
    while lines < max_lines and end < len(block):
        newline = block.find(b"\n", end)
        line_end = newline + 1 if newline >= 0 else len(block)
        if line_end > max_bytes:
            if lines == 0:
                return TextPage(block[: _find_code_point_start(block, max_bytes)], 1, cut=True, more=True)
            break
        end = line_end
        lines += 1
    return TextPage(block[:end], lines, cut=False, more=end < len(block))


def skip_lines(stream: BinaryIO, count: int, stop: Stop) -> int:
    """Leave a seekable stream at the start of the line after the next ``count`` ones.

    Returns:
        How many lines were passed: fewer than ``count`` where the stream ended. Bytes after the last
        line end count as a line.

    Raises:
        ExecutionError: ``stop`` turned true.
    """
    passed = 0
    open_line = False
    while passed < count:
        end_if(stop)
        chunk = stream.read(CHUNK_BYTES)
        if not chunk:
            return passed + open_line
        found = chunk.count(b"\n")
        if passed + found < count:
            passed += found
            open_line = not chunk.endswith(b"\n")
            continue
        position = -1
        for _ in range(count - passed):
            position = chunk.index(b"\n", position + 1)
        # Back to the line within the chunk; reading line by line would be many times slower for a page far
        # down.
        stream.seek(position + 1 - len(chunk), 1)
        return count
    return passed


def is_binary(head: bytes) -> bool:
    """Whether a file that begins with these bytes is not text."""
    return b"\0" in head[:HEAD_BYTES]


def find_codec_by_mark(head: bytes) -> str | None:
    """Return the encoding that a byte-order mark names, if it is UTF-16 or UTF-32; else None."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def read_up_to(stream: BinaryIO, size: int) -> bytes:
    """Return the next ``size`` bytes, fewer only where the stream ends."""
    parts: list[bytes] = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_whole(reader: Reader, entry: Entry, path: str) -> bytes:
    """Return all bytes of a file.

    Raises:
        ExecutionError: it has more than ``MAX_BYTES``, is not a regular file, or can't be read.
        PermissionDenied: the path is outside what may be read.
    """
    with reader.open(path) as stream:
        # One byte more than is accepted, and not the size of the entry: the file may grow while it is read.
        data = read_up_to(stream, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ExecutionError(f"it has {max(entry.size, len(data))} bytes; at most {MAX_BYTES} are possible")
    return data


def decode_text(data: bytes) -> str:
    """Return the text of a file.

    Raises:
        ExecutionError: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ExecutionError(f"it is not UTF-8 text (byte {error.start + 1})") from error


def _find_code_point_start(data: bytes, at: int) -> int:
    """Return ``at``, or the start of the UTF-8 sequence that has ``at`` in its inside."""
    for start in range(at, at - 4, -1):
        if data[start] & 0xC0 != 0x80:  # not a continuation byte
            return start
    return at


def to_utf8(text: str, field: str) -> bytes:
    """Return the text's UTF-8 form.

    Args:
        text: What goes into a file.
        field: JSON pointer of the parameter it came from.

    Raises:
        ValidationError: it holds half a surrogate pair, which UTF-8 has no bytes for.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"character {error.start + 1} is half of a surrogate pair and can't be written as UTF-8", field
        ) from error
