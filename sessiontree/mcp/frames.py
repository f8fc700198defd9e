"""Frames between a connection's process and the one that asks it: JSON objects with their length."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

MAX_FRAME_BYTES: Final = 64 * 2**20
_LENGTH_BYTES: Final = 4


class FrameFault(Exception):
    """What came is not a frame."""


def encode_frame(message: dict[str, Any]) -> bytes:
    """Return a message as a frame.

    Raises:
        FrameFault: it is too long, or nested too deeply.
    """
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise FrameFault("a message is nested too deeply") from error
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_FRAME_BYTES:
        raise FrameFault(f"a message has {len(data):,} bytes; at most {MAX_FRAME_BYTES:,} fit")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next message.

    Raises:
        EOFError: the other side has ended.
        FrameFault: what came is not a frame.
    """
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    # Before reading: the announced length is what the other side would have this one keep in memory.
    if length > MAX_FRAME_BYTES:
        raise FrameFault(f"a message of {length:,} bytes was announced")
    data = await reader.readexactly(length)
    try:
        message = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FrameFault("a message is not JSON") from error
    if not isinstance(message, dict):
        raise FrameFault("a message is not an object")
    return message
