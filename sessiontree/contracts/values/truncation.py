"""Truncation of a text without splitting what a reader sees as one character.

Not here: limits of what is shown (agent.py, displays.py), and pages of files (the tools).
"""

from __future__ import annotations

import unicodedata
from typing import Final

LINE_SHARE: Final = 4 / 5
"""A cut moves back to the end of a line if that removes at most the last fifth."""

_JOINERS: Final = "\u200c\u200d"
_SKIN_TONES: Final = ("\U0001f3fb", "\U0001f3ff")
_FLAG_LETTERS: Final = ("\U0001f1e6", "\U0001f1ff")
_TAGS: Final = ("\U000e0020", "\U000e007f")
_HANGUL: Final = (("\u1100", "\u11ff"), ("\ua960", "\ua97c"), ("\ud7b0", "\ud7fb"))
_SYLLABLES: Final = ("\uac00", "\ud7a3")
_FOLLOWING: Final = frozenset("\u0e33\u0eb3\uff9e\uff9f")
_LEADING: Final = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"
    "\U000110bd\U000110cd\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011d46\U00011f02"
)
_VIRAMA: Final = 9
"""Canonical combining class of the signs that join two consonants."""


def cut_text(text: str, max_chars: int) -> str:
    """Return at most ``max_chars`` characters: the head, up to a nearby line end, and a notice.

    The notice counts towards the limit; it is omitted if the limit has room only for the notice. Text that
    fits is unchanged, so cutting twice equals cutting once. No grapheme is split (see :func:`whole`).

    Args:
        text: Any text, including lone surrogates.
        max_chars: Maximum length of the result, in code points; at least 0.
    """
    if len(text) <= max_chars:
        return text
    notice = f"\n… cut: {max_chars} of {len(text)} characters shown"
    if len(notice) >= max_chars:
        return text[: find_cut(text, max_chars)]
    end = find_cut(text, max_chars - len(notice))
    line_end = text.rfind("\n", 0, end)
    if line_end >= end * LINE_SHARE:
        # CR LF goes as a whole.
        end = line_end - (text[line_end - 1 : line_end] == "\r")
    return text[:end] + notice


def cut_line(text: str, max_chars: int) -> str:
    """Return the first line that is not blank, at most ``max_chars`` characters including ``…``."""
    start = len(text) - len(text.lstrip())
    # Read no further than the result can reach: the line may be long.
    lines = text[start : start + max_chars + 1].splitlines()
    line = lines[0].rstrip() if lines else ""
    if len(line) <= max_chars:
        return line
    return text[start : start + find_cut(text[start : start + max_chars + 1], max_chars - 1)] + "…"


def find_cut(text: str, end: int) -> int:
    """Return the last position at or before ``end`` where a text may be cut without splitting a grapheme.

    Cases that need tables of all of Unicode are kept together: of two possible positions, the earlier one is
    returned. Halves of a surrogate pair and CR LF stay together too.

    Source: Unicode Standard Annex 29, extended grapheme clusters; GB3 to GB13.
    """
    while 0 < end < len(text) and _is_joined(text, end):
        end -= 1
    return end


def _is_joined(text: str, at: int) -> bool:
    """Return whether the characters on both sides of a position belong together."""
    before, after = text[at - 1], text[at]
    if after < "\u0300":  # true for nearly every cut
        return before == "\r" and after == "\n"
    if before in _JOINERS or before in _LEADING or _is_extending(after):
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_within(after, _FLAG_LETTERS) and _is_within(before, _FLAG_LETTERS):
        return _count_flag_letters(text, at) % 2 == 1
    if unicodedata.combining(before) == _VIRAMA:
        return unicodedata.category(after) == "Lo"
    return _is_hangul(before) and _is_hangul(after) and not _is_within(after, _SYLLABLES)


def _is_extending(character: str) -> bool:
    return (
        unicodedata.category(character) in {"Mn", "Me", "Mc"}
        or character in _JOINERS
        or character in _FOLLOWING
        or _is_within(character, _SKIN_TONES)
        or _is_within(character, _TAGS)
    )


def _is_hangul(character: str) -> bool:
    return _is_within(character, _SYLLABLES) or any(_is_within(character, block) for block in _HANGUL)


def _count_flag_letters(text: str, at: int) -> int:
    start = at
    while start > 0 and _is_within(text[start - 1], _FLAG_LETTERS):
        start -= 1
    return at - start


def _is_within(character: str, ends: tuple[str, str]) -> bool:
    return ends[0] <= character <= ends[1]
