"""Values as pure JSON: a checked copy of what a model, a hook or a program returned."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from sessiontree.contracts.values.jsonable import JsonValue

MAX_DEPTH = 128
"""Maximum accepted nesting of lists and objects."""
LARGEST_NUMBER = int(sys.float_info.max)
"""Whole numbers beyond this, positive or negative, compare with no float and have no short spelling."""


class NotJson(ValueError):
    """A value has no JSON form.

    Args:
        reason: What is wrong, such as ``is bytes, which JSON can't represent``.
        path: Keys and indexes from the examined value down to the place, outermost last.
    """

    def __init__(self, reason: str, path: list[str | int]) -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path


def to_json_form(value: object, depth: int = 0) -> JsonValue:
    """Return a copy made only of dict, list, str, int, float, bool and None.

    Tuples become lists, other mappings become dicts, and instances of subclasses of str and numbers become
    plain ones.

    Args:
        value: The value to copy.
        depth: Levels above the value.

    Raises:
        NotJson: a key is not text, a number is not finite or beyond every float, a string holds half a
            surrogate pair, nesting is deeper than :data:`MAX_DEPTH`, or a value is of another kind.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if depth >= MAX_DEPTH:
            raise NotJson(f"is nested more than {MAX_DEPTH} levels deep", [])
        return _convert_members(value, depth) if kind is dict else _convert_items(value, depth)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _check_text(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return to_json_form(dict(value), depth)
    if isinstance(value, list | tuple):
        return to_json_form(list(value), depth)
    raise NotJson(f"is {_add_article(kind.__name__)}, which JSON can't represent", [])


# Most members are plain text, which the next two functions copy without a call: every tool call copies.


def _convert_members(value: Any, depth: int) -> dict[str, JsonValue]:
    return {
        key if type(key) is str and key.isascii() else _convert_key(key): (
            item if type(item) is str and item.isascii() else _convert_item(item, key, depth)
        )
        for key, item in value.items()
    }


def _convert_items(value: Any, depth: int) -> list[JsonValue]:
    return [
        item if type(item) is str and item.isascii() else _convert_item(item, index, depth)
        for index, item in enumerate(value)
    ]


def _convert_item(item: object, place: str | int, depth: int) -> JsonValue:
    try:
        return to_json_form(item, depth + 1)
    except NotJson as error:
        error.path.append(place)
        raise


def _convert_key(key: object) -> str:
    if not isinstance(key, str):
        raise NotJson(f"has a key that is {_add_article(type(key).__name__)}; JSON keys are text", [])
    return _check_text(key)


def _check_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotJson("holds half of a surrogate pair, which is not a character", []) from None
    # A subclass may override its methods; the copy is a plain text whatever they do.
    return str.__str__(text)


def _number(number: float) -> int | float:
    if isinstance(number, int):
        if not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
            # Digits without a bound would make each comparison and each spelling of the number slow.
            raise NotJson("is a whole number that is too large to process", [])
        return int.__int__(number)
    if not math.isfinite(number):
        raise NotJson(f"is {number}, which is not a JSON number", [])
    return float.__float__(number)


def _add_article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def name_json_type(value: JsonValue) -> str:
    """Return a value's JSON type; whole numbers are ``number``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
