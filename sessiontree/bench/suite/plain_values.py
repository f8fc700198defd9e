"""Values of suites as plain ones: whatever a solver or a scorer gives, it can be stored and shown.

None of these functions fails, except ``to_json_text``, because no value of one sample may end a run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

MAX_SHOWN_CHARS: Final = 500
_HALF: Final = re.compile(r"[\ud800-\udfff]")
"""Half of a character, which no file in UTF-8 can hold."""


def to_plain_text(value: object) -> str:
    """Return a value as text that every file can hold; halves of characters are shown as escapes."""
    return _format_value(value, str)


def format_value(value: object, most: int = MAX_SHOWN_CHARS) -> str:
    """Return a value as an error message shows it."""
    return _format_value(value, repr)[:most]


def _format_value(value: object, form: Callable[[object], str]) -> str:
    try:
        return form(value).encode("utf-8", "backslashreplace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a value that can't be shown must not end a run
        return f"<{type(value).__name__} that can't be shown: {type(error).__name__}>"


def to_json_text(value: object, default: Callable[[Any], Any] | None = None) -> str:
    """Return a value as JSON text that every file can hold.

    Raises:
        TypeError: a part of it has no JSON form.
        ValueError: a number in it is not finite, or it contains itself.
    """
    text = json.dumps(value, default=default, allow_nan=False, ensure_ascii=False)
    return _HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", text)


def require_number(value: object) -> float:
    """Return a finite number.

    Raises:
        ValueError: the value is not one.
    """
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise ValueError("not a number")
    try:
        found = float(value)
    except Exception as error:
        raise ValueError("another library's number without a value") from error
    if not math.isfinite(found):
        raise ValueError("not finite")
    return found


def to_truth(value: object) -> bool | None:
    """Return a truth value, also of another library such as NumPy, or None.

    Raises:
        ValueError: the value is neither.
    """
    if value is None or isinstance(value, bool):
        return value
    if type(value).__name__ not in {"bool", "bool_"}:
        raise ValueError("not a truth value")
    return bool(value)
