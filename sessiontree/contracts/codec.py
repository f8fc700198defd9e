"""One codec for everything that is journaled: facts, and the stimuli facts carry.

A value class is registered with :func:`recorded` under a kind and a version. ``pack`` gives its compact
JSON text, ``unpack`` the value again; each field is converted once, by a table made from the class's
annotations. A field that came later and says so with :func:`added` takes its default where an older journal
lacks it; whatever else a later version changes is given by upcasters, never guessed here. A wire object keeps
``kind`` and ``v`` for itself: a field of that name is written with an underscore behind it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import attrgetter, methodcaller
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from sessiontree.contracts.fast_init import quickly_made
from sessiontree.contracts.jsonable import dump_json, quote
from sessiontree.contracts.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    call_from_wire,
    message_from_wire,
)
from sessiontree.contracts.results import Artifact, SessionResult
from sessiontree.contracts.usage import Usage

C = TypeVar("C", bound=type[Any])
Convert: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any], str]


@dataclass(slots=True)
class _Shape:
    cls: type[Any]
    version: int
    members: tuple[str, ...] = ()
    """Names of the wire's members, in the fields' order."""
    values: Callable[[Any], tuple[Any, ...]] | None = None
    """Gives the fields' values in order; None until the annotations were read."""
    encode: list[tuple[str, Convert]] = field(default_factory=list)
    """Members that need converting, and how."""
    decode: list[tuple[str, Convert | None]] = field(default_factory=list)
    """All members, and how they are converted back."""
    added: dict[str, Any] = field(default_factory=dict)
    """Members that older journals lack, as those meant them."""


_SHAPES: dict[str, _Shape] = {}
_KIND_OF: dict[type[Any], str] = {}
_WRITERS: dict[type[Any], Write] = {}
"""What writes values, by class; made with the first of each."""
_OWN_MEMBERS = {"kind", "v"}
_MESSAGES = (UserMessage, AssistantMessage, ToolResultMessage)


def recorded(kind: str, version: int = 1) -> Callable[[C], C]:
    """Register a frozen dataclass under a kind (unique, stable for ever) and its current version."""

    def register(cls: C) -> C:
        if kind in _SHAPES:
            raise ValueError(f"two classes are recorded as {kind!r}")
        quickly_made(cls)
        _SHAPES[kind] = _Shape(cls, version)
        _KIND_OF[cls] = kind
        return cls

    return register


def added(default: Any) -> Any:
    """Return the declaration of a field that older journals lack, and what they meant."""
    return field(default=default, metadata={"added": True})


def kind_of(value: object) -> str:
    """Return the kind a value is recorded as."""
    return _KIND_OF[type(value)]


def current_versions() -> dict[str, int]:
    """Return every kind's current version."""
    return {kind: shape.version for kind, shape in _SHAPES.items()}


def to_wire(value: object) -> dict[str, Any]:
    """Return the JSON object of a recorded value: ``kind``, ``v``, then its fields."""
    kind = _KIND_OF[type(value)]
    shape = _SHAPES[kind]
    values = shape.values
    if values is None:
        values = _plan(shape)
    wire: dict[str, Any] = {"kind": kind, "v": shape.version}
    wire.update(zip(shape.members, values(value), strict=True))
    for member, convert in shape.encode:
        wire[member] = convert(wire[member])
    return wire


def from_wire(wire: Mapping[str, Any]) -> Any:
    """Return the value of a wire object of the current version.

    Raises:
        ValueError: the kind or version is not known here.
        KeyError: a member is missing.
    """
    shape = _SHAPES.get(wire["kind"])
    if shape is None or wire["v"] != shape.version:
        raise ValueError(f"this release knows no {wire['kind']!r} of version {wire['v']}")
    if shape.values is None:
        _plan(shape)
    if shape.added and not shape.added.keys() <= wire.keys():
        wire = {**shape.added, **wire}
    return shape.cls(
        *[wire[name] if convert is None else convert(wire[name]) for name, convert in shape.decode]
    )


def pack(value: object) -> str:
    """Return the compact ASCII JSON text of a recorded value.

    Raises:
        ValueError, TypeError: a member has no JSON form.
    """
    write = _WRITERS.get(type(value))
    if write is None:
        shape = _SHAPES[_KIND_OF[type(value)]]
        _plan(shape)
        write = _WRITERS[shape.cls]
    return write(value)


def _plan(shape: _Shape) -> Callable[[Any], tuple[Any, ...]]:
    hints = get_type_hints(shape.cls)
    names = tuple(member.name for member in fields(shape.cls))
    shape.members = tuple(_member(name) for name in names)
    pairs = [(_member(name), *_converters(hints[name])) for name in names]
    shape.encode = [(member, encode) for member, encode, _ in pairs if encode is not None]
    shape.decode = [(member, decode) for member, _, decode in pairs]
    shape.added = {
        _member(member.name): member.default
        for member in fields(shape.cls)
        if member.metadata.get("added") is True
    }
    writers = [_writer(hints[name], encode) for name, (_, encode, _) in zip(names, pairs, strict=True)]
    _WRITERS[shape.cls] = _composed(shape, names, writers)
    if len(names) == 1:
        only = attrgetter(*names)
        shape.values = lambda value: (only(value),)
    else:
        shape.values = attrgetter(*names)
    return shape.values


def _composed(shape: _Shape, names: Sequence[str], writers: Sequence[Write]) -> Write:
    """Return what writes a value: one expression, made once as ``dataclass`` makes ``__init__``."""
    fixed = f'{{{{"kind":"{_KIND_OF[shape.cls]}","v":{shape.version}'
    parts = [
        f',"{member}":{{write_{name}(value.{name})}}'
        for member, name in zip(shape.members, names, strict=True)
    ]
    source = f"lambda value: f'{fixed}{''.join(parts)}}}}}'"
    known = {f"write_{name}": write for name, write in zip(names, writers, strict=True)}
    composed: Write = eval(source, known)  # noqa: S307 - kinds and names of our own classes, nothing else
    return composed


def _writer(hint: Any, encode: Convert | None) -> Write:
    """Return what writes a field's value; the frequent ones are written without a detour."""
    if hint is str:
        return quote
    if hint in _MESSAGES:
        return methodcaller("to_json")
    if encode is None:
        return _write_any
    return lambda item: dump_json(encode(item)) if item else _write_nothing(item, encode)


def _write_any(item: Any) -> str:
    kind = type(item)
    if kind is int:
        return repr(item)
    if kind is str:
        return quote(item)
    if item is None:
        return "null"
    if kind is bool:
        return "true" if item else "false"
    return dump_json(item)


def _write_nothing(item: Any, encode: Convert) -> str:
    if item is None:
        return "null"
    return "[]" if item == () else dump_json(encode(item))


def _member(name: str) -> str:
    """Return the wire's name of a field; the object's own members keep theirs."""
    return f"{name}_" if name in _OWN_MEMBERS else name


def _converters(hint: Any) -> tuple[Convert | None, Convert | None]:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return _union(hint)
    if origin is tuple:
        encode, decode = _converters(get_args(hint)[0])
        return _listed(encode), _tupled(decode)
    if isinstance(origin, type) and issubclass(origin, SessionResult):
        return SessionResult.to_wire, SessionResult.from_wire
    if isinstance(hint, type):
        return _class_converters(hint)
    return None, None


def _union(hint: Any) -> tuple[Convert | None, Convert | None]:
    members = [member for member in get_args(hint) if member is not type(None)]
    if members and all(member in _MESSAGES for member in members):
        encode: Convert | None = _message_to_wire
        decode: Convert | None = message_from_wire
    elif len(members) == 1:
        encode, decode = _converters(members[0])
    else:
        return None, None
    return _optional(encode), _optional(decode)


def _class_converters(hint: type[Any]) -> tuple[Convert | None, Convert | None]:
    if hint in _MESSAGES:
        return _message_to_wire, message_from_wire
    if hint in {Usage, Artifact, SessionResult}:
        return hint.to_wire, hint.from_wire
    if hint is ToolCall:
        return ToolCall.to_wire, call_from_wire
    if hint in {TextContent, ImageContent}:
        raise TypeError(f"record the message, not its {hint.__name__}")
    if issubclass(hint, BaseModel):
        return lambda model: model.model_dump(mode="json"), hint.model_validate
    if issubclass(hint, Enum):
        return lambda member: member.value, hint
    if hint is Recorded or hint in _KIND_OF:
        return to_wire, from_wire
    return None, None


def _message_to_wire(message: Message) -> dict[str, Any]:
    return message.to_wire()


def _optional(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda item: None if item is None else convert(item)


def _listed(convert: Convert | None) -> Convert:
    if convert is None:
        return list
    return lambda items: [convert(item) for item in items]


def _tupled(convert: Convert | None) -> Convert:
    if convert is None:
        return tuple
    return lambda items: tuple(convert(item) for item in items)


class Recorded:
    """Annotation for a field that holds any recorded value."""


Outcome: TypeAlias = Literal[
    "ok",
    "error",
    "invalid",
    "denied",
    "blocked",
    "skipped",
    "aborted",
    "timeout",
    "unknown",
    "pending",
]
"""How a tool call ended, as seen by the journal."""
