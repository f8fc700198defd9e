"""Requests of the protocol Open Responses: what a client may ask, and how it is read.

Source: the specification of 24 April 2026. It translates, and decides nothing about rights.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import describe_faults
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.doors.client_tools import MAX_TOOLS, GivenFunction, declare
from sessiontree.doors.histories import Speaker, Utterance
from sessiontree.doors.responses.asked import ClientRequest
from sessiontree.doors.responses.data_urls import parse_image

MAX_TEXT_CHARS: Final = 1_000_000
MAX_ITEMS: Final = 5_000


class GivenValue(BaseModel):
    """A value of a request; members that are unknown are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


GivenText: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class TextPart(GivenValue):
    """A piece of text of a message, or of an output."""

    type: Literal["input_text", "output_text"]
    text: GivenText


class ImagePart(GivenValue):
    """An image of a message."""

    type: Literal["input_image"]
    image_url: str
    """A data URL."""


_Part: TypeAlias = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class GivenMessage(GivenValue):
    """A message of a request, or of the history before it."""

    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: GivenText | tuple[_Part, ...]

    @property
    def text(self) -> str:
        """Its text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Its images."""
        return () if isinstance(self.content, str) else tuple(_select_images(self.content))


def _select_images(parts: tuple[TextPart | ImagePart, ...]) -> list[ImagePart]:
    return [part for part in parts if isinstance(part, ImagePart)]


class GivenOutput(GivenValue):
    """The output of a call that the client hosts."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, max_length=200)
    output: GivenText | tuple[TextPart, ...]

    @property
    def text(self) -> str:
        """Its text."""
        return self.output if isinstance(self.output, str) else "\n".join(part.text for part in self.output)


class PassedItem(GivenValue):
    """An item of the history that the tree knows itself: a call that it made, or what its model thought."""

    type: Literal["function_call", "reasoning"]


def _add_type(value: Any) -> Any:
    """Return an item with its type: a message may leave it out."""
    return {"type": "message", **value} if isinstance(value, dict) and "role" in value else value


GivenItem: TypeAlias = Annotated[
    Annotated[GivenMessage | GivenOutput | PassedItem, Field(discriminator="type")],
    BeforeValidator(_add_type),
]


class GivenTool(GivenFunction):
    """A tool of a request."""

    type: Literal["function"]


class TextForm(GivenValue):
    """The form of the answer's text."""

    type: Literal["text"]


class TextOptions(GivenValue):
    """How the answer is written."""

    format: TextForm = TextForm(type="text")


class ResponseRequest(GivenValue):
    """What a client asks with ``POST /v1/responses``."""

    model: str = Field(min_length=1, max_length=200)
    """The agent."""
    input: (
        Annotated[GivenText, Field(min_length=1)]
        | Annotated[tuple[GivenItem, ...], Field(min_length=1, max_length=MAX_ITEMS)]
    )
    previous_response_id: str | None = Field(default=None, max_length=200)
    instructions: GivenText | None = None
    stream: bool = False
    store: bool = True
    metadata: dict[str, str] = Field(default_factory=dict, max_length=16)
    tools: tuple[GivenTool, ...] = Field(default=(), max_length=MAX_TOOLS)
    tool_choice: Literal["auto", "none"] = "auto"
    background: bool = False
    text: TextOptions = TextOptions()
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int | None = Field(default=None, ge=1, le=10_000_000)

    @property
    def settings(self) -> ModelSettings | None:
        """Settings of the model that it asks for."""
        return make_settings(self.tool_choice, self.temperature, self.max_output_tokens)

    @property
    def items(self) -> tuple[GivenItem, ...]:
        """The items of its input."""
        if isinstance(self.input, str):
            return (GivenMessage(type="message", role="user", content=self.input),)
        return self.input


def make_settings(
    tool_choice: str, temperature: float | None, max_output_tokens: int | None
) -> ModelSettings | None:
    """Return the settings of a model that a client asks for; None = it asks for none."""
    given: dict[str, Any] = {"temperature": temperature, "max_output_tokens": max_output_tokens}
    if tool_choice == "none":
        given["tool_choice"] = "none"
    given = {name: value for name, value in given.items() if value is not None}
    return ModelSettings(**given) if given else None


def read_request(value: object) -> ResponseRequest:
    """Return a request.

    Raises:
        ConfigError: it is not one, or asks for what this door does not have; names the member.
    """
    try:
        return ResponseRequest.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"the request can't be used: {describe_faults(error)}") from None


def request_in(given: ResponseRequest) -> ClientRequest:
    """Return what a request asks, whatever the protocol.

    Raises:
        ConfigError: its items don't fit each other, or an image or a tool can't be used.
    """
    script = RequestScript()
    for item in given.items:
        if isinstance(item, GivenMessage):
            script.add_message(item.role, item.text, [parse_image(each.image_url) for each in item.images])
        elif isinstance(item, GivenOutput):
            script.add_output(item.call_id, item.text)
    if given.previous_response_id is not None and script.has_answers:
        raise ConfigError("input: previous_response_id stands for the history; send what is new alone")
    if given.background and not given.store:
        raise ConfigError("background: nobody can ask for a response later of which nothing is kept")
    return script.request(
        agent=given.model,
        previous=given.previous_response_id,
        instructions=given.instructions or "",
        declared=declare(given.tools),
        settings=given.settings,
        is_kept=given.store,
    )


class RequestScript:
    """Collects the items of a request in their order: what was said before, then a message, or outputs."""

    def __init__(self) -> None:
        self._said: list[tuple[Utterance, tuple[ImageContent, ...]]] = []
        self._outputs: dict[str, str] = {}
        self._instructions: list[str] = []

    @property
    def has_answers(self) -> bool:
        """Whether something in it was said by the tree."""
        return any(each.speaker == "assistant" for each, _ in self._said)

    def add_message(self, role: str, text: str, images: list[ImageContent]) -> None:
        """Add a message."""
        if role in {"system", "developer"}:
            self._instructions.append(text)
            return
        speaker: Speaker = "assistant" if role == "assistant" else "user"
        self._said.append((Utterance(speaker, text), tuple(images)))
        if speaker == "user":  # outputs before it were given in an earlier request
            self._outputs.clear()

    def add_output(self, call_id: str, text: str) -> None:
        """Add the output of a call.

        Raises:
            ConfigError: the call has another one.
        """
        if self._outputs.setdefault(call_id, text) != text:
            raise ConfigError(f"input: the call {call_id!r} has two outputs")

    def request(self, *, instructions: str, **members: Any) -> ClientRequest:
        """Return what it asks.

        Raises:
            ConfigError: it ends with what the tree said, or asks nothing.
        """
        joined = "\n\n".join(each for each in (instructions, *self._instructions) if each.strip())
        said = [each for each, _ in self._said]
        if self._outputs:
            return ClientRequest(
                text="", outputs=self._outputs, history=tuple(said), instructions=joined, **members
            )
        begin = len(said)
        # All that was said since the tree's last answer is one message.
        while begin and said[begin - 1].speaker == "user":
            begin -= 1
        text = "\n\n".join(each.text for each in said[begin:] if each.text)
        if not text.strip():
            raise ConfigError("input: the last message of a request is the user's, and has a text")
        return ClientRequest(
            text=text,
            outputs={},
            history=tuple(said[:begin]),
            instructions=joined,
            images=tuple(image for _, images in self._said[begin:] for image in images),
            **members,
        )
