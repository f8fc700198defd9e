"""The last phase: what a tool returned, as the one message the model gets."""

from __future__ import annotations

from typing import get_args

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.results import Artifact, ArtifactKind, ToolResult

DISPLAY_CHARS = 400
ARTIFACT_KINDS = get_args(ArtifactKind)


def result_message(
    call_id: str, tool: str, result: object, at_ms: int, *, max_chars: int
) -> ToolResultMessage:
    """Return a tool's result as a message; its text is cut to ``max_chars`` characters.

    Raises:
        ExecutionError: the tool returned something that is no ToolResult, or has parts that can't be kept.
    """
    if not isinstance(result, ToolResult):
        raise ExecutionError(f"{tool} returned {type(result).__name__} instead of a ToolResult")
    try:
        text = result.text_for_model()
    except (TypeError, ValueError, RecursionError) as error:
        raise ExecutionError(f"{tool} returned output without a JSON form: {error}") from error
    _check_parts(tool, result)
    if len(text) > max_chars:
        text = cut_text(text, max_chars)
    text_block = TextContent(text)
    content: tuple[TextContent | ImageContent, ...] = (
        (text_block, *result.images) if result.images else (text_block,)
    )
    details: JsonValue = None
    if result.details is not None or result.display:
        details = {"display": result.display[:DISPLAY_CHARS], "details": _details(tool, result)}
    return ToolResultMessage(call_id, tool, content, details, False, at_ms)


def _check_parts(tool: str, result: ToolResult) -> None:
    """Refuse what the journal could not keep, before it is anywhere near it."""
    if not isinstance(result.display, str):
        raise ExecutionError(f"{tool} returned {type(result.display).__name__} as display instead of text")
    for image in result.images:
        if not (isinstance(image, ImageContent) and _are_texts(image.data, image.mime_type)):
            raise ExecutionError(f"{tool} returned {image!r} among its images; give ImageContent of text")
    for artifact in result.artifacts:
        if not (isinstance(artifact, Artifact) and _is_whole(artifact)):
            raise ExecutionError(f"{tool} returned {artifact!r} among its artifacts; give Artifacts of text")


def _is_whole(artifact: Artifact) -> bool:
    places = [place for place in (artifact.path, artifact.uri, artifact.data) if place is not None]
    return artifact.kind in ARTIFACT_KINDS and _are_texts(artifact.description, *places)


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _details(tool: str, result: ToolResult) -> JsonValue:
    try:
        return to_json_value(result.details)
    except RecursionError as error:
        raise ExecutionError(f"{tool} returned details that are nested too deeply") from error


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
