"""A program in place of a model: the session's first reply calls it, and its second one is the value."""

from __future__ import annotations

from typing import Final

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.recorded.programs import ProgramCall, is_text_value
from sessiontree.contracts.recorded.results import read_error_words
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import AssistantMessage, ToolResultMessage
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
            raise ModelError(read_error_words(ended.text)[:MAX_REASON_CHARS])
        return to_message(dump_json(ended.text) if is_text_value(ended.details) else ended.text, request.turn)


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
