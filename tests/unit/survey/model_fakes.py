"""Conversations with the survey's model, made by hand."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    Origin,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.models.answers import to_message
from sessiontree.models.port import ModelRequest
from sessiontree.survey.model import reply


class Talk:
    """One session's conversation, taken on by the model and by whoever answers its calls.

    Args:
        kind: The session's kind.
        order: Its first message.
    """

    def __init__(self, kind: SessionKind, order: BaseModel | list[str]) -> None:
        self.kind = kind
        self.messages: list[Message] = []
        self.turn = 0
        self.hear(
            dump_readable(order) if isinstance(order, list) else order.model_dump_json(),
            "user" if kind is SessionKind.MAIN else "parent",
        )

    def hear(self, text: str, origin: Origin) -> None:
        """Report something to the session."""
        self.messages.append(UserMessage((TextContent(text),), 0, origin))

    def hear_child(self, session: str, status: str = "completed", **members: JsonValue) -> None:
        """Let a child have ended."""
        word = {"session": session, "label": None, "status": status, "summary": "done", **members}
        self.hear(dump_readable(word), "child")

    def reply(self) -> AssistantMessage:
        """Ask the model and keep its reply."""
        self.turn += 1
        request = ModelRequest(self.kind.value, self.kind, self.turn, "", (), tuple(self.messages), None)
        said = to_message(reply(request), self.turn)
        assert to_message(reply(request), self.turn) == said, "a reply depends on more than its request"
        self.messages.append(said)
        return said

    def calls(self) -> tuple[ToolCall, ...]:
        """Ask the model and return what it wants to call."""
        return self.reply().tool_calls

    def only_call(self, tool: str) -> Any:
        """Ask the model and return the arguments of the one call it makes."""
        (call,) = self.calls()
        assert call.name == tool
        return call.arguments

    def answer(self, output: JsonValue) -> None:
        """Give the next call its result."""
        self._result(output if isinstance(output, str) else dump_readable(output), is_error=False)

    def refuse(self, status: str, error: str, **members: JsonValue) -> None:
        """Give the next call an envelope as its result."""
        envelope = {"status": status, "tool": "any", "error": error, **members}
        self._result(dump_readable(envelope), is_error=status != "pending")

    def _result(self, text: str, *, is_error: bool) -> None:
        self.messages.append(ToolResultMessage("call", "any", (TextContent(text),), None, is_error))
