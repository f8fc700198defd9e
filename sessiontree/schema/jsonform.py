"""Values as pure JSON: what came from a model, a hook or a program, copied and checked."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from sessiontree.contracts.jsonable import JsonValue

MAX_DEPTH = 128
"""Deepest nesting of lists and objects that is taken."""
LARGEST_NUMBER = int(sys.float_info.max)
"""Whole numbers beyond this, either way, compare with no float and have no short spelling."""


class NotJson(ValueError):
    """A value has no JSON form.

    Args:
        reason: What is wrong, as ``is bytes, which JSON has no word for``.
        path: Keys and indexes from the value looked at down to the place, outermost last.
    """

    def __init__(self, reason: str, path: list[str | int]) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path


def json_form(value: object, depth: int = 0) -> JsonValue:
    """Return a copy made of dict, list, str, int, float, bool and None alone.

    Tuples become lists, other mappings dicts, and strings and numbers of a subclass plain ones.

    Args:
        value: What to copy.
        depth: Levels above the value.

    Raises:
        NotJson: a key is no text, a number is not finite or beyond every float, a string holds half a
            surrogate pair, nesting is deeper than :data:`MAX_DEPTH`, or a value is of another kind.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if depth >= MAX_DEPTH:
            raise NotJson(f"is nested more than {MAX_DEPTH} levels deep", [])
        return _members(value, depth) if kind is dict else _items(value, depth)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return json_form(dict(value), depth)
    if isinstance(value, list | tuple):
        return json_form(list(value), depth)
    raise NotJson(f"is {_article(kind.__name__)}, which JSON has no word for", [])


# Most members are plain text, which these two take without a call: copying is part of every tool call.


def _members(value: Any, depth: int) -> dict[str, JsonValue]:
    return {
        key if type(key) is str and key.isascii() else _key(key): (
            item if type(item) is str and item.isascii() else _item(item, key, depth)
        )
        for key, item in value.items()
    }


def _items(value: Any, depth: int) -> list[JsonValue]:
    return [
        item if type(item) is str and item.isascii() else _item(item, index, depth)
        for index, item in enumerate(value)
    ]


def _item(item: object, place: str | int, depth: int) -> JsonValue:
    try:
        return json_form(item, depth + 1)
    except NotJson as error:
        error.path.append(place)
        raise


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotJson(f"has a key that is {_article(type(key).__name__)}; JSON keys are text", [])
    return _text(key)


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotJson("holds half of a surrogate pair, which is no character", []) from None
    return str.__str__(text)


def _number(number: float) -> int | float:
    if isinstance(number, int):
        if not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
            raise NotJson("is a whole number too large to compute with", [])
        return int.__int__(number)
    if not math.isfinite(number):
        raise NotJson(f"is {number}, which is no JSON number", [])
    return float.__float__(number)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def type_of(value: JsonValue) -> str:
    """Return a value's type, whole numbers as ``number``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
