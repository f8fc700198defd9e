"""What a call made by the creating program gives back."""

from __future__ import annotations

from dataclasses import dataclass

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import ImageContent, TextContent


@dataclass(frozen=True, slots=True)
class ToolReply:
    """The result of one call outside a transcript."""

    output: JsonValue
    """The tool's output: JSON where its text is JSON, else the text."""
    text: str
    """What a model would have read."""
    details: JsonValue
    """``{display, details}`` of the tool, or None."""
    content: tuple[TextContent | ImageContent, ...]
    """All blocks."""
