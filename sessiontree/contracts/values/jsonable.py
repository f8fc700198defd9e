"""JSON values: their type, their canonical text, and the digest that binds approvals."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""Any value that JSON can hold."""

MAX_INT_BITS: Final = 13_287
"""Whole numbers of at most so many bits have at most 4,000 digits; Python writes and reads 4,300."""
MAX_NESTING: Final = 300
"""Deepest nesting that :func:`parse_json` reads; what walks over a value has 1,000 frames, some a level."""
_COMPACT = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_READABLE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)


def make_encoder(default: Callable[[Any], Any]) -> Callable[[object, int], Iterable[str]]:
    """Return a function that yields compact ASCII JSON in pieces: the standard library's encoder, reused.

    Args:
        default: Returns what stands for a value that JSON does not know, or raises TypeError.
    """
    # Called directly, because `JSONEncoder` makes such a function again for each value.
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=default)
        return lambda value, _: encoder.iterencode(value)
    encode: Callable[[object, int], Iterable[str]] = make(
        None, default, encode_basestring_ascii, None, ":", ",", False, False, False
    )
    return encode


_pieces = make_encoder(_COMPACT.default)


def dump_json(value: object) -> str:
    """Return compact ASCII JSON; lone surrogates survive as escapes.

    Raises:
        ValueError: a float is not finite, so it has no JSON form.
        TypeError: a value has no JSON form.
        RecursionError: the value is nested too deeply or contains itself.
    """
    return "".join(_pieces(value, 0))


quote: Callable[[str], str] = encode_basestring_ascii
"""Returns a text as an ASCII JSON string; raises TypeError if the argument is not text."""


def dump_readable(value: object) -> str:
    """Return compact JSON for a model to read; non-ASCII letters are not escaped."""
    return _READABLE.encode(value)


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text that somebody else wrote.

    Half a surrogate pair that an escape spells is kept: whether it is text, the caller decides.

    Raises:
        ValueError: it is not JSON, has a number that is not finite or too long, or is nested too deeply.
    """
    try:
        value = json.loads(text, parse_float=_parse_finite, parse_constant=_parse_finite)
    except RecursionError:
        raise _make_nesting_error() from None
    if _count_brackets(text) > MAX_NESTING:  # else it needs no look
        _check_nesting(value)
    return value


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:20]} is not a number that JSON has")
    return value


def _count_brackets(text: str | bytes | bytearray) -> int:
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _check_nesting(value: Any) -> None:
    left = [(value, 1)] if isinstance(value, dict | list) else []
    while left:
        outer, depth = left.pop()
        for inner in outer.values() if isinstance(outer, dict) else outer:
            if isinstance(inner, dict | list):
                if depth >= MAX_NESTING:
                    raise _make_nesting_error()
                left.append((inner, depth + 1))


def _make_nesting_error() -> ValueError:
    return ValueError(f"it is nested more than {MAX_NESTING} levels deep")


def compute_digest(tool: str, arguments: Mapping[str, object], place: str = "") -> str:
    """Return the SHA-256 (hex) that identifies a call: tool, final arguments with sorted keys, and place."""
    # As a list, so that no text can move from one part into the next.
    text = _CANONICAL.encode([tool, arguments, place])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


_PLAIN: Final = frozenset({str, bool, type(None)})
"""Types whose values have a JSON form whatever they are."""
_SMALL: Final = 2**63


def to_json_value(value: object) -> JsonValue:
    """Return the closest value that has a JSON form.

    Tuples and other sequences become lists, keys become text, whole numbers of more than 4,000 digits become
    their hexadecimal text, floats that are not finite become their
    name (``"NaN"``), bytes and unknown objects become their ``repr``. Never raises for acyclic input.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        # Beyond some thousand digits Python refuses to write a whole number in decimal digits.
        return value if value.bit_length() <= MAX_INT_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    # Most members are text, small numbers or nothing. Those are taken here: a call for each would be most of
    # the work.
    if isinstance(value, Mapping):
        return {
            str(key): item
            if type(item) in _PLAIN or (type(item) is int and -_SMALL < item < _SMALL)
            else to_json_value(item)
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [
            item
            if type(item) in _PLAIN or (type(item) is int and -_SMALL < item < _SMALL)
            else to_json_value(item)
            for item in value
        ]
    if isinstance(value, set | frozenset):
        # A set has no order; without one, equal results would differ.
        return sorted((to_json_value(item) for item in value), key=repr)
    return repr(value)
