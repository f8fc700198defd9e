"""JSON pointers: making one, reading one, and following one.

A pointer is ``""``, the whole value, or begins with ``/``. Inside a name ``~1`` is a slash, ``~0`` a tilde.
The place in a list is written in ASCII digits without leading zeros.
Source: RFC 6901.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sessiontree.contracts.values.jsonable import JsonValue

_BAD_TILDE: Final = re.compile(r"~(?![01])")
_INDEX: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_MAX_DIGITS: Final = 18
"""No list has as many items as a longer number."""


def make_json_pointer(*parts: str | int) -> str:
    """Return the pointer for keys and indexes, outermost first; without any it is ``""``, the whole value."""
    # The tilde first, or the one in `~1` would be escaped too.
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def split_pointer(pointer: str) -> tuple[str, ...]:
    """Return the names and indexes of a pointer, outermost first.

    Raises:
        ValueError: it is not empty and does not begin with ``/``, or a ``~`` is not ``~0`` or ``~1``.
    """
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(
            f"{pointer!r} is not a JSON pointer: it begins with a slash; did you mean {'/' + pointer!r}?"
        )
    if _BAD_TILDE.search(pointer):
        raise ValueError(
            f"{pointer!r} is not a JSON pointer: write ~0 for a tilde and ~1 for a slash in a name"
        )
    return tuple(unescape(part) for part in pointer[1:].split("/"))


def unescape(part: str) -> str:
    """Return one part of a pointer as the name that it stands for."""
    # In this order: `~01` is `~1` and not a slash.
    return part.replace("~1", "/").replace("~0", "~")


def parse_index(part: str) -> int | None:
    """Return the place in a list that a part of a pointer stands for, or None."""
    return int(part) if len(part) <= _MAX_DIGITS and _INDEX.fullmatch(part) else None


class LeadsNowhere(LookupError):
    """A pointer leads to no value."""


def find_value(value: JsonValue, parts: Sequence[str]) -> JsonValue:
    """Return the value to which a pointer's parts lead.

    Raises:
        LeadsNowhere: they lead to no value.
    """
    for part in parts:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and (index := parse_index(part)) is not None and index < len(value):
            value = value[index]
        else:
            raise LeadsNowhere
    return value
