"""Requests of the protocol Open Responses: what a client may ask, and how it is read.

Source: the specification of 24 April 2026. It translates, and decides nothing about rights.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.model_settings import ModelSettings
from sessiontree.contracts.settings import faults_of
from sessiontree.doors.client_tools import MAX_TOOLS, GivenFunction

MAX_TEXT_CHARS: Final = 1_000_000
MAX_ITEMS: Final = 1_000


class _Given(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TextPart(_Given):
    """A piece of text of a message, or of an output."""

    type: Literal["input_text", "output_text"]
    text: str = Field(max_length=MAX_TEXT_CHARS)


_Text: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class GivenMessage(_Given):
    """A message of a request."""

    type: Literal["message"] = "message"
    role: Literal["user"]
    content: _Text | tuple[TextPart, ...]

    @property
    def text(self) -> str:
        """Its text."""
        return _text_of(self.content)


class GivenOutput(_Given):
    """The output of a call that the client hosts."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, max_length=200)
    output: _Text | tuple[TextPart, ...]

    @property
    def text(self) -> str:
        """Its text."""
        return _text_of(self.output)


def _text_of(content: str | tuple[TextPart, ...]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _with_type(value: Any) -> Any:
    """Return an item with its type: a message may leave it out."""
    return {"type": "message", **value} if isinstance(value, dict) and "role" in value else value


GivenItem: TypeAlias = Annotated[
    Annotated[GivenMessage | GivenOutput, Field(discriminator="type")], BeforeValidator(_with_type)
]


class GivenTool(GivenFunction):
    """A tool of a request."""

    type: Literal["function"]


class ResponseRequest(_Given):
    """What a client asks with ``POST /v1/responses``."""

    model: str = Field(min_length=1, max_length=200)
    """The agent."""
    input: (
        Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
        | Annotated[tuple[GivenItem, ...], Field(min_length=1, max_length=MAX_ITEMS)]
    )
    previous_response_id: str | None = Field(default=None, max_length=200)
    stream: bool = False
    store: Literal[True] = True
    metadata: dict[str, str] = Field(default_factory=dict, max_length=16)
    tools: tuple[GivenTool, ...] = Field(default=(), max_length=MAX_TOOLS)
    tool_choice: Literal["auto", "none"] = "auto"
    background: Literal[False] = False

    @property
    def text(self) -> str:
        """The text of its messages."""
        if isinstance(self.input, str):
            return self.input
        return "\n\n".join(each.text for each in self.input if isinstance(each, GivenMessage))

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of calls, by the id of their call."""
        if isinstance(self.input, str):
            return {}
        return {each.call_id: each.text for each in self.input if isinstance(each, GivenOutput)}

    @property
    def settings(self) -> ModelSettings | None:
        """Settings of the model that it asks for."""
        return ModelSettings(tool_choice="none") if self.tool_choice == "none" else None


def read_request(value: object) -> ResponseRequest:
    """Return a request.

    Raises:
        ConfigError: it is not one, or asks for what this door does not have; names the member.
    """
    try:
        request = ResponseRequest.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"the request can't be used: {faults_of(error)}") from None
    if request.outputs:
        if request.text:
            raise ConfigError(
                "the request can't be used: input: outputs and messages are sent one after the other"
            )
        if len(request.outputs) != len(request.input):
            raise ConfigError("the request can't be used: input: a call has two outputs")
        if request.previous_response_id is None:
            raise ConfigError(
                "the request can't be used: previous_response_id: name the response with the calls"
            )
    return request
