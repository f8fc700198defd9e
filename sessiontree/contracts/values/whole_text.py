"""Text as every encoder takes it: halves of a surrogate pair are joined, and a lone half is U+FFFD.

A lone half is not a character, and UTF-8 has no form of it. It comes from JSON that was cut in the middle of
an emoji, and from file names that are not UTF-8. The journal keeps it; what is sent elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Mapping

from sessiontree.contracts.values.jsonable import JsonValue


def join_halves(text: str) -> str:
    """Return a text with the two halves of each surrogate pair joined; lone halves are kept."""
    if _is_whole(text):
        return text
    # In UTF-16 two halves that follow each other are the character.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def repair_text(text: str) -> str:
    """Return a text that UTF-8 can encode; the same object if it already is one."""
    if _is_whole(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def repair_value(value: JsonValue) -> JsonValue:
    """Return a JSON value whose texts and keys are whole; the same object if they already are.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, list | tuple):
        items = [repair_value(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, Mapping):
        found = repair_object(value)
        return value if found is value else dict(found)
    return value


def repair_object(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return an object whose texts and keys are whole; the same one if they already are.

    Two keys that would become one are kept distinct by further U+FFFD.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    members: dict[str, JsonValue] = {}
    is_same = True
    for key, item in value.items():
        name, new = repair_text(key), repair_value(item)
        while name is not key and (name in members or name in value):
            name += "\ufffd"
        is_same = is_same and name is key and new is item
        members[name] = new
    return value if is_same else members


def _is_whole(text: str) -> bool:
    # Known without a look at the characters, and true of most texts.
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
