"""Frames between the browser's process and its host: a JSON object, and bytes that go along with it.

A frame is two lengths in network order, the object, and the bytes. Neither side trusts the other's lengths.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, Final

MAX_JSON_BYTES: Final = 16 * 2**20
MAX_BLOB_BYTES: Final = 64 * 2**20
_LENGTHS: Final = struct.Struct("!II")


class FrameError(Exception):
    """What arrived is not a frame."""


def encode_frame(message: dict[str, Any], blob: bytes = b"") -> bytes:
    """Return a message and its bytes as they are sent.

    Raises:
        FrameError: they are longer than a frame may be.
    """
    text = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()
    if len(text) > MAX_JSON_BYTES or len(blob) > MAX_BLOB_BYTES:
        raise FrameError(f"a frame of {len(text) + len(blob)} bytes is too long")
    return _LENGTHS.pack(len(text), len(blob)) + text + blob


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """Return the next message and its bytes.

    Raises:
        FrameError: it is not a frame, or too long.
        EOFError, OSError: the other side has ended.
    """
    json_bytes, blob_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    if json_bytes > MAX_JSON_BYTES or blob_bytes > MAX_BLOB_BYTES:
        raise FrameError(f"a frame of {json_bytes + blob_bytes} bytes is too long")
    text = await reader.readexactly(json_bytes)
    blob = await reader.readexactly(blob_bytes)
    try:
        message = json.loads(text)
        if b"\\u" in text:  # an escape may spell half of a surrogate pair, which is not text
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise FrameError("a frame holds no JSON") from error
    if not isinstance(message, dict):
        raise FrameError("a frame holds no JSON object")
    return message, blob
