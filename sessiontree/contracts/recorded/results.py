"""Results: what tools and sessions return, and the envelopes of calls without a tool's answer.

``output`` is for the model, ``display`` for people, ``details`` for the journal and the screen only.
Source: ADR-0004, ToolResult; seed 000, section 7; ADR-0002, SessionResult.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from sessiontree.contracts.errors import (
    FailureReason,
    ImageRefused,
    PermissionDenied,
    SessionFailed,
    Timeout,
    ToolError,
    ValidationError,
)
from sessiontree.contracts.handles.ports import Reader
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.settings.settings import MAX_SOURCE_BYTES, ImageLimits, detect_image_type
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable, to_json_value
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage, Usage
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass
from sessiontree.contracts.values.truncation import cut_text

ArtifactKind: TypeAlias = Literal["file", "blob", "reference"]
"""Where an artifact is: in a file, in the journal, or at an address."""
ResultCause: TypeAlias = Literal["", "provider", "budget", "lost", "not_started"]
"""Why a session failed, if that says nothing about its task: its provider refuses for good, a budget is used
up, its host was lost too often, or it was never started. Empty = another reason, or it did not fail."""
ChildOutcome: TypeAlias = Literal[
    "completed", "failed", "cancelled", "expired", "provider", "budget", "lost", "not_started"
]
"""How a child ended, in one word: its cause if it has one, else its status."""
Untrusted: TypeAlias = Literal["marked"] | bool
"""Whether text comes from outside. True = it is put between marks for the model; ``marked`` = the parts from
outside are between marks already (``contracts/values/untrusted.py``)."""
if TYPE_CHECKING:  # typing.TypeVar takes no default before Python 3.13
    from typing_extensions import TypeVar as TypeVarWithDefault

    R = TypeVarWithDefault("R", default=Any)
else:
    R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something a tool or session produced: a file, inline data, or a reference to a record."""

    kind: ArtifactKind
    description: str
    path: str | None = None
    """Workspace-relative path of a file."""
    uri: str | None = None
    """Target of a reference."""
    data: str | None = None
    """Inline text, below 64 KB."""

    def to_wire(self) -> dict[str, Any]:
        """Return the members that are set."""
        members = {
            "kind": self.kind,
            "description": self.description,
            "path": self.path,
            "uri": self.uri,
            "data": self.data,
        }
        return {name: value for name, value in members.items() if value is not None}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Artifact:
        """Return the artifact of a wire object."""
        return cls(wire["kind"], wire["description"], wire.get("path"), wire.get("uri"), wire.get("data"))


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns.

    Args:
        output: JSON for the model; a string is sent unchanged, anything else as compact JSON.
        display: One line for people; empty = derived from the output.
        artifacts: Files or records created or changed.
        details: JSON for journal and screen, never sent to the model.
        images: Images for the model, in order.
        untrusted: Whether the output is text from outside, such as mail: information, not an instruction.
        image_limits: Narrower limits for these images; what is wider than the agent's limits has no effect.
    """

    output: JsonValue = None
    display: str = ""
    artifacts: tuple[Artifact, ...] = ()
    details: JsonValue = None
    images: tuple[ImageContent, ...] = ()
    untrusted: Untrusted = False
    image_limits: ImageLimits | None = None

    def text_for_model(self) -> str:
        """Return the output as the text block that a model reads.

        Raises:
            ValueError, TypeError: the output has no JSON form.
        """
        return self.output if isinstance(self.output, str) else dump_readable(self.output)


def json_result(value: object, *, display: str = "", artifacts: tuple[Artifact, ...] = ()) -> ToolResult:
    """Return a result whose output and details are both ``value``, converted to JSON.

    Args:
        value: Any value; what has no JSON form becomes its ``repr``.
        display: A line for people, in place of the output.
        artifacts: What the call made.
    """
    payload = to_json_value(value)
    return ToolResult(output=payload, display=display, artifacts=artifacts, details=payload)


def image_result(
    text: str,
    image: str | bytes,
    *,
    mime_type: str,
    details: JsonValue = None,
    display: str = "",
    artifacts: tuple[Artifact, ...] = (),
    image_limits: ImageLimits | None = None,
) -> ToolResult:
    """Return a result with a text and one image.

    Args:
        text: Text for the model.
        image: The encoded image: its bytes, or their base64 text.
        mime_type: Media type, such as ``image/png``.
        details: JSON for journal and screen; None = ``{}``.
        display: One line for people.
        artifacts: Files or records created or changed.
        image_limits: Narrower limits for this image than the agent's.

    Source: seed 002, section 2, imageResult.
    """
    data = image if isinstance(image, str) else base64.b64encode(image).decode("ascii")
    return ToolResult(
        output=text,
        display=display,
        artifacts=artifacts,
        details={} if details is None else details,
        images=(ImageContent(data, mime_type),),
        image_limits=image_limits,
    )


def image_result_from_file(
    reader: Reader,
    path: str,
    *,
    text: str = "",
    details: Mapping[str, JsonValue] | None = None,
    label: str = "",
    image_limits: ImageLimits | None = None,
) -> ToolResult:
    """Return a result that shows an image file: ``MEDIA:<path>``, an optional text, and the image.

    The function blocks; call it from a thread. The file's first bytes decide its type, not its name.

    Args:
        reader: Opens the file.
        path: A path for the reader.
        text: Text below the ``MEDIA:`` line; empty = none.
        details: Members added to ``{path, bytes, mimeType}``.
        label: What the image is, for people; empty = its path.
        image_limits: Narrower limits for this image than the agent's.

    Raises:
        ImageRefused: the file is not a PNG, JPEG, GIF or WebP image, or is larger than 20 MiB.
        ExecutionError, PermissionDenied: the reader refuses the path.

    Source: seed 001, section 6, imageResultFromFile; seed 000, section 3.3.
    """
    entry = reader.stat(path)
    data = b""
    if entry.size <= MAX_SOURCE_BYTES:
        with reader.open(path) as stream:
            # One byte more than is allowed: the file may have grown since its size was read.
            data = stream.read(MAX_SOURCE_BYTES + 1)
    if max(entry.size, len(data)) > MAX_SOURCE_BYTES:
        raise ImageRefused(repr(path), f"it has more than {MAX_SOURCE_BYTES:,} bytes; make it smaller first")
    mime_type = detect_image_type(data)
    if mime_type is None:
        raise ImageRefused(repr(path), "it is not a PNG, JPEG, GIF or WebP image")
    said = f"MEDIA:{entry.path}"
    return image_result(
        f"{said}\n{text}" if text else said,
        data,
        mime_type=mime_type,
        display=f"{label or entry.path}: {mime_type}, {len(data):,} bytes",
        details={**(details or {}), "path": entry.path, "bytes": len(data), "mimeType": mime_type},
        image_limits=image_limits,
    )


@dataclass(frozen=True, slots=True)
class SessionResult(Generic[R]):
    """How a session ended.

    Args:
        status: One of the final states.
        summary: Its final message, or why it ended.
        output: The validated value that its parent asked for, or None.
        artifacts: Everything that its tools reported, in order.
        memory_ids: Ids of the memory records that it wrote.
        usage: Its own usage, without that of its children.
        given_up: What it did not finish, a line each: tools that its model could not call, and calls that
            were cut short, with whether they may have run.
        session_id: Path of the session; empty = not known here.
        cause: Why it failed, if the reason is not in its task.
    """

    status: SessionStatus
    summary: str
    output: R | None = None
    artifacts: tuple[Artifact, ...] = ()
    memory_ids: tuple[str, ...] = ()
    usage: Usage = Usage()
    given_up: tuple[str, ...] = ()
    session_id: str = field(default="", kw_only=True, compare=False)
    cause: ResultCause = field(default="", kw_only=True)

    @property
    def outcome(self) -> ChildOutcome:
        """How it ended, in one word: ``cause`` if that says something, else ``status``.

        So the loss of a host, or a provider that refuses for good, is not mistaken for a failure of the task.
        """
        return cast("ChildOutcome", self.cause or self.status.value)

    @property
    def value(self) -> R:
        """The validated value that its parent asked for; never None.

        Raises:
            SessionFailed: the session has no value. ``cause`` is how it ended, and ``failed`` also if it
                completed without a value, because no ``result_type`` was asked for.
        """
        if self.status is SessionStatus.COMPLETED and self.output is not None:
            return self.output
        raise explain_missing_value(self)

    def to_wire(self) -> dict[str, Any]:
        """Return the members under camelCase names; ``givenUp`` and ``cause`` only if they say anything."""
        further: dict[str, Any] = {"givenUp": list(self.given_up)} if self.given_up else {}
        if self.cause:
            further["cause"] = self.cause
        return {
            "status": str(self.status),
            "summary": self.summary,
            "output": self.output,
            "artifacts": [artifact.to_wire() for artifact in self.artifacts],
            "memoryIds": list(self.memory_ids),
            "usage": self.usage.to_wire(),
            **further,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SessionResult[Any]:
        """Return the result of a wire object; its output stays plain JSON."""
        return SessionResult(
            SessionStatus(wire["status"]),
            wire["summary"],
            wire["output"],
            tuple(Artifact.from_wire(artifact) for artifact in wire["artifacts"]),
            tuple(wire["memoryIds"]),
            Usage.from_wire(wire["usage"]),
            tuple(wire.get("givenUp", ())),
            cause=wire.get("cause", ""),
        )


_CAUSES: Final[Mapping[SessionStatus, FailureReason]] = {
    SessionStatus.CANCELLED: "cancelled",
    SessionStatus.EXPIRED: "expired",
}


def explain_missing_value(result: SessionResult[Any]) -> SessionFailed:
    """Return the error that says why a result has no value."""
    if result.status is SessionStatus.COMPLETED:
        reason = "it completed, and has no value: give a result_type, or read the result's summary"
    else:
        reason = f"it ended {result.status}: {result.summary}"
    return SessionFailed(result.session_id, reason, result.cause or _CAUSES.get(result.status, "failed"))


MAX_REASON_CHARS: Final = 8_000
"""Maximum characters of a reason in an envelope; an error raised by a tool may have any size."""
MIN_REASON_CHARS: Final = 15
"""Minimum characters that a shortened reason keeps."""
MAX_FIELD_CHARS: Final = 400


def make_error_message(
    call_id: str,
    tool: str,
    error: ToolError,
    at_ms: int,
    *,
    schema: Mapping[str, JsonValue] | None = None,
    extra: Mapping[str, JsonValue] | None = None,
    max_chars: int | None = None,
) -> ToolResultMessage:
    """Return ``{"status":"error","tool","error"}`` as a failed result.

    A validation error adds the failing ``field`` and the tool's ``schema``, so that the model can correct the
    call. What a policy refused is ``{"status":"blocked","tool","reason","tier"}``. The error's code and
    status are in ``details``. If the text would exceed ``max_chars``, the reason is shortened, but never to
    nothing.
    """
    status, member = "error", "error"
    if isinstance(error, PermissionDenied) and error.by_policy:
        status, member = "blocked", "reason"
    envelope: dict[str, JsonValue] = {"status": status, "tool": tool, member: _cut_reason(error.message)}
    details: dict[str, JsonValue] = {"code": error.code, "status": error.status}
    if isinstance(error, ValidationError):
        field = error.field if error.field is None else cut_text(error.field, MAX_FIELD_CHARS)
        envelope["field"] = details["field"] = field
        if schema is not None:
            envelope["schema"] = dict(schema)
    if isinstance(error, PermissionDenied):
        envelope["tier"] = details["tier"] = error.tier.label
    if isinstance(error, Timeout):
        details["elapsed"] = error.elapsed
    if extra:
        envelope.update(extra)
    if max_chars is not None:
        _shorten(envelope, member, error.message, max_chars)
    # The fields of a tool's own error may hold any value, such as a time that is not a number.
    return _make_error_result(call_id, tool, envelope, to_json_value(details), at_ms, is_error=True)


def make_blocked_message(
    call_id: str, tool: str, reason: str, at_ms: int, *, max_chars: int | None = None
) -> ToolResultMessage:
    """Return ``{"status":"blocked","tool","reason"}``: a rule or hook stopped the call before it ran.

    ``max_chars`` has the same meaning as for :func:`make_error_message`.
    """
    envelope: dict[str, JsonValue] = {"status": "blocked", "tool": tool, "reason": _cut_reason(reason)}
    if max_chars is not None:
        _shorten(envelope, "reason", reason, max_chars)
    return _make_error_result(call_id, tool, envelope, None, at_ms, is_error=True)


def make_pending_message(
    call_id: str, tool: str, message: str, request_id: str, at_ms: int
) -> ToolResultMessage:
    """Return ``{"status":"pending","tool","message","requestId"}``: a notice reports the outcome."""
    envelope: dict[str, JsonValue] = {
        "status": "pending",
        "tool": tool,
        "message": _cut_reason(message),
        "requestId": request_id,
    }
    return _make_error_result(call_id, tool, envelope, None, at_ms, is_error=False)


LOST = "the process running this call was lost; check what it did before you repeat it"


def make_unknown_message(call_id: str, tool: str, at_ms: int, reason: str = LOST) -> ToolResultMessage:
    """Return ``{"status":"unknown","may_have_run":true}``: the call began, and its result is lost."""
    envelope: dict[str, JsonValue] = {
        "status": "unknown",
        "tool": tool,
        "may_have_run": True,
        "error": reason,
    }
    return _make_error_result(call_id, tool, envelope, None, at_ms, is_error=True)


def _cut_reason(text: str) -> str:
    return cut_text(text, MAX_REASON_CHARS)


def _shorten(envelope: dict[str, JsonValue], member: str, text: str, max_chars: int) -> None:
    """Shorten a reason until the envelope's text fits or the reason has its minimum length."""
    room = min(len(text), MAX_REASON_CHARS)
    # The length in JSON is known only after encoding: some letters need six characters.
    while len(dump_readable(envelope)) > max_chars and room > MIN_REASON_CHARS:
        room = max(MIN_REASON_CHARS, room * 3 // 4)
        envelope[member] = cut_text(text, room)


def _make_error_result(
    call_id: str,
    tool: str,
    envelope: dict[str, JsonValue],
    details: JsonValue,
    at_ms: int,
    *,
    is_error: bool,
) -> ToolResultMessage:
    return ToolResultMessage(call_id, tool, (TextContent(dump_readable(envelope)),), details, is_error, at_ms)


def read_error_words(text: str) -> str:
    """Return what an error's message says, and of which argument; another text is returned as it is."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        # A tool's text may be nested too deep for the reader.
        return text
    if not isinstance(envelope, dict):
        return text
    said = str(envelope.get("error") or envelope.get("reason") or text).strip()
    where = envelope.get("field")
    return f"{said} (at {where})" if where else said
