"""A conversation in pydantic-ai's types, and the parts of a reply that are kept only for its provider.

Our own blocks hold what was said. A reply's replay replaces them when it goes back to the system that gave
it: signatures of thoughts, encrypted reasoning and ids are useless to any other system.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai import messages as theirs

from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ProviderForm,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.contracts.values.whole_text import repair_value

REPLAY_VERSION: Final = 1
_NO_IMAGE: Final = "(an image that can't be read)"
_LEFT_OUT: Final = {
    "usage",
    "timestamp",
    "run_id",
    "conversation_id",
    "metadata",
    "failed_attempts",
    "history_digest",
    "model_id",
    "workspace_ref",
}
"""Members of a response that no provider needs again."""


def build_model_messages(messages: Sequence[Message], system: str, *, has_errors: bool) -> list[Any]:
    """Return a conversation in the form of provider requests and responses, in turn.

    Args:
        messages: Oldest first; each result follows its call.
        system: The system whose replays are used; thoughts of all other replies are left out.
        has_errors: Whether the provider can mark results as errors.
    """
    found: list[Any] = []
    parts: list[Any] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            response = _read_replay(message, system) or theirs.ModelResponse(
                parts=list(_reply_parts(message))
            )
            if not response.parts:
                continue  # it is empty, and some providers refuse an empty reply
            if parts:
                found.append(theirs.ModelRequest(parts=parts))
                parts = []
            found.append(response)
        elif isinstance(message, ToolResultMessage):
            parts.append(_build_result_part(message, has_errors=has_errors))
        else:
            parts.append(_build_user_part(message))
    if parts:
        found.append(theirs.ModelRequest(parts=parts))
    return found


def keep_provider_form(response: Any, provider: str, system: str) -> ProviderForm | None:
    """Return what a provider may need again from its reply, or None if our blocks contain everything."""
    if not any(_is_own(part) for part in response.parts):
        return None
    dumped = theirs.ModelMessagesTypeAdapter.dump_python(
        [response], mode="json", exclude={"__all__": _LEFT_OUT}, exclude_none=True
    )
    return ProviderForm(REPLAY_VERSION, provider, system, dumped[0])


def _is_own(part: Any) -> bool:
    """Whether a part of a response contains something that our blocks do not: signatures, ids, citations."""
    if not isinstance(part, theirs.TextPart | theirs.ThinkingPart | theirs.ToolCallPart):
        return True
    is_signed = bool(getattr(part, "signature", None))
    is_named = part.id is not None and not isinstance(part, theirs.ThinkingPart)
    has_citations = bool(getattr(part, "citations", None))
    return is_signed or is_named or has_citations or bool(part.provider_details)


def _read_replay(message: AssistantMessage, system: str) -> Any:
    """Return the provider's own form of a reply, or None if it may not go back or can't be read."""
    replay = message.replay_for(system)
    # Our own blocks hold what was said, so a form that can't be read costs only the signatures.
    if replay is None or replay.version != REPLAY_VERSION:
        return None
    try:
        response = theirs.ModelMessagesTypeAdapter.validate_python([replay.payload])[0]
    except ValidationError:  # another release of the library wrote it
        return None
    for part in response.parts:
        if isinstance(part, theirs.ToolCallPart) and isinstance(part.args, str):
            # The arguments are text here, in which an escape can spell what no request can be encoded with.
            part.args = _repair_arguments(part.args)
    return response


def _repair_arguments(text: str) -> str:
    """Return argument text whose escapes spell no half of a surrogate pair."""
    if "\\u" not in text:
        return text
    try:
        value = json.loads(text)
        whole = repair_value(value)
    except (ValueError, RecursionError):
        return text
    return text if whole is value else dump_json(whole)


def _reply_parts(message: AssistantMessage) -> Iterator[Any]:
    for block in message.content:
        if isinstance(block, TextContent):
            if block.text:
                yield theirs.TextPart(block.text)
        elif isinstance(block, ToolCall):
            arguments = dict(block.arguments) if block.unread is None else _repair_arguments(block.unread)
            yield theirs.ToolCallPart(block.name, arguments, block.id)


def _build_user_part(message: UserMessage) -> Any:
    content = [_convert_block(block) for block in message.content]
    if len(content) == 1 and isinstance(content[0], str):
        return theirs.UserPromptPart(content[0])
    return theirs.UserPromptPart(content)


def _build_result_part(message: ToolResultMessage, *, has_errors: bool) -> Any:
    content = [_convert_block(block) for block in message.content]
    outcome = "failed" if message.is_error and has_errors else "success"
    said = content[0] if len(content) == 1 else content
    return theirs.ToolReturnPart(message.tool_name, said, message.tool_call_id, outcome=outcome)


def _convert_block(block: TextContent | ImageContent) -> Any:
    if isinstance(block, TextContent):
        return block.text
    try:
        data = base64.b64decode(block.data, validate=True)
    except ValueError:  # also of text beyond ASCII
        return _NO_IMAGE
    return theirs.BinaryContent(data, media_type=block.mime_type)
