"""A tool's result and its progress as screens are sent them: short, and without the bytes of images.

Source: seed 002, section 5. What a model gets is cut elsewhere (``dispatch/finalize.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.truncation import cut_line, cut_text

SHOWN_CHARS: Final = 8_000
"""Longest text of a result on a screen."""
SHOWN_ERROR_CHARS: Final = 400
"""Longest error on a screen: its first line."""
_NODE: Final = 8
"""What a value weighs besides its text."""
_MOST_BITS: Final = 4_096
"""Longer numbers can't be written as JSON."""
_MOST_DEPTH: Final = 50


def displayed(message: ToolResultMessage) -> dict[str, JsonValue]:
    """Return a result in its wire form for a screen.

    Text is cut to 8,000 characters in all blocks together; of an image its size stands in the place of its
    data: ``{type, mimeType, bytes, omitted: true}``. A failed result has an ``error`` of one line, at most
    400 characters. Details of more than 8,000 characters stay in the journal: ``{omitted: true}``.
    """
    left = SHOWN_CHARS
    content: list[JsonValue] = []
    for block in message.content:
        if isinstance(block, TextContent):
            text = cut_text(block.text, left)
            left -= len(text)
            content.append({"type": "text", "text": text})
        else:
            content.append(_without_data(block))
    shown: dict[str, JsonValue] = {
        "role": "toolResult",
        "toolCallId": message.tool_call_id,
        "toolName": message.tool_name,
        "content": content,
        "details": message.details if _is_short(message.details) else {"omitted": True},
        "isError": message.is_error,
        "timestamp": message.timestamp,
    }
    if message.is_error:
        shown["error"] = cut_line(_reason(message.text), SHOWN_ERROR_CHARS)
    return shown


def display_of(message: ToolResultMessage) -> str | None:
    """Return the line for people that a tool gave with its result; None where it gave none."""
    details = message.details
    display = details.get("display") if isinstance(details, dict) else None
    return display if isinstance(display, str) and display else None


def short_progress(progress: object, most_chars: int = SHOWN_CHARS) -> JsonValue:
    """Return what a running call reported as a JSON value of its own, of about ``most_chars`` at most.

    Texts are cut, members beyond are counted in the place of the last one (``"…"``), bytes are told by their
    number, and what JSON has no word for by its ``repr``. Never more is copied than is kept.
    """
    return _shortened(progress, [most_chars], 0)


def _shortened(value: object, left: list[int], depth: int) -> JsonValue:
    left[0] -= _NODE
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = cut_text(str.__str__(value), max(0, left[0]))
        left[0] -= len(text)
        return text
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        left[0] -= value.bit_length() // 3
        return value if value.bit_length() <= _MOST_BITS else f"<a number of {value.bit_length()} bits>"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return _short_mapping(value, left, depth)
    if isinstance(value, Sequence | Set):
        return _short_list(value, left, depth)
    return _shortened(repr(value), left, depth)


def _short_mapping(value: Mapping[object, object], left: list[int], depth: int) -> JsonValue:
    members: dict[str, JsonValue] = {}
    for key, item in value.items():
        if left[0] <= 0 or depth > _MOST_DEPTH:
            members["…"] = f"{len(value) - len(members)} more"
            break
        name = str(_shortened(key if isinstance(key, str) else str(key), left, depth))
        members[name] = _shortened(item, left, depth + 1)
    return members


def _short_list(value: Sequence[object] | Set[object], left: list[int], depth: int) -> JsonValue:
    items: list[JsonValue] = []
    for item in value:
        if left[0] <= 0 or depth > _MOST_DEPTH:
            items.append(f"… {len(value) - len(items)} more")
            break
        items.append(_shortened(item, left, depth + 1))
    return items


def _is_short(details: JsonValue) -> bool:
    return details is None or len(dump_json(details)) <= SHOWN_CHARS


def _without_data(image: ImageContent) -> dict[str, JsonValue]:
    size = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    return {"type": "image", "mimeType": image.mime_type, "bytes": size, "omitted": True}


def _reason(text: str) -> str:
    """Return what an envelope says went wrong; any other text as it stands."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(envelope, dict):
        for member in ("error", "reason"):
            if isinstance(said := envelope.get(member), str):
                return said
    return text
