"""JSON pointers, by which errors name a field.

Source: RFC 6901.
"""

from __future__ import annotations


def json_pointer(*parts: str | int) -> str:
    """Return the pointer through keys and indexes, outermost first; of nothing it is ``""``, the whole."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
