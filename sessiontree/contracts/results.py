"""What tools and sessions hand back.

``output`` is for the model, ``display`` for people, ``details`` for the journal and the screen only.
Source: ADR-0004, ToolResult; seed 000, section 7; ADR-0002, SessionResult.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from sessiontree.contracts.errors import ImageRefused
from sessiontree.contracts.fast_init import quickly_made
from sessiontree.contracts.images import MAX_SOURCE_BYTES, image_mime_type
from sessiontree.contracts.jsonable import JsonValue, dump_readable, to_json_value
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.messages import ImageContent
from sessiontree.contracts.ports import Reader
from sessiontree.contracts.usage import Usage

ArtifactKind: TypeAlias = Literal["file", "blob", "reference"]
Untrusted: TypeAlias = Literal["marked"] | bool
"""Whether text comes from outside: True, and then it is put between marks for the model; ``marked`` where
what comes from outside stands between marks already (``contracts/untrusted.py``)."""
if TYPE_CHECKING:  # typing's own takes no default before Python 3.13
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
    """Where a reference points."""
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


@quickly_made
@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns.

    Args:
        output: JSON for the model; a plain string is sent as it stands, anything else as compact JSON.
        display: One line for people; empty means: derived from the output.
        artifacts: Files or records made or changed.
        details: JSON for journal and screen, never sent to the model.
        images: Pictures for the model, in order.
        untrusted: Whether the output is text from outside, such as a mail: information, and no instruction.
    """

    output: JsonValue = None
    display: str = ""
    artifacts: tuple[Artifact, ...] = ()
    details: JsonValue = None
    images: tuple[ImageContent, ...] = ()
    untrusted: Untrusted = False

    def text_for_model(self) -> str:
        """Return the output as the one text block a model reads.

        Raises:
            ValueError, TypeError: the output has no JSON form.
        """
        return self.output if isinstance(self.output, str) else dump_readable(self.output)


def json_result(value: object, *, display: str = "", artifacts: tuple[Artifact, ...] = ()) -> ToolResult:
    """Return a result whose output and details are both ``value``, made JSON where it is not."""
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
) -> ToolResult:
    """Return a result of a text and one picture.

    Args:
        text: What the model reads beside it.
        image: The encoded image: its bytes, or base64 text of them.
        mime_type: Such as ``image/png``.
        details: JSON for journal and screen; None = ``{}``.
        display: One line for people.
        artifacts: Files or records made or changed.

    Source: seed 002, section 2, imageResult.
    """
    data = image if isinstance(image, str) else base64.b64encode(image).decode("ascii")
    return ToolResult(
        output=text,
        display=display,
        artifacts=artifacts,
        details={} if details is None else details,
        images=(ImageContent(data, mime_type),),
    )


def image_result_from_file(
    reader: Reader, path: str, *, text: str = "", details: Mapping[str, JsonValue] | None = None
) -> ToolResult:
    """Return a result that shows an image file: ``MEDIA:<path>``, what else is to be said, and the picture.

    Blocks: call it from a thread. The type is what the file's first bytes say, whatever its name.

    Args:
        reader: Opens the file.
        path: As the reader takes it.
        text: Said below the ``MEDIA:`` line; empty = nothing.
        details: Added to ``{path, bytes, mimeType}``.

    Raises:
        ImageRefused: the file is no PNG, JPEG, GIF or WebP image, or larger than 20 MiB.
        ExecutionError, PermissionDenied: as the reader refuses a path.

    Source: seed 001, section 6, imageResultFromFile; seed 000, section 3.3.
    """
    entry = reader.stat(path)
    data = b""
    if entry.size <= MAX_SOURCE_BYTES:
        with reader.open(path) as stream:
            data = stream.read(MAX_SOURCE_BYTES + 1)
    if max(entry.size, len(data)) > MAX_SOURCE_BYTES:
        raise ImageRefused(repr(path), f"it has more than {MAX_SOURCE_BYTES:,} bytes; make it smaller first")
    mime_type = image_mime_type(data)
    if mime_type is None:
        raise ImageRefused(repr(path), "it is no PNG, JPEG, GIF or WebP image")
    said = f"MEDIA:{entry.path}"
    return image_result(
        f"{said}\n{text}" if text else said,
        data,
        mime_type=mime_type,
        display=f"{entry.path}: {mime_type}, {len(data):,} bytes",
        details={**(details or {}), "path": entry.path, "bytes": len(data), "mimeType": mime_type},
    )


@dataclass(frozen=True, slots=True)
class SessionResult(Generic[R]):
    """How a session ended.

    Args:
        status: One of the final states.
        summary: Its last words, or why it ended.
        output: The value its parent asked for (validated), else None.
        artifacts: Everything its tools reported, in order.
        memory_ids: Memory records written.
        usage: What it used itself; its children's use is theirs.
    """

    status: SessionStatus
    summary: str
    output: R | None = None
    artifacts: tuple[Artifact, ...] = ()
    memory_ids: tuple[str, ...] = ()
    usage: Usage = Usage()

    def to_wire(self) -> dict[str, Any]:
        """Return the members under camelCase names."""
        return {
            "status": str(self.status),
            "summary": self.summary,
            "output": self.output,
            "artifacts": [artifact.to_wire() for artifact in self.artifacts],
            "memoryIds": list(self.memory_ids),
            "usage": self.usage.to_wire(),
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
        )
