"""A call that the creating program answers, and its answer, as they travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sessiontree.contracts.decorator import without_classes
from sessiontree.contracts.errors import ClientAnswerRefused
from sessiontree.contracts.jsonable import JsonValue, dump_json, to_json_value
from sessiontree.contracts.messages import ImageContent
from sessiontree.contracts.results import Artifact, ToolResult, Untrusted, json_result

MAX_ANSWER_CHARS: Final = 32 * 2**20
"""Longest answer, as JSON, images in base64 included."""


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call that waits for the creating program."""

    call_id: str
    """Unguessable; the answer names it."""
    session_id: str
    """The session that makes the call."""
    tool: str
    arguments: Mapping[str, JsonValue]
    """The final arguments: every gate has seen them."""
    expires_at_ms: int
    """Unanswered then, the call has timed out."""


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """What the program answered: a result, or why there is none."""

    result: ToolResult | None
    failure: str = ""

    def to_wire(self) -> dict[str, Any]:
        """Return ``{failure}``, or ``{output, display, artifacts, details, images, untrusted}``."""
        result = self.result
        if result is None:
            return {"failure": self.failure}
        return {
            "output": result.output,
            "display": result.display,
            "artifacts": [artifact.to_wire() for artifact in result.artifacts],
            "details": result.details,
            "images": [[image.data, image.mime_type] for image in result.images],
            "untrusted": result.untrusted,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ClientAnswer:
        """Return the answer of a wire object.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        if "failure" in wire:
            return cls(None, str(wire["failure"]))
        artifacts = tuple(Artifact.from_wire(each) for each in wire["artifacts"])
        images = tuple(ImageContent(data, mime_type) for data, mime_type in wire["images"])
        untrusted: Untrusted = wire.get("untrusted", False)
        return cls(ToolResult(wire["output"], wire["display"], artifacts, wire["details"], images, untrusted))


def answer_of(call_id: str, value: object) -> ClientAnswer:
    """Return a program's answer as it travels: a ToolResult as it is, anything else as JSON.

    Raises:
        ClientAnswerRefused: it has no JSON form, or is too long.
    """
    try:
        result = value if isinstance(value, ToolResult) else json_result(without_classes(value))
        answer = ClientAnswer(
            ToolResult(
                to_json_value(result.output),
                result.display,
                tuple(result.artifacts),
                to_json_value(result.details),
                tuple(result.images),
                result.untrusted,
            )
        )
        chars = len(dump_json(answer.to_wire()))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ClientAnswerRefused(call_id, f"it has no JSON form: {error}") from error
    if chars > MAX_ANSWER_CHARS:
        raise ClientAnswerRefused(call_id, f"it has {chars:,} characters, at most {MAX_ANSWER_CHARS:,} fit")
    return answer


def failure_of(call_id: str, message: object) -> ClientAnswer:
    """Return a program's word that a call failed.

    Raises:
        ClientAnswerRefused: the word is no text.
    """
    if not isinstance(message, str) or not message.strip():
        raise ClientAnswerRefused(call_id, "say why it failed, as text")
    return ClientAnswer(None, message)
