"""Calls of client tools that wait for the creating program or a person, and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessiontree.contracts.recorded.codec import declare_sparse, register_kind
from sessiontree.contracts.recorded.questions import QuestionRequest, read_items
from sessiontree.contracts.recorded.results import Artifact, ToolResult, Untrusted
from sessiontree.contracts.settings.settings import ImageLimits
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass


@register_kind("client_call")
@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call that waits for the creating program."""

    call_id: str
    """Unguessable; the answer refers to it."""
    session_id: str
    """The session that makes the call."""
    tool: str
    arguments: Mapping[str, JsonValue]
    """The final arguments, after every check."""
    expires_at_ms: int
    """When an unanswered call times out, in milliseconds since the epoch."""
    asked: str = declare_sparse("")
    """The session whose channel shows it to a person; empty = the program answers it."""
    asked_at_ms: int = declare_sparse(0)
    """When a person was asked."""


def read_question(call: ClientCall) -> QuestionRequest | None:
    """Return the questions of a call that waits for a person; None if it waits for the program."""
    if not call.asked:
        return None
    items = read_items(call.arguments)
    times = (call.asked_at_ms, call.expires_at_ms)
    return QuestionRequest(call.call_id, call.session_id, items, *times, call.asked)


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """An answer to a call: a result or a failure, and who gave it."""

    result: ToolResult | None
    failure: str = ""
    by: str = ""
    """Who answered; empty = the creating program."""
    surface: str = ""
    """Where; empty = in the creating program."""

    def to_wire(self) -> dict[str, Any]:
        """Return ``{failure}``, or the members of the result that an answer may have."""
        result = self.result
        if result is None:
            return {"failure": self.failure}
        wire = {
            "output": result.output,
            "display": result.display,
            "artifacts": [artifact.to_wire() for artifact in result.artifacts],
            "details": result.details,
            "images": [[image.data, image.mime_type] for image in result.images],
            "untrusted": result.untrusted,
        }
        if result.image_limits is not None:
            wire["image_limits"] = result.image_limits.model_dump()
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ClientAnswer:
        """Return the answer that a wire object describes.

        Raises:
            KeyError, TypeError, ValueError: the object is not valid.
        """
        if "failure" in wire:
            return cls(None, str(wire["failure"]))
        artifacts = tuple(Artifact.from_wire(each) for each in wire["artifacts"])
        images = tuple(ImageContent(data, mime_type) for data, mime_type in wire["images"])
        untrusted: Untrusted = wire.get("untrusted", False)
        given = wire.get("image_limits")
        limits = None if given is None else ImageLimits.model_validate(given)
        shown = wire["output"], wire["display"]
        return cls(ToolResult(*shown, artifacts, wire["details"], images, untrusted, limits))
