"""A tool's result as screens are sent it: short, and without the bytes of its images.

Source: seed 002, section 5. What a model gets is cut elsewhere (``dispatch/finalize.py``).
"""

from __future__ import annotations

import json
from typing import Final

from sessiontree.contracts.cutting import cut_line, cut_text
from sessiontree.contracts.jsonable import JsonValue, dump_json
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage

SHOWN_CHARS: Final = 8_000
"""Longest text of a result on a screen."""
SHOWN_ERROR_CHARS: Final = 400
"""Longest error on a screen: its first line."""


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
