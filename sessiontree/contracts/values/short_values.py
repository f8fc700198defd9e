"""Values shortened for a screen: what a running call reports, cut to what a watcher can read.

Source: seed 000, section 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.truncation import cut_text

SHOWN_CHARS: Final = 8_000
"""Maximum characters of a result on a screen."""


_NODE: Final = 8
"""Size that a value counts in addition to its text, in characters."""


_MAX_BITS: Final = 4_096
"""Integers with more bits can't be written as JSON."""


_MAX_DEPTH: Final = 50


def shorten_progress(progress: object, most_chars: int = SHOWN_CHARS) -> JsonValue:
    """Return the progress of a running call as a JSON value of at most about ``most_chars`` characters.

    Texts are truncated. A count replaces the members that do not fit (``"…"``), the number of bytes replaces
    bytes, and ``repr`` represents values without a JSON form. Only the part that is kept is copied.
    """
    return _shorten(progress, [most_chars], 0)


def _shorten(value: object, left: list[int], depth: int) -> JsonValue:
    left[0] -= _NODE
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # The plain text of a subclass, whatever it overrides.
        text = cut_text(str.__str__(value), max(0, left[0]))
        left[0] -= len(text)
        return text
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        # About the number of its digits.
        left[0] -= value.bit_length() // 3
        return value if value.bit_length() <= _MAX_BITS else f"<a number of {value.bit_length()} bits>"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return _shorten_mapping(value, left, depth)
    if isinstance(value, Sequence | Set):
        return _shorten_list(value, left, depth)
    return _shorten(repr(value), left, depth)


def _shorten_mapping(value: Mapping[object, object], left: list[int], depth: int) -> JsonValue:
    members: dict[str, JsonValue] = {}
    for key, item in value.items():
        if left[0] <= 0 or depth > _MAX_DEPTH:
            members["…"] = f"{len(value) - len(members)} more"
            break
        name = str(_shorten(key if isinstance(key, str) else str(key), left, depth))
        members[name] = _shorten(item, left, depth + 1)
    return members


def _shorten_list(value: Sequence[object] | Set[object], left: list[int], depth: int) -> JsonValue:
    items: list[JsonValue] = []
    for item in value:
        if left[0] <= 0 or depth > _MAX_DEPTH:
            items.append(f"… {len(value) - len(items)} more")
            break
        items.append(_shorten(item, left, depth + 1))
    return items
