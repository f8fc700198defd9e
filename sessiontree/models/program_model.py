"""A program in place of a model: the session's first reply calls it, and its second one is the value."""

from __future__ import annotations

import json
from typing import Final

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.messages import AssistantMessage, ToolResultMessage
from sessiontree.contracts.programs import IS_TEXT, ProgramCall
from sessiontree.models.answers import script_call, to_message
from sessiontree.models.port import ModelRequest

MAX_REASON_CHARS: Final = 2_000


class ProgramModel:
    """Replies for a session that was given a program; the request alone decides, so it may be asked again.

    Args:
        first_call: The call of the program.
    """

    name = "program"
    reads_details = True
    """A text and the JSON that it looks like differ only by the result's details."""

    def __init__(self, first_call: ProgramCall) -> None:
        self._first_call = first_call

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the call of the program, or its value as the final message.

        Raises:
            ModelError: the program failed, its value does not fit the result schema, or a message came after
                it; the text says what.
        """
        ended = next((each for each in request.messages if isinstance(each, ToolResultMessage)), None)
        if ended is None:
            return to_message(script_call(self._first_call.tool, **self._first_call.arguments), request.turn)
        last = request.messages[-1]
        if last is not ended:
            raise ModelError(f"a program runs here, and takes no message: {last.text[:MAX_REASON_CHARS]}")
        if ended.is_error:
            raise ModelError(_words_in(ended.text)[:MAX_REASON_CHARS])
        return to_message(dump_json(ended.text) if _is_text(ended) else ended.text, request.turn)


def _is_text(ended: ToolResultMessage) -> bool:
    kept = ended.details.get("details") if isinstance(ended.details, dict) else None
    return isinstance(kept, dict) and kept.get(IS_TEXT) is True


def _words_in(text: str) -> str:
    """Return what an error's envelope says."""
    try:
        envelope = json.loads(text)
    except ValueError:
        return text
    said = envelope.get("error") or envelope.get("reason") if isinstance(envelope, dict) else None
    return str(said or text).strip()


class NoModel:
    """Stands where a tree has no model, because programs do its work; a session that asks it fails."""

    name = "none"

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Refuse.

        Raises:
            ModelError: always.
        """
        raise ModelError(
            f"session {request.session_id} asks a model, and the tree has none; name one by --model"
        )
