"""Texts made comparable: spellings that look alike become one, and every place can be found again.

Folded alike are quotation marks, dashes, spaces, ``…`` and ``...``, CRLF and LF, and spaces at the end of a
line against none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2032\u02bc"
DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u2033"
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"

_ONE_TO_ONE = str.maketrans(
    {
        **dict.fromkeys(SINGLE_QUOTES, "'"),
        **dict.fromkeys(DOUBLE_QUOTES, '"'),
        **dict.fromkeys(DASHES, "-"),
        **dict.fromkeys(SPACES, " "),
    }
)

# The look-behind and the possessive run keep this linear on long runs of spaces.
_SHRINKING = re.compile(r"(?<![ \t])[ \t]++(?=\r?\n)|\r\n|\.\.\.")
_TO_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class Folded:
    """A text's folded form beside the text with its characters, but not its length, changed."""

    text: str
    """The folded form."""
    translated: str
    """As long as the original: an index here is an index there."""

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return where in the original the folded characters ``start:end`` (not empty) come from.

        Spaces that folding dropped before or after them are left outside; a line end is kept whole.
        """
        return self._span(start)[0], self._span(end - 1)[1]

    def past_spaces(self, at: int) -> int:
        """Return the end of the spaces that stand at ``at`` in the original."""
        while at < len(self.translated) and self.translated[at] in " \t":
            at += 1
        return at

    def _span(self, index: int) -> tuple[int, int]:
        dropped = 0
        for piece in _SHRINKING.finditer(self.translated):
            start = piece.start() - dropped
            length = len(_shrunk(piece))
            if index < start:
                break
            if index < start + length:
                return piece.span()
            dropped += len(piece[0]) - length
        return index + dropped, index + dropped + 1


def fold(text: str) -> Folded:
    """Return the folded form of a text; linear in its length."""
    translated = text.translate(_ONE_TO_ONE)
    return Folded(_SHRINKING.sub(_shrunk, translated), translated)


def line_ends_at(text: str, at: int) -> bool:
    """Whether nothing but spaces stands between ``at`` and the end of its line."""
    return _TO_LINE_END.match(text, at) is not None


def _shrunk(piece: re.Match[str]) -> str:
    found = piece[0]
    if found == "\r\n":
        return "\n"
    return "\N{HORIZONTAL ELLIPSIS}" if found == "..." else ""
