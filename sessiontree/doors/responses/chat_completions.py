"""The protocol of chat completions: what a request asks, and how a turn looks to its client.

Each request brings the whole conversation. It translates, and decides nothing about rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.settings import describe_faults
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import Usage
from sessiontree.doors.client_tools import MAX_TOOLS, GivenFunction, declare
from sessiontree.doors.response_log import HostedCall, LoggedResponse, OutputItem, ResponseFold, SaidText
from sessiontree.doors.responses.asked import ClientRequest
from sessiontree.doors.responses.data_urls import parse_image
from sessiontree.doors.responses.response_request import (
    MAX_ITEMS,
    GivenText,
    GivenValue,
    RequestScript,
    TextForm,
    make_settings,
)

SEPARATOR: Final = "\n\n"
"""What is between the texts of two replies of the model."""


class ChatText(GivenValue):
    """A piece of text."""

    type: Literal["text"]
    text: GivenText


class ChatImageUrl(GivenValue):
    """Where an image is."""

    url: str


class ChatImage(GivenValue):
    """An image."""

    type: Literal["image_url"]
    image_url: ChatImageUrl


_Part: TypeAlias = Annotated[ChatText | ChatImage, Field(discriminator="type")]


class ChatContent(GivenValue):
    """What a message has."""

    content: GivenText | tuple[_Part, ...] | None = None

    @property
    def text(self) -> str:
        """Its text."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(part.text for part in self.content if isinstance(part, ChatText))

    @property
    def image_urls(self) -> list[str]:
        """The addresses of its images."""
        parts = () if self.content is None or isinstance(self.content, str) else self.content
        return [part.image_url.url for part in parts if isinstance(part, ChatImage)]


class ChatMessage(ChatContent):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]


class ChatOutput(ChatContent):
    """The output of a call that the client hosts."""

    role: Literal["tool"]
    tool_call_id: str = Field(min_length=1, max_length=200)


class ChatTool(GivenValue):
    """A tool of the client."""

    type: Literal["function"]
    function: GivenFunction


class StreamOptions(GivenValue):
    """What a stream has besides the answer."""

    include_usage: bool = False


class ChatRequest(GivenValue):
    """What a client asks with ``POST /v1/chat/completions``."""

    model: str = Field(min_length=1, max_length=200)
    """The agent."""
    messages: Annotated[
        tuple[Annotated[ChatMessage | ChatOutput, Field(discriminator="role")], ...],
        Field(min_length=1, max_length=MAX_ITEMS),
    ]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    tools: tuple[ChatTool, ...] = Field(default=(), max_length=MAX_TOOLS)
    tool_choice: Literal["auto", "none"] = "auto"
    n: Literal[1] = 1
    response_format: TextForm | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=10_000_000)


def read_chat(value: object) -> ChatRequest:
    """Return a request.

    Raises:
        ConfigError: it is not one, or asks for what this door does not have; names the member.
    """
    try:
        return ChatRequest.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"the request can't be used: {describe_faults(error)}") from None


def convert_chat_request(given: ChatRequest) -> ClientRequest:
    """Return what a request asks, whatever the protocol.

    Raises:
        ConfigError: its messages don't fit each other, or an image or a tool can't be used.
    """
    script = RequestScript()
    for each in given.messages:
        if isinstance(each, ChatOutput):
            script.add_output(each.tool_call_id, each.text)
        else:
            script.add_message(each.role, each.text, [parse_image(url) for url in each.image_urls])
    # The second one is the older name.
    most = given.max_completion_tokens or given.max_tokens
    return script.request(
        agent=given.model,
        instructions="",
        declared=declare([each.function for each in given.tools]),
        settings=make_settings(given.tool_choice, given.temperature, most),
    )


def make_completion(agent: str, fold: ResponseFold, ended: LoggedResponse) -> dict[str, Any]:
    """Return a response that has ended as a chat completion.

    Args:
        agent: The agent that was asked.
        fold: What the journal says.
        ended: The response.
    """
    waiting = () if ended.ended is None else ended.ended.waiting
    text = SEPARATOR.join(fold.list_texts(ended))
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    if waiting:
        message["tool_calls"] = [_render_call(each) for each in waiting]
    reason = "tool_calls" if waiting else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": f"chatcmpl-{ended.response_id}",
        "object": "chat.completion",
        "created": ended.start.at_ms // 1000,
        "model": agent,
        "choices": [choice],
        "usage": convert_chat_usage(fold.sum_usage(ended)),
    }


def convert_chat_usage(usage: Usage) -> dict[str, Any]:
    """Return what a response used, in tokens."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _render_call(call: HostedCall) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": dump_json(call.arguments)}
    return {"id": call.call_id, "type": "function", "function": function}


class ChatChunks:
    """Makes the chunks of one stream.

    Args:
        response_id: The response.
        agent: The agent that is asked.
        at_s: When it was made, in seconds since 1970.
        has_usage: Whether the last chunk says what the response used.
    """

    def __init__(self, response_id: str, agent: str, at_s: int, *, has_usage: bool) -> None:
        self._response_id = response_id
        self._agent = agent
        self._at_s = at_s
        self._has_usage = has_usage
        self._sent = ""
        """What was sent of the text that the model writes now."""
        self._has_text = False
        """Whether an earlier text was sent whole."""

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the first chunk."""
        yield self._make_chunk({"role": "assistant", "content": ""})

    def emit_piece(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the chunk of a piece of text."""
        if text:
            between = SEPARATOR if self._has_text and not self._sent else ""
            self._sent += text
            yield self._make_chunk({"content": between + text})

    def items(self, items: Sequence[OutputItem]) -> Iterator[dict[str, Any]]:
        """Yield what is left of texts that are whole; what the tree ran itself is left out."""
        for each in items:
            if isinstance(each, SaidText):
                # A hook may have changed the text after it was streamed, and a chunk takes nothing back.
                yield from self.emit_piece(
                    each.text[len(self._sent) :] if each.text.startswith(self._sent) else ""
                )
                self._has_text = self._has_text or bool(self._sent)
                self._sent = ""

    def end(self, waiting: Sequence[HostedCall], usage: Usage) -> Iterator[dict[str, Any]]:
        """Yield the calls that wait for the client, why the answer ends, and what it used."""
        for place, call in enumerate(waiting):
            yield self._make_chunk({"tool_calls": [{"index": place, **_render_call(call)}]})
        yield self._make_chunk({}, "tool_calls" if waiting else "stop")
        if self._has_usage:
            yield self._make_frame([]) | {"usage": convert_chat_usage(usage)}

    def _make_chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return self._make_frame([{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}])

    def _make_frame(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        frame: dict[str, Any] = {
            "id": f"chatcmpl-{self._response_id}",
            "object": "chat.completion.chunk",
            "created": self._at_s,
            "model": self._agent,
            "choices": choices,
        }
        return frame | {"usage": None} if self._has_usage else frame
