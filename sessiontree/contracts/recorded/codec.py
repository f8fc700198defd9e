"""The codec for everything that is journaled: facts, and the stimuli that facts contain.

:func:`recorded` registers a value class under a kind and a version. ``pack`` returns its compact JSON text,
and ``from_wire`` returns the value of the JSON object. A table built from the class's annotations converts
each field once. A field declared with :func:`sparse` is left out if it has its default, so a later release
may add one. Every other change is a new version, which needs a step in ``journal/replay.py``; the codec never
guesses. The members ``kind`` and ``v`` of a wire object are reserved: a field of that name is written with a
trailing underscore.

A fact may hold facts that always stand next to it, in members declared with :func:`declare_held`. The
machines decide on single facts. :func:`pack_joined` writes what is journaled; :func:`list_parts` gives the
single facts.

A kind is the name of its class in snake case.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from enum import Enum, StrEnum
from operator import attrgetter, methodcaller
from typing import Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from sessiontree.contracts.recorded.results import Artifact, SessionResult
from sessiontree.contracts.values.jsonable import dump_json, quote
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    call_from_wire,
    decode_message,
)
from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass

C = TypeVar("C", bound=type[Any])
Convert: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any], str]


@dataclass(slots=True)
class _Shape:
    cls: type[Any]
    version: int
    members: tuple[str, ...] = ()
    """Member names of the wire object, in field order."""
    values: Callable[[Any], tuple[Any, ...]] | None = None
    """Returns the field values in order; None until the annotations are read."""
    encode: list[tuple[str, Convert]] = field(default_factory=list)
    """Members that need conversion, each with its converter."""
    decode: list[tuple[str, Convert | None]] = field(default_factory=list)
    """All members, each with the converter that reads it back."""
    sparse: dict[str, Any] = field(default_factory=dict)
    """Members that are omitted if they have that value; their absence means it."""
    shared: str = ""
    """The field whose tuple many values share, so that its text is made once for them."""


_SHAPES: dict[str, _Shape] = {}
_KIND_OF: dict[type[Any], str] = {}
_WRITERS: dict[type[Any], Write] = {}
"""The function that writes values, by class; created on first use."""
_OWN_MEMBERS = {"kind", "v"}
_MESSAGES = (UserMessage, AssistantMessage, ToolResultMessage)


def register_kind(kind: str, version: int = 1, *, shared: str = "") -> Callable[[C], C]:
    """Register a frozen dataclass under a kind (unique and permanent) and its current version.

    ``shared`` is a field whose tuple many values share: its text is made once for them.
    """

    def register(cls: C) -> C:
        if kind in _SHAPES:
            raise ValueError(f"two classes are recorded as {kind!r}")
        add_quick_pickle(cls)
        _SHAPES[kind] = _Shape(cls, version, shared=shared)
        _KIND_OF[cls] = kind
        return cls

    return register


def declare_sparse(default: Any) -> Any:
    """Return the declaration of a field that is not written if it has its default; absence means the default.

    A field that a later release adds is declared so: the journals before it lack the field, and mean the
    default. The default must be immutable.
    """
    return field(default=default, metadata={"sparse": True})


def declare_held(*, before: bool = False) -> Any:
    """Return the declaration of a member that holds the fact that follows at once, or the one before.

    Its type is that fact's class or None. A fact holds them in the order in which they are declared.
    """
    return field(default=None, metadata={"sparse": True, "held": "before" if before else "after"})


class FactJoiner:
    """The texts of facts with one cause and time; a fact is in the text of its neighbour if that holds it.

    Nothing is made but text: a fact that holds others is put together where it is read.
    """

    __slots__ = ("_filled", "_head", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._head: type[Any] | None = None
        """Class of the last text's fact; None = nothing may be joined to it."""
        self._filled = -1
        """Place of the last member in which it holds another one."""

    def add(self, fact: Any, text: str) -> None:
        """Add a single fact, with what :func:`pack` returns for it."""
        cls, head, texts = type(fact), self._head, self.texts
        if head is not None:
            place, name = _HOLDS[head].after.get(cls, _NOWHERE)
            # Only a later member: a fact holds others in the order in which they followed.
            if place > self._filled:
                texts[-1] = f'{texts[-1][:-1]},"{name}":{text}}}'
                self._filled = place
                return
            place, name = _HOLDS[cls].before.get(head, _NOWHERE)
            if place >= 0:
                texts[-1] = f'{text[:-1]},"{name}":{texts[-1]}}}'
                self._head, self._filled = cls, place
                return
        texts.append(text)
        self._head, self._filled = cls, -1

    def end(self) -> None:
        """Join nothing to the last text any more: its cause or its time is another one."""
        self._head = None


def pack_joined(facts: Sequence[Any]) -> list[str]:
    """Return the texts of single facts as they are journaled; all of them have one cause and one time.

    Raises:
        ValueError, TypeError: as :func:`pack`.
    """
    if len(facts) == 1:
        return [pack(facts[0])]
    joined = FactJoiner()
    for fact in facts:
        joined.add(fact, pack(fact))
    return joined.texts


def list_parts(fact: Any) -> tuple[Any, ...]:
    """Return the single facts that a fact holds, itself among them, in their order."""
    holds = _HOLDS[type(fact)]
    if not holds.after and not holds.before:
        return (fact,)
    values = [getattr(fact, each.name) for each in fields(fact)]
    before = _take_facts(values, holds.before)
    after = _take_facts(values, holds.after)
    return (*before, type(fact)(*values), *after) if before or after else (fact,)


def list_wire_parts(wire: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the wire objects of the single facts that one holds, itself among them, in their order."""
    shape = _SHAPES.get(str(wire.get("kind")))
    holds = None if shape is None else _HOLDS[shape.cls]
    if holds is None or not (holds.after or holds.before):
        return [dict(wire)]
    own = dict(wire)
    before = [own.pop(name, None) for _, name in holds.before.values()]
    after = [own.pop(name, None) for _, name in holds.after.values()]
    return [
        *(part for each in before if each is not None for part in list_wire_parts(each)),
        own,
        *(part for each in after if each is not None for part in list_wire_parts(each)),
    ]


def _take_facts(values: list[Any], members: Mapping[type[Any], tuple[int, str]]) -> list[Any]:
    """Take the facts out of these members; return their parts."""
    found: list[Any] = []
    for place, _ in members.values():
        if values[place] is not None:
            found += list_parts(values[place])
            values[place] = None
    return found


_NOWHERE: Final = (-1, "")


@dataclass(frozen=True, slots=True)
class _Holds:
    """Which facts a class of facts may hold: by their class, place and name of the member."""

    after: Mapping[type[Any], tuple[int, str]]
    before: Mapping[type[Any], tuple[int, str]]


class _HoldsByClass(dict[type[Any], _Holds]):
    """The same for every class of facts, made when it is first asked for."""

    def __missing__(self, cls: type[Any]) -> _Holds:
        after: dict[type[Any], tuple[int, str]] = {}
        before: dict[type[Any], tuple[int, str]] = {}
        hints = get_type_hints(cls)
        for place, each in enumerate(fields(cls)):
            when = each.metadata.get("held")
            if when is not None:
                members = before if when == "before" else after
                members[get_args(hints[each.name])[0]] = place, each.name
        made = self[cls] = _Holds(after, before)
        return made


_HOLDS: Final = _HoldsByClass()


def get_kind(value: object) -> str:
    """Return the kind under which a value is recorded."""
    return _KIND_OF[type(value)]


def list_recorded_classes() -> dict[type[Any], str]:
    """Return every recorded class with its kind."""
    return dict(_KIND_OF)


def list_current_versions() -> dict[str, int]:
    """Return the current version of every kind."""
    return {kind: shape.version for kind, shape in _SHAPES.items()}


def list_recorded_members(kind: str) -> tuple[str, ...]:
    """Return the members of a kind that contain other recorded values, each alone or in a list."""
    cls = _SHAPES[kind].cls
    hints = get_type_hints(cls)
    return tuple(_name_member(each.name) for each in fields(cls) if _is_recorded(hints[each.name]))


def _is_recorded(hint: Any) -> bool:
    if get_origin(hint) in {Union, types.UnionType, tuple}:
        return any(_is_recorded(each) for each in get_args(hint))
    return hint is Recorded or (isinstance(hint, type) and hint in _KIND_OF)


def to_wire(value: object) -> dict[str, Any]:
    """Return the JSON object of a recorded value: ``kind``, ``v``, then its fields."""
    kind = _KIND_OF[type(value)]
    shape = _SHAPES[kind]
    values = shape.values
    if values is None:
        values = _plan(shape)
    wire: dict[str, Any] = {"kind": kind, "v": shape.version}
    wire.update(zip(shape.members, values(value), strict=True))
    for member, default in shape.sparse.items():
        if wire[member] == default:
            del wire[member]
    for member, convert in shape.encode:
        if member in wire:
            wire[member] = convert(wire[member])
    return wire


def from_wire(wire: Mapping[str, Any]) -> Any:
    """Return the value that a wire object of the current version describes.

    Raises:
        ValueError: the kind or version is unknown.
        KeyError: a member is missing.
    """
    shape = _SHAPES.get(wire["kind"])
    if shape is None or wire["v"] != shape.version:
        raise ValueError(
            f"this release can't read {wire['kind']!r} of version {wire['v']}; use a newer release"
        )
    if shape.values is None:
        _plan(shape)
    if shape.sparse and not shape.sparse.keys() <= wire.keys():
        wire = {**shape.sparse, **wire}
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
    # At the first use: when a class is registered, its annotations may name classes that are not made yet.
    hints = get_type_hints(shape.cls)
    names = tuple(member.name for member in fields(shape.cls))
    shape.members = tuple(_name_member(name) for name in names)
    pairs = [(_name_member(name), *_find_converters(hints[name])) for name in names]
    shape.encode = [(member, encode) for member, encode, _ in pairs if encode is not None]
    shape.decode = [(member, decode) for member, _, decode in pairs]
    shape.sparse = {
        _name_member(member.name): member.default
        for member in fields(shape.cls)
        if member.metadata.get("sparse") is True
    }
    writers = [_make_writer(hints[name], encode) for name, (_, encode, _) in zip(names, pairs, strict=True)]
    if shape.shared:
        place = names.index(shape.shared)
        writers[place] = _remember(writers[place])
    _WRITERS[shape.cls] = _compose(shape, names, hints, writers)
    if len(names) == 1:
        only = attrgetter(*names)
        shape.values = lambda value: (only(value),)
    else:
        shape.values = attrgetter(*names)
    return shape.values


def _compose(
    shape: _Shape, names: Sequence[str], hints: Mapping[str, Any], writers: Sequence[Write]
) -> Write:
    """Return the function that writes a value; it is compiled once, like ``__init__`` of a dataclass."""
    fixed = f'{{{{"kind":"{_KIND_OF[shape.cls]}","v":{shape.version}'
    parts, known = [], dict[str, Any](_WORDS)
    for member, name, write in zip(shape.members, names, writers, strict=True):
        known[f"write_{name}"] = write
        text = _write_in_place(name, hints[name])
        if member in shape.sparse:
            known[f"default_{name}"], known[f"label_{name}"] = shape.sparse[member], f',"{member}":'
            parts.append(f"{{nothing if value.{name} == default_{name} else label_{name} + ({text})}}")
        else:
            parts.append(f',"{member}":{{{text}}}')
    source = f"lambda value: f'{fixed}{''.join(parts)}}}}}'"
    composed: Write = eval(source, known)  # noqa: S307 - kinds and names of our own classes, nothing else
    return composed


_WORDS: Final = {"nothing": "", "null": "null", "true": "true", "false": "false", "empty": "[]"}
"""Texts by the names that composed functions have for them."""


def _write_in_place(name: str, hint: Any) -> str:
    """Return the expression that writes a field; the most frequent values are written without a call.

    By the exact type: a subclass, such as a member of an enum, may have another text.
    """
    item, write = f"value.{name}", f"write_{name}(value.{name})"
    if hint is int:
        return f"repr({item}) if type({item}) is int else {write}"
    if hint is bool:
        return f"true if {item} is True else false if {item} is False else {write}"
    if get_origin(hint) in {Union, types.UnionType} and type(None) in get_args(hint):
        return f"null if {item} is None else {write}"
    if get_origin(hint) is tuple:
        return f"empty if {item} == () else {write}"
    return write


def _make_writer(hint: Any, encode: Convert | None) -> Write:
    """Return the function that writes a field's value; frequent types have a fast path."""
    if _is_text(hint):
        return quote
    if get_origin(hint) is tuple and (encode is list or _is_text(get_args(hint)[0])):
        return dump_json
    if hint in _MESSAGES:
        return methodcaller("to_json")
    if encode is None:
        return _write_any
    if isinstance(hint, type) and hint in _KIND_OF:
        return pack
    if _is_optional_fact(hint):
        return pack
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,) and get_args(hint)[0] in _KIND_OF:
        return lambda items: f"[{','.join(map(pack, items))}]"
    return lambda item: dump_json(encode(item))


def _remember(write: Write) -> Write:
    """Return a function that keeps the last text, for as long as it is asked for the same object."""
    last: tuple[Any, str] | None = None

    def write_again(item: Any) -> str:
        nonlocal last
        # One name for both, because another thread may write at the same time.
        known = last
        if known is None or known[0] is not item:
            known = last = item, write(item)
        return known[1]

    return write_again


def _is_text(hint: Any) -> bool:
    """Whether values are text, which may be that of an enum; its text is its value."""
    return hint is str or (isinstance(hint, type) and issubclass(hint, StrEnum))


def _is_optional_fact(hint: Any) -> bool:
    members = [member for member in get_args(hint) if member is not type(None)]
    return get_origin(hint) in {Union, types.UnionType} and len(members) == 1 and members[0] in _KIND_OF


def _write_any(item: Any) -> str:
    # By the exact type: a subclass, such as a member of an enum, may have another text.
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


def _name_member(name: str) -> str:
    """Return the member name of a field; ``kind`` and ``v`` stay reserved."""
    return f"{name}_" if name in _OWN_MEMBERS else name


def _find_converters(hint: Any) -> tuple[Convert | None, Convert | None]:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return _find_union_converters(hint)
    if origin is tuple:
        encode, decode = _find_converters(get_args(hint)[0])
        return _make_list_converter(encode), _make_tuple_converter(decode)
    if isinstance(origin, type) and issubclass(origin, SessionResult):
        return SessionResult.to_wire, SessionResult.from_wire
    if isinstance(hint, type):
        return _find_class_converters(hint)
    return None, None


def _find_union_converters(hint: Any) -> tuple[Convert | None, Convert | None]:
    members = [member for member in get_args(hint) if member is not type(None)]
    if members and all(member in _MESSAGES for member in members):
        encode: Convert | None = _encode_message
        decode: Convert | None = decode_message
    elif len(members) == 1:
        encode, decode = _find_converters(members[0])
    else:
        return None, None
    return _make_optional(encode), _make_optional(decode)


def _find_class_converters(hint: type[Any]) -> tuple[Convert | None, Convert | None]:
    if hint in _MESSAGES:
        return _encode_message, decode_message
    if hint in {Usage, Artifact, SessionResult}:
        return hint.to_wire, hint.from_wire
    if hint is ToolCall:
        return ToolCall.to_wire, call_from_wire
    if hint is ImageContent:
        return _encode_image, lambda wire: ImageContent(wire["data"], wire["mimeType"])
    if hint is TextContent:
        raise TypeError("record the message, not its TextContent")
    if issubclass(hint, BaseModel):
        return lambda model: model.model_dump(mode="json"), hint.model_validate
    if issubclass(hint, Enum):
        return attrgetter("value"), hint
    if hint is Recorded or hint in _KIND_OF:
        return to_wire, from_wire
    return None, None


def _encode_message(message: Message) -> dict[str, Any]:
    return message.to_wire()


def _encode_image(image: ImageContent) -> dict[str, Any]:
    return {"type": "image", "data": image.data, "mimeType": image.mime_type}


def _make_optional(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda item: None if item is None else convert(item)


def _make_list_converter(convert: Convert | None) -> Convert:
    if convert is None:
        return list
    return lambda items: list(map(convert, items))


def _make_tuple_converter(convert: Convert | None) -> Convert:
    if convert is None:
        return tuple
    return lambda items: tuple(map(convert, items))


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
"""How a tool call ended, as the journal records it."""
