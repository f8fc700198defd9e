"""What one word of a shell becomes: the expansions of its braces, and whether that can be known.

Source: bash(1), "Brace Expansion".
"""

from __future__ import annotations

import re
from typing import Final

MAX_FORMS: Final = 256
"""Maximum number of forms of one word."""
MAX_BRACED_CHARS: Final = 4096
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(
    r"(-?[0-9]{1,18}|[A-Za-z])\.\.(-?[0-9]{1,18}|[A-Za-z])(?:\.\.(-?[0-9]{1,9}))?", re.ASCII
)


def expand_braces(form: str) -> list[str]:
    """Return the expansions of a word by ``{a,b}`` and ``{1..3}``, and the word itself.

    Raises:
        ValueError: it has too many, or braces that are not read here.
    """
    if "{" not in form:
        return [form]
    if len(form) > MAX_BRACED_CHARS:
        raise ValueError(form[:80])
    found, waiting = [form], [form]
    while waiting:
        each = waiting.pop()
        match, choices = next(
            ((m, found_choices) for m in _BRACES.finditer(each) if (found_choices := _expand_choices(m[1]))),
            (None, []),
        )
        if match is None:
            found.append(each)
            continue
        if len(found) + len(waiting) + len(choices) > MAX_FORMS:
            raise ValueError(form[:80])
        waiting += [each[: match.start()] + choice + each[match.end() :] for choice in choices]
    return found


def _expand_choices(body: str) -> list[str]:
    """Return what the text between two braces stands for; nothing if it stands for itself."""
    if "," in body:
        return body.split(",")
    if ".." not in body:
        return []
    match = _RANGE.fullmatch(body)
    if match is None:
        raise ValueError(body)
    first, last, step = match[1], match[2], abs(int(match[3] or 1)) or 1
    if first.isalpha() != last.isalpha() or (first.isalpha() and first.islower() != last.islower()):
        raise ValueError(body)
    if first.isalpha():
        begin, end = ord(first), ord(last)
    else:
        begin, end = int(first), int(last)
    # Before its members are made: a short text may name 10^18 of them.
    if abs(end - begin) > MAX_FORMS:
        raise ValueError(body)
    numbers = range(begin, end - 1, -step) if end < begin else range(begin, end + 1, step)
    if first.isalpha():
        return [chr(number) for number in numbers]
    is_padded = any(each.lstrip("-").startswith("0") and each.lstrip("-") != "0" for each in (first, last))
    if is_padded and "-" in first + last:
        raise ValueError(body)
    width = max(len(first), len(last)) if is_padded else 0
    return [str(number).zfill(width) for number in numbers]
