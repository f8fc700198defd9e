"""What a model's own checks said about a value, as the one error this room raises."""

from __future__ import annotations

import pydantic

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.checker import MAX_TOLD
from sessiontree.schema.pointer import json_pointer


def refusal(error: Exception, value: JsonValue) -> ValidationError:
    """Return the error for a value that a pydantic type did not accept.

    Args:
        error: What the type raised: pydantic's error, or whatever a validator of its author raised.
        value: The value it was given; fields are pointed at in it.
    """
    if not isinstance(error, pydantic.ValidationError):
        return ValidationError(f"the value was refused: {type(error).__name__}: {error}")
    told = [
        (_pointer(fault["loc"], value), fault["msg"].removeprefix("Value error, "))
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    message = "; ".join(f"{pointer[1:]}: {reason}".lstrip(": ") for pointer, reason in told[:MAX_TOLD])
    return ValidationError(message, told[0][0] or None)


def _pointer(location: tuple[str | int, ...], value: JsonValue) -> str:
    """Return the pointer to pydantic's location, which also names the variants of unions passed through."""
    place, path = value, list[str | int]()
    for part in location:
        members = place if isinstance(place, dict) else {}
        items = place if isinstance(place, list) else []
        if isinstance(part, str) and part in members:
            place = members[part]
        elif isinstance(part, int) and part < len(items):
            place = items[part]
        else:
            continue
        path.append(part)
    return json_pointer(*path)
