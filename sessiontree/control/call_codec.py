"""Calls and their answers as JSON, derived from the types that an interface declares.

A peer is not trusted. An argument that is missing, unknown, of another type or out of bounds is refused, and
the refusal names it. :mod:`sessiontree.runtime.transport.rpc` documents the marked parameters.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.values.messages import ToolResultMessage, decode_message
from sessiontree.runtime.transport.rpc import (
    AtMost,
    NotBlank,
    OneOf,
    PeerDefault,
    PeerName,
    ProgramOnly,
    RpcMethod,
    Without,
)

Encode: TypeAlias = Callable[[Any], Any]
Decode: TypeAlias = Callable[[Any], Any]
STREAMED = "streamed"
"""Metadata of the dataclass field that holds most of an answer: a sequence of JSON values."""


@dataclass(frozen=True, slots=True)
class SocketAnswer:
    """An answer: one value, and items that may be sent in parts before it."""

    value: Any = None
    items: Iterable[Any] = ()


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """Converts values of one type to JSON and back.

    ``decode`` raises TypeError, ValueError or KeyError if the JSON does not have the type.
    """

    encode: Encode
    decode: Decode


@dataclass(frozen=True, slots=True)
class _Argument:
    codec: ValueCodec | None
    """None = peers can't set it."""
    is_peer_name: bool = False
    default: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class _CallCodec:
    arguments: Mapping[str, _Argument]
    split: Callable[[Any], SocketAnswer]
    joined: Callable[[SocketAnswer], Any]


def encode_arguments(method: RpcMethod, given: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, for a peer that sends them.

    Raises:
        ConfigError: only the creating program may set one of them.
    """
    wire = {}
    for (name, argument), value in zip(_call_codec(method).arguments.items(), given, strict=False):
        if argument.codec is not None:
            wire[name] = argument.codec.encode(value)
        elif not argument.is_peer_name and value != argument.default:
            raise ConfigError(f"{name} of {method.name} can't be given from another process")
    return wire


def decode_arguments(method: RpcMethod, wire: Mapping[str, Any], peer: str) -> list[Any]:
    """Return the arguments of a call in order.

    Args:
        method: The method that is called.
        wire: The arguments by name, as the peer sent them.
        peer: The peer's name.

    Raises:
        ConfigError: an argument is not valid; the message names it.
    """
    arguments = _call_codec(method).arguments
    open_to_peers = [name for name, argument in arguments.items() if argument.codec is not None]
    for name in wire:
        if name not in open_to_peers:
            takes = ", ".join(open_to_peers)
            raise ConfigError(f"{name[:80]!r} can't be given to {method.name}; it takes {takes or 'nothing'}")
    return [_decode_argument(name, argument, wire, peer) for name, argument in arguments.items()]


def _decode_argument(name: str, argument: _Argument, wire: Mapping[str, Any], peer: str) -> Any:
    if argument.is_peer_name:
        return peer
    if argument.codec is None or (name not in wire and argument.default is not inspect.Parameter.empty):
        return argument.default
    try:
        return argument.codec.decode(wire.get(name))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{name} {_describe_error(error)}") from error


def answer_to_wire(method: RpcMethod, value: Any) -> SocketAnswer:
    """Return an answer as JSON; a long sequence in it is encoded item by item, as the items are taken."""
    return _call_codec(method).split(value)


def answer_from_wire(method: RpcMethod, answer: SocketAnswer) -> Any:
    """Return the value of an answer.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is not of the declared type.
    """
    return _call_codec(method).joined(answer)


@cache
def _call_codec(method: RpcMethod) -> _CallCodec:
    hints = get_type_hints(method.function, include_extras=True)
    arguments = {name: _declare(hints[name], each.default) for name, each in method.parameters.items()}
    answer = hints["return"]
    if get_origin(answer) in {list, tuple} and get_args(answer)[1:] in {(), (Ellipsis,)}:
        item, made = make_codec(get_args(answer)[0]), get_origin(answer)
        return _CallCodec(
            arguments,
            lambda value: SocketAnswer(items=map(item.encode, value)),
            lambda heard: made(map(item.decode, heard.items)),
        )
    streamed = [each for each in fields(answer) if STREAMED in each.metadata] if is_dataclass(answer) else []
    if streamed:
        return _make_streamed_codec(arguments, answer, streamed[0].name)
    whole = make_codec(answer)
    return _CallCodec(
        arguments,
        lambda value: SocketAnswer(whole.encode(value)),
        lambda heard: whole.decode(heard.value),
    )


def _make_streamed_codec(arguments: Mapping[str, _Argument], answer: Any, name: str) -> _CallCodec:
    """Return the codec of a dataclass whose longest field is sent before the other fields."""
    members = {each: member for each, member in _collect_members(answer).items() if each != name}

    def split(value: Any) -> SocketAnswer:
        rest = {each: member.encode(getattr(value, each)) for each, member in members.items()}
        return SocketAnswer(rest, getattr(value, name))

    def joined(heard: SocketAnswer) -> Any:
        rest = {each: members[each].decode(wire) for each, wire in heard.value.items()}
        return answer(**rest, **{name: tuple(heard.items)})

    return _CallCodec(arguments, split, joined)


def _declare(hint: Any, default: Any) -> _Argument:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if PeerName in marks:
        return _Argument(None, is_peer_name=True)
    if ProgramOnly in marks:
        return _Argument(None, default=default)
    for mark in marks:
        if isinstance(mark, PeerDefault):
            default = mark.value
    return _Argument(make_codec(hint), default=default)


@cache
def make_codec(hint: Any) -> ValueCodec:
    """Return the codec of a type.

    Raises:
        TypeError: values of the type can't be sent.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        return _make_bounded_codec(*get_args(hint))
    if hint in _PLAIN:
        return ValueCodec(_keep_same, _PLAIN[hint])
    if hint is Any or _is_json(hint):
        return ValueCodec(_keep_same, _keep_same)
    if origin in {Union, types.UnionType}:
        return _make_optional(hint)
    if origin is Literal:
        return ValueCodec(_keep_same, _make_choice_decoder(get_args(hint)))
    if origin in {list, tuple}:
        return _make_list_codec(hint)
    if origin in {dict, Mapping}:
        return _make_mapping_codec(make_codec(get_args(hint)[1]))
    return _make_class_codec(origin or hint)


def _keep_same(value: Any) -> Any:
    return value


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be text, not {_shorten(value)}")
    return value


def _check_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {_shorten(value)}")
    return value


def _check_integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"must be a whole number, not {_shorten(value)}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"must be a number, not {_shorten(value)}")
    return value


def _check_null(value: Any) -> None:
    if value is not None:
        raise TypeError(f"must be null, not {_shorten(value)}")


_PLAIN: Mapping[Any, Decode] = {
    str: _check_text,
    bool: _check_boolean,
    int: _check_integer,
    float: _number,
    None: _check_null,
    type(None): _check_null,
}


def _is_json(hint: Any) -> bool:
    members = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else ()
    return {list, dict} <= {get_origin(member) for member in members}


def _make_optional(hint: Any) -> ValueCodec:
    members = [member for member in get_args(hint) if member is not type(None)]
    if len(members) != 1:
        raise TypeError(f"values of {hint} can't travel through the control socket")
    one = make_codec(members[0])
    return ValueCodec(
        lambda value: None if value is None else one.encode(value),
        lambda wire: None if wire is None else one.decode(wire),
    )


def _make_choice_decoder(known: Sequence[Any]) -> Decode:
    def decode(wire: Any) -> Any:
        if not isinstance(wire, str | int) or wire not in known:
            raise ValueError(f"{_shorten(wire)} is not one of {', '.join(map(str, known))}")
        return wire

    return decode


def _make_list_codec(hint: Any) -> ValueCodec:
    made, (item, *more) = get_origin(hint), get_args(hint)
    if more not in ([], [Ellipsis]):
        raise TypeError(f"values of {hint} can't travel through the control socket")
    one = make_codec(item)

    def decode(wire: Any) -> Any:
        if not isinstance(wire, list):
            raise TypeError(f"must be a list, not {_shorten(wire)}")
        return made(map(one.decode, wire))

    return ValueCodec(lambda value: list(map(one.encode, value)), decode)


def _make_mapping_codec(one: ValueCodec) -> ValueCodec:
    def decode(wire: Any) -> Any:
        return {name: one.decode(value) for name, value in _check_object(wire).items()}

    return ValueCodec(lambda value: {name: one.encode(each) for name, each in value.items()}, decode)


def _check_object(wire: Any) -> Mapping[str, Any]:
    if not isinstance(wire, dict):
        raise TypeError(f"must be an object, not {_shorten(wire)}")
    return wire


def _make_class_codec(cls: Any) -> ValueCodec:
    if cls is ToolResultMessage:
        return ValueCodec(ToolResultMessage.to_wire, _decode_tool_result)
    if issubclass(cls, Enum):
        known = _make_choice_decoder([member.value for member in cls])
        return ValueCodec(lambda member: member.value, lambda wire: cls(known(wire)))
    if issubclass(cls, BaseModel):
        return ValueCodec(lambda model: model.model_dump(mode="json"), cls.model_validate)
    if cls in codec.list_recorded_classes():
        return ValueCodec(codec.to_wire, lambda wire: _decode_recorded(cls, wire))
    if hasattr(cls, "to_wire") and hasattr(cls, "from_wire"):
        return ValueCodec(cls.to_wire, lambda wire: cls.from_wire(_check_object(wire)))
    if is_dataclass(cls) or hasattr(cls, "_fields"):
        return _make_members_codec(cls, _collect_members(cls))
    raise TypeError(f"values of {cls} can't travel through the control socket")


def _decode_tool_result(wire: Any) -> ToolResultMessage:
    message = decode_message(_check_object(wire))
    if not isinstance(message, ToolResultMessage):
        raise TypeError("must be a tool result, and is another message")
    return message


def _decode_recorded(cls: Any, wire: Any) -> Any:
    value = codec.from_wire(_check_object(wire))
    if not isinstance(value, cls):
        raise TypeError(f"must be recorded as {cls.__name__}")
    return value


def _collect_members(cls: Any) -> dict[str, ValueCodec]:
    names = [each.name for each in fields(cls)] if is_dataclass(cls) else list(cls._fields)
    hints = get_type_hints(cls, include_extras=True)
    return {name: make_codec(hints[name]) for name in names}


def _make_members_codec(cls: Any, members: Mapping[str, ValueCodec]) -> ValueCodec:
    def encode(value: Any) -> dict[str, Any]:
        return {name: member.encode(getattr(value, name)) for name, member in members.items()}

    def decode(wire: Any) -> Any:
        for name in _check_object(wire):
            if name not in members:
                raise ValueError(f"has no member {_shorten(name)}")
        return cls(**{name: members[name].decode(value) for name, value in wire.items()})

    return ValueCodec(encode, decode)


def _make_bounded_codec(hint: Any, *marks: Any) -> ValueCodec:
    """Return the codec of a marked type; the marks bound what a peer may send."""
    if any(isinstance(mark, Without) for mark in marks):
        hidden = {name for mark in marks if isinstance(mark, Without) for name in mark.fields}
        members = {name: each for name, each in _collect_members(hint).items() if name not in hidden}
        return _make_closed_codec(hint, members, hidden)
    plain = make_codec(hint)

    def decode(wire: Any) -> Any:
        value = plain.decode(wire)
        for mark in marks:
            _check(mark, value)
        return value

    return ValueCodec(plain.encode, decode)


def _make_closed_codec(cls: Any, members: Mapping[str, ValueCodec], hidden: Iterable[str]) -> ValueCodec:
    defaults = {each.name: each.default for each in fields(cls) if each.default is not MISSING}
    open_members = _make_members_codec(cls, members)

    def encode(value: Any) -> dict[str, Any]:
        for name in hidden:
            if getattr(value, name) != defaults[name]:
                raise ConfigError(f"{name} of {cls.__name__} can't be given from another process")
        encoded: dict[str, Any] = open_members.encode(value)
        return encoded

    return ValueCodec(encode, open_members.decode)


def _check(mark: Any, value: Any) -> None:
    match mark:
        case AtMost(bound=bound):
            if not math.isfinite(value) or not 0 <= value <= bound:
                raise ValueError(f"must be a number from 0 to {bound}, not {_shorten(value)}")
        case OneOf(values=allowed):
            if value not in allowed:
                raise ValueError(f"{_shorten(str(value))} is not one of {', '.join(map(str, allowed))}")
        case _ if mark is NotBlank:
            if not value.strip():
                raise ValueError("must be text that is not blank")


def _describe_error(error: Exception) -> str:
    return f"has no member {error}" if isinstance(error, KeyError) else str(error)


def _shorten(value: object) -> str:
    return repr(value)[:80]
