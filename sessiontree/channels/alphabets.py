"""Words that look like others: letters of several alphabets in one word, or letters of unusual width.

A Cyrillic letter in a Latin word can't be told from its twin by eye, and names something else. Words in one
alphabet, whichever, are left alone, and so are scripts that have no twins among the others.

Source: Unicode Technical Standard 39, "Unicode Security Mechanisms", mixed-script detection; scripts are told
by the characters' names.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby
from typing import Final

_TWINS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Alphabets with letters that look alike."""
_UNUSUAL: Final = frozenset({"FULLWIDTH", "HALFWIDTH", "MATHEMATICAL"})
"""Forms of Latin letters that look like Latin letters."""


def deceptive_words(text: str) -> tuple[str, ...]:
    """Return the words of a text that mix alphabets with look-alike letters, each once, in order."""
    if text.isascii():
        return ()
    words = ("".join(group) for is_word, group in groupby(text, str.isalpha) if is_word)
    return tuple(dict.fromkeys(word for word in words if not word.isascii() and _is_deceptive(word)))


def _is_deceptive(word: str) -> bool:
    alphabets = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
    return len(alphabets & _TWINS) > 1 or not alphabets.isdisjoint(_UNUSUAL)
