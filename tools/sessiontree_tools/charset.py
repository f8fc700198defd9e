"""From a parameter's text to the bytes of a file."""

from __future__ import annotations

from sessiontree.contracts.errors import ValidationError


def to_utf8(text: str, field: str) -> bytes:
    """Return the text's UTF-8 form.

    Args:
        text: What goes into a file.
        field: JSON pointer of the parameter it came from.

    Raises:
        ValidationError: it holds half a surrogate pair, which UTF-8 has no bytes for.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"character {error.start + 1} is half of a surrogate pair and can't be written as UTF-8", field
        ) from error
