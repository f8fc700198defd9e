"""The fake provider's replies and their failures, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FakeCall:
    """A tool call of a reply."""

    name: str
    arguments: str = "{}"
    """Text as it goes over the wire; it need not be JSON."""


@dataclass(frozen=True, slots=True)
class FakeReply:
    """One reply: thoughts, text and calls in this order, and its failures."""

    text: str = ""
    thinking: str = ""
    """Signed, where the wire form has signatures; a later question must bring them back."""
    calls: tuple[FakeCall, ...] = ()
    refusal: str = ""
    """Refusal, sent instead of everything else."""
    finish: Literal["", "length"] = ""
    """``length``: the tokens of the reply were used up."""
    status: int = 200
    """HTTP status; a value other than 200, such as 429, 500 or 529, is an error without a reply."""
    retry_after_s: float | None = None
    """The delay before a retry that an error states, in seconds."""
    error: str = "the fake fails on purpose"
    """Message of an error."""
    delta_chars: int = 8
    """Characters of text, thoughts and arguments in each event."""
    write_bytes: int | None = None
    """Bytes the body is written in at a time; None = at once."""
    cut_after_bytes: int | None = None
    """Bytes of the body after which the connection is broken; None = never."""
    first_s: float = 0.0
    """Seconds before the first byte."""
    between_s: float = 0.0
    """Seconds between two events of a stream."""
    reasoning_tokens: int = 0
    """Those of the reply's tokens that count as thoughts."""
    events: tuple[Mapping[str, Any] | str, ...] = ()
    """Data of the events of a stream, sent unchanged instead of everything else."""

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> FakeReply:
        """Return the reply of ``wire``, a JSON object with these members; a call is ``{name, arguments}``.

        Raises:
            ValueError: it is not an object, a member is not one of these, or its value is of another type.
        """
        if not isinstance(wire, Mapping):
            raise ValueError(f"a reply is an object such as {{'text': 'yes'}}, not {wire!r}"[:200])
        known = {each.name for each in fields(cls)}
        if unknown := set(wire) - known:
            raise ValueError(
                f"a reply has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}"
            )
        try:
            reply: FakeReply = TypeAdapter(cls).validate_python(wire)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{place} of a reply: {first['msg']}, not {first['input']!r}"[:300]) from error
        return reply


@dataclass(frozen=True, slots=True)
class FakeUsage:
    """Tokens of one exchange."""

    input_tokens: int
    """All of them."""
    output_tokens: int
    cached_tokens: int
    """Those of the input that were known before."""
    written_tokens: int
    """Those of the input that will be known from now on."""
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class SignedReply:
    """A reply with what the provider adds to it."""

    reply: FakeReply
    usage: FakeUsage
    model: str
    number: int
    """From 1; ids are made of it."""
    signature: str
    """``""`` = the reply has no thoughts, or its wire form no signatures."""

    def call_id(self, index: int) -> str:
        """Return the id of its call at ``index``: nine letters and digits, as every provider accepts."""
        return f"c{self.number:05d}{index:03d}"
