"""Calls and their answers as JSON: written by their classes, read by the types that an interface declares.

A peer is not trusted. An argument that is missing, unknown, of another type or out of bounds is refused, and
the refusal names it. :mod:`sessiontree.runtime.transport.rpc` documents the marked parameters.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Strict,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from typing_extensions import TypedDict

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.values.jsonable import make_encoder
from sessiontree.contracts.values.messages import decode_message
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.transport.rpc import PeerDefault, PeerName, ProgramOnly, RpcMethod, Without

Convert: TypeAlias = Callable[[Any], Any]
STREAMED: Final = "streamed"
"""Metadata of the dataclass field that holds most of an answer: a sequence of JSON values."""


@dataclass(frozen=True, slots=True)
class SocketAnswer:
    """An answer: one value, and items that may be sent in parts before it. :func:`dump_wire` writes both."""

    value: Any = None
    items: Iterable[Any] = ()


@dataclass(frozen=True, slots=True)
class _Argument:
    decode: Convert | None
    """None = peers can't set it."""
    is_peer_name: bool = False
    default: Any = inspect.Parameter.empty
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Fields of it that peers can't set, with their defaults."""


@dataclass(frozen=True, slots=True)
class _CallCodec:
    arguments: Mapping[str, _Argument]
    split: Callable[[Any], SocketAnswer]
    join: Callable[[SocketAnswer], Any]


def encode_arguments(method: RpcMethod, given: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, for a peer that sends them. :func:`dump_wire` writes them.

    Raises:
        ConfigError: only the creating program may set one of them.
    """
    wire = {}
    for (name, argument), value in zip(_call_codec(method).arguments.items(), given, strict=False):
        if argument.decode is not None:
            wire[name] = _hide_fields(value, argument.hidden) if argument.hidden else value
        elif not argument.is_peer_name and value != argument.default:
            raise ConfigError(f"{name} of {method.name} can't be given from another process")
    return wire


def _hide_fields(value: Any, hidden: Mapping[str, Any]) -> dict[str, Any]:
    wire: dict[str, Any] = encode_object(value)
    for name, default in hidden.items():
        if wire.pop(name) != default:
            raise ConfigError(f"{name} of {type(value).__name__} can't be given from another process")
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
    open_to_peers = [name for name, argument in arguments.items() if argument.decode is not None]
    for name in wire:
        if name not in open_to_peers:
            takes = ", ".join(open_to_peers)
            raise ConfigError(f"{name[:80]!r} can't be given to {method.name}; it takes {takes or 'nothing'}")
    return [_decode_argument(name, argument, wire, peer) for name, argument in arguments.items()]


def _decode_argument(name: str, argument: _Argument, wire: Mapping[str, Any], peer: str) -> Any:
    if argument.is_peer_name:
        return peer
    if argument.decode is None or (name not in wire and argument.default is not inspect.Parameter.empty):
        return argument.default
    try:
        return argument.decode(wire.get(name))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"has no member {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"{name} {said}") from error


def answer_to_wire(method: RpcMethod, value: Any) -> SocketAnswer:
    """Return an answer as it is sent: a long sequence in it becomes items."""
    return _call_codec(method).split(value)


def answer_from_wire(method: RpcMethod, answer: SocketAnswer) -> Any:
    """Return the value of an answer.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is not of the declared type.
    """
    return _call_codec(method).join(answer)


@cache
def _call_codec(method: RpcMethod) -> _CallCodec:
    hints = get_type_hints(method.function, include_extras=True)
    arguments = {name: _declare(hints[name], each.default) for name, each in method.parameters.items()}
    answer, decode = hints["return"], make_decoder(hints["return"])
    if get_origin(answer) in {list, tuple}:
        # The encoder would write a named tuple as a list.
        to_object = getattr(get_args(answer)[0], "_asdict", None)
        return _CallCodec(
            arguments,
            lambda value: SocketAnswer(items=map(to_object, value) if to_object else value),
            lambda heard: decode(heard.items),
        )
    for each in fields(answer) if is_dataclass(answer) else ():
        if STREAMED in each.metadata:
            return _make_streamed_codec(arguments, decode, each.name)
    return _CallCodec(arguments, SocketAnswer, lambda heard: decode(heard.value))


def _make_streamed_codec(arguments: Mapping[str, _Argument], decode: Convert, name: str) -> _CallCodec:
    """Return the codec of a dataclass whose longest field is sent before the other fields."""

    def split(value: Any) -> SocketAnswer:
        wire = encode_object(value)
        items = wire.pop(name)
        return SocketAnswer(wire, items)

    return _CallCodec(arguments, split, lambda heard: decode({**heard.value, name: heard.items}))


def _declare(hint: Any, default: Any) -> _Argument:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    if PeerName in marks:
        return _Argument(None, is_peer_name=True)
    if ProgramOnly in marks:
        return _Argument(None, default=default)
    hidden: dict[str, Any] = {}
    for mark in marks:
        if isinstance(mark, PeerDefault):
            default = mark.value
        elif isinstance(mark, Without):
            members = fields(get_args(hint)[0])
            hidden = {each.name: each.default for each in members if each.name in mark.fields}
    return _Argument(make_decoder(hint), default=default, hidden=hidden)


def encode_object(value: Any) -> Any:
    """Return the JSON object of a value, whose members may have to be encoded, too.

    Raises:
        TypeError: the value has no JSON form.
    """
    cls: Any = type(value)
    return _find_encoder(cls)(value)


_pieces = make_encoder(encode_object)


def dump_wire(value: object) -> str:
    """Return arguments or an answer as compact ASCII JSON.

    Raises:
        ValueError, TypeError, RecursionError: it has no JSON form.
    """
    return "".join(_pieces(value, 0))


@cache
def _find_encoder(cls: Any) -> Convert:
    if cls in codec.list_recorded_classes():
        return codec.to_wire
    if hasattr(cls, "to_wire"):
        return cast("Convert", cls.to_wire)
    if issubclass(cls, BaseModel):
        return lambda model: model.model_dump(mode="json")
    if issubclass(cls, Mapping):
        return dict
    if is_dataclass(cls):
        names = [each.name for each in fields(cls)]
        return lambda value: {name: getattr(value, name) for name in names}
    raise TypeError(f"a value of {cls.__name__} has no JSON form")


@cache
def make_decoder(hint: Any) -> Convert:
    """Return the function that makes values of a type from JSON.

    It raises AttributeError, KeyError, TypeError or ValueError if the JSON does not have the type.
    """
    validate = TypeAdapter(_make_type(hint)).validator.validate_python

    def decode(wire: Any) -> Any:
        try:
            return validate(wire)
        except ValidationError as error:
            raise ValueError(_describe_fault(error)) from None

    return decode


_KINDS: Final = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "none_required": "null",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
}
"""What a value must be, by pydantic's name of the fault."""


def _describe_fault(error: ValidationError) -> str:
    """Return what the first fault is, and where it is within the value."""
    fault = error.errors(include_url=False)[0]
    kind, place, context = fault["type"], fault["loc"], fault.get("ctx", {})
    given = repr(fault["input"])[:80]
    if kind in _KINDS:
        said = f"must be {_KINDS[kind]}, not {given}"
    elif kind in {"enum", "literal_error"}:
        said = f"{given} is not one of {context['expected']}"
    elif kind == "extra_forbidden":
        said, place = f"has no member {place[-1]!r:.80}", place[:-1]
    else:
        said = str(context.get("error", fault["msg"]))
    return f"{said} (at {'.'.join(map(str, place))})" if place else said


def _keep_number(number: Any, check: Convert) -> Any:
    check(number)
    return number


_PLAIN: Final[Mapping[Any, Any]] = {
    str: Annotated[str, Strict()],
    bool: Annotated[bool, Strict()],
    int: Annotated[int, Strict()],
    # Where 3 is allowed, it does not become 3.0, which people would be shown.
    float: Annotated[float, Strict(), WrapValidator(_keep_number)],
}


def _make_type(hint: Any) -> Any:
    """Return the type for pydantic: the same values, made from JSON alone and without conversions."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        value, *marks = parts
        hidden = {name for mark in marks if isinstance(mark, Without) for name in mark.fields}
        return Annotated[(_make_members_type(value, hidden) if hidden else _make_type(value), *marks)]
    if origin in {Union, types.UnionType}:
        is_json = {list, dict} <= {get_origin(part) for part in parts}
        return Any if is_json else Union[tuple(map(_make_type, parts))]  # noqa: UP007 - of a tuple
    if origin in {list, tuple, Mapping}:
        return (dict if origin is Mapping else origin)[tuple(map(_make_type, parts))]
    cls = origin or hint
    if isinstance(cls, type) and not issubclass(cls, Enum | BaseModel):
        if cls in codec.list_recorded_classes():
            return _make_read_type(cls, codec.from_wire)
        if hasattr(cls, "to_wire"):
            return _make_read_type(cls, getattr(cls, "from_wire", decode_message))
        if is_dataclass(cls) or hasattr(cls, "_fields"):
            return _make_members_type(cls)
    return hint


def _make_read_type(cls: type, read: Convert) -> Any:
    """Return the type of values that have a JSON form of their own."""

    def decode(wire: Any) -> Any:
        value = read(wire)
        if not isinstance(value, cls):
            raise TypeError(f"must be a {cls.__name__}, and is a {type(value).__name__}")
        return value

    return Annotated[dict[str, Any], AfterValidator(decode)]


def _make_members_type(cls: Any, hidden: Collection[str] = ()) -> Any:
    """Return the type of a dataclass or of a named tuple, which is made from an object of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    members = {name: _make_type(hint) for name, hint in hints.items() if name not in hidden}
    # Not total: the class says what is missing.
    made = cast("Any", TypedDict)(cls.__name__, members, total=False)
    made.__pydantic_config__ = ConfigDict(extra="forbid")
    return Annotated[made, AfterValidator(lambda members: cls(**members))]
