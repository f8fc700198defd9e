"""The last phase: what a tool returned, as the one message the model gets."""

from __future__ import annotations

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.results import ToolResult

DISPLAY_CHARS = 400


def result_message(
    call_id: str, tool: str, result: object, at_ms: int, *, max_chars: int
) -> ToolResultMessage:
    """Return a tool's result as a message; its text is cut to ``max_chars`` characters.

    Raises:
        ExecutionError: the tool returned something that is no ToolResult, or output without a JSON form.
    """
    if not isinstance(result, ToolResult):
        raise ExecutionError(f"{tool} returned {type(result).__name__} instead of a ToolResult")
    try:
        text = result.text_for_model()
    except (TypeError, ValueError, RecursionError) as error:
        raise ExecutionError(f"{tool} returned output without a JSON form: {error}") from error
    if len(text) > max_chars:
        text = cut_text(text, max_chars)
    text_block = TextContent(text)
    content: tuple[TextContent | ImageContent, ...] = (
        (text_block, *result.images) if result.images else (text_block,)
    )
    details: JsonValue = None
    if result.details is not None or result.display:
        details = {"display": result.display[:DISPLAY_CHARS], "details": to_json_value(result.details)}
    return ToolResultMessage(call_id, tool, content, details, False, at_ms)


def cut_text(text: str, max_chars: int) -> str:
    """Return at most ``max_chars`` characters: the head, at a line's end where one is near, and a notice.

    The notice counts inside the limit. Text that fits is unchanged, so cutting twice is cutting once.
    """
    if len(text) <= max_chars:
        return text
    notice = f"\n… cut: {max_chars} of {len(text)} characters shown"
    if len(notice) >= max_chars:
        return text[:max_chars]
    head = text[: max_chars - len(notice)]
    line_end = head.rfind("\n")
    if line_end >= len(head) * 4 // 5:
        head = head[:line_end]
    return head + notice
