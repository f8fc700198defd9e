"""Results of the protocol as plain values: text, images, structured content, and what else fits no model."""

from __future__ import annotations

from typing import Any, Final

from mcp import types

MAX_TEXT_CHARS: Final = 2**20
"""Longest text of one result; the rest is cut."""
MAX_IMAGES: Final = 16
MAX_IMAGE_CHARS: Final = 16 * 2**20
"""Longest image, as base64."""


def convert_reply(result: types.CallToolResult) -> dict[str, Any]:
    """Return a result as ``{text, structured, images, is_error}``."""
    texts: list[str] = []
    images: list[list[str]] = []
    room = MAX_TEXT_CHARS
    left_out = 0
    for block in result.content:
        if isinstance(block, types.ImageContent):
            if len(images) < MAX_IMAGES and len(block.data) <= MAX_IMAGE_CHARS:
                images.append([block.data, block.mime_type])
            else:
                left_out += 1
            continue
        text = _format_block(block)
        if room <= 0:
            left_out += 1
            continue
        texts.append(text[:room])
        room -= len(text)
    if room < 0:
        texts.append(f"[the text was cut at {MAX_TEXT_CHARS:,} characters]")
    if left_out:
        texts.append(f"[{left_out} parts of the result were left out: they are too many or too large]")
    return {
        "text": "\n".join(texts),
        "structured": result.structured_content,
        "images": images,
        "is_error": bool(result.is_error),
    }


def _format_block(block: Any) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ResourceLink):
        what = f" ({block.mime_type})" if block.mime_type else ""
        said = f": {block.description}" if block.description else ""
        return f"[resource {block.name}{what} at {block.uri}{said}]"
    if isinstance(block, types.EmbeddedResource):
        inner = block.resource
        if isinstance(inner, types.TextResourceContents):
            return f"[resource {inner.uri}]\n{inner.text}"
        return f"[resource {inner.uri}: binary content was left out]"
    return f"[content of type {getattr(block, 'type', 'unknown')} was left out]"


def build_row(tool: types.Tool) -> dict[str, Any]:
    """Return a tool as ``{name, description, parameters, output, annotations}``."""
    hints = tool.annotations
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "output": tool.output_schema,
        "annotations": None if hints is None else hints.model_dump(by_alias=True, exclude_none=True),
    }
