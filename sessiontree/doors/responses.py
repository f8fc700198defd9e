"""The protocol Open Responses: what a request asks of a conversation, and how a turn looks to its client.

Source: the specification of 24 April 2026. It translates, and decides nothing about rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.messages import Usage
from sessiontree.contracts.settings import faults_of
from sessiontree.doors.turns import TurnEnd

MAX_TEXT_CHARS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class AskedResponse:
    """What a response repeats of its request."""

    model: str
    """The agent."""
    previous: str | None
    """Id of the response that it continues."""
    metadata: Mapping[str, str] = field(default_factory=dict)


class _Given(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TextPart(_Given):
    """A piece of text of a message."""

    type: Literal["input_text", "output_text"]
    text: str = Field(max_length=MAX_TEXT_CHARS)


class GivenMessage(_Given):
    """A message of a request."""

    type: Literal["message"] = "message"
    role: Literal["user"]
    content: str | tuple[TextPart, ...]

    @property
    def text(self) -> str:
        """Its text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)


class ResponseRequest(_Given):
    """What a client asks with ``POST /v1/responses``."""

    model: str = Field(min_length=1, max_length=200)
    """The agent."""
    input: str | tuple[GivenMessage, ...] = Field(min_length=1)
    previous_response_id: str | None = None
    stream: bool = False
    store: Literal[True] = True
    metadata: dict[str, str] = Field(default_factory=dict)
    tools: tuple[Any, ...] = Field(default=(), max_length=0)
    background: Literal[False] = False

    @property
    def asked(self) -> AskedResponse:
        """What its response repeats."""
        return AskedResponse(self.model, self.previous_response_id, self.metadata)

    @property
    def text(self) -> str:
        """The text of its messages."""
        if isinstance(self.input, str):
            return self.input
        return "\n\n".join(each.text for each in self.input)


def read_request(value: object) -> ResponseRequest:
    """Return a request.

    Raises:
        ConfigError: it is not one, or asks for what this door does not have; names the member.
    """
    try:
        return ResponseRequest.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"the request can't be used: {faults_of(error)}") from None


def response_of(
    asked: AskedResponse, turn_id: str, at_s: int, ended: TurnEnd | None, usage: Usage | None = None
) -> dict[str, Any]:
    """Return a response as its client sees it.

    Args:
        asked: What it repeats of its request.
        turn_id: The id of the turn, and of the response.
        at_s: When it was made, in seconds since 1970.
        ended: How the turn ended; None = it goes on.
        usage: What the turn used, children included.
    """
    status, error = "in_progress", None
    output: list[dict[str, Any]] = []
    if ended is not None and ended.error is not None:
        status, error = "failed", {"code": "server_error", "message": ended.error}
    elif ended is not None:
        status = "completed"
        output = [message_of(turn_id, ended.text, "completed")]
    return {
        "id": turn_id,
        "object": "response",
        "created_at": at_s,
        "completed_at": at_s if status == "completed" else None,
        "status": status,
        "incomplete_details": None,
        "model": asked.model,
        "previous_response_id": asked.previous,
        "instructions": None,
        "output": output,
        "error": error,
        "tools": [],
        "tool_choice": "auto",
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0,
        "reasoning": None,
        "usage": None if usage is None else usage_of(usage),
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": True,
        "background": False,
        "service_tier": "default",
        "metadata": dict(asked.metadata),
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def message_of(turn_id: str, text: str, status: str) -> dict[str, Any]:
    """Return the message that answers a turn."""
    content = [_part(text)] if status == "completed" else []
    item: dict[str, Any] = {"type": "message", "id": f"msg_{turn_id}", "role": "assistant"}
    return item | {"status": status, "content": content}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return what a turn used, in tokens."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseEvents:
    """Makes the events of one stream, each with its number.

    Args:
        asked: What the response repeats of its request.
        turn_id: The id of the turn.
        at_s: When it was made, in seconds since 1970.
    """

    def __init__(self, asked: AskedResponse, turn_id: str, at_s: int) -> None:
        self._asked = asked
        self._turn_id = turn_id
        self._at_s = at_s
        self._number = 0
        self._text: list[str] = []
        self._is_open = False

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the first events, before the model has said anything."""
        for name in ("response.created", "response.in_progress"):
            yield self._event(name, response=response_of(self._asked, self._turn_id, self._at_s, None))

    def piece(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a piece of the answer's text."""
        if not self._is_open:
            yield from self._open()
        self._text.append(text)
        yield self._event("response.output_text.delta", **self._where(), delta=text, logprobs=[])

    def end(self, ended: TurnEnd, usage: Usage | None) -> Iterator[dict[str, Any]]:
        """Yield the last events.

        The final message is the whole text: pieces of replies before a call are not part of the answer, and
        a client that shows pieces has shown them as what they were.
        """
        response = response_of(self._asked, self._turn_id, self._at_s, ended, usage)
        if ended.error is None:
            if not self._is_open:
                yield from self._open()
            text = ended.text
            yield self._event("response.output_text.done", **self._where(), text=text, logprobs=[])
            yield self._event("response.content_part.done", **self._where(), part=_part(text))
            item = message_of(self._turn_id, text, "completed")
            yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{response['status']}", response=response)

    def _open(self) -> Iterator[dict[str, Any]]:
        self._is_open = True
        item = message_of(self._turn_id, "", "in_progress")
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._event("response.content_part.added", **self._where(), part=_part(""))

    def _where(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._turn_id}", "output_index": 0, "content_index": 0}

    def _event(self, name: str, **members: Any) -> dict[str, Any]:
        event: Mapping[str, Any] = {"type": name, "sequence_number": self._number, **members}
        self._number += 1
        return dict(event)
