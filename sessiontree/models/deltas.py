"""Pieces: what a model that streams gives, one after another, until its reply is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.messages import StopReason
from sessiontree.contracts.usage import Usage


@dataclass(frozen=True, slots=True)
class ThinkingPiece:
    """A piece of what the model thinks, or of the signature that comes behind it."""

    text: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a tool call: its beginning, some of its argument text, its end, or all of it.

    A piece belongs to the call of its ``index``, else of its ``id``, else to the last one. It begins a new
    call where there is none yet, where its id is another than the call's, or where it has a name and the call
    has another, has ended, or can't be told apart by index or id.
    """

    arguments: str | Mapping[str, JsonValue] = ""
    """Some of the argument text; or the whole arguments, as an object."""
    index: int | None = None
    """Which call it is, as the provider counts."""
    id: str = ""
    """The provider's id; may come with any piece, and may be repeated or missing."""
    name: str = ""
    """The tool; may come with any piece and may be repeated."""
    ends: bool = False
    """Whether the call is whole; a call nothing says so of is whole when the reply is."""


@dataclass(frozen=True, slots=True)
class StopPiece:
    """Why the model stops. Without one it ``stop``-s, or waits for its calls (``toolUse``)."""

    reason: StopReason


Piece: TypeAlias = str | ThinkingPiece | CallPiece | StopPiece | Usage
"""Text as it is; usage as a whole, the last one given counts."""
