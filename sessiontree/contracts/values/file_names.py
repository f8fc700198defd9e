"""File names as people see them: which names look the same.

A letter and its accent may be one character or two (macOS and archives write two), a space may be one of
seventeen, and an apostrophe may be curled. Nobody sees the difference, and a model can hardly write it.
Source: Unicode Standard Annex 15 (NFC).
"""

from __future__ import annotations

import unicodedata
from typing import Final

SINGLE_QUOTES: Final = "\u2018\u2019\u201a\u201b\u2032\u02bc"
DOUBLE_QUOTES: Final = "\u201c\u201d\u201e\u201f\u2033"
SPACES: Final = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
_FOLDED: Final = str.maketrans(
    {
        **dict.fromkeys(SINGLE_QUOTES, "'"),
        **dict.fromkeys(DOUBLE_QUOTES, '"'),
        **dict.fromkeys(SPACES, " "),
    }
)
_PLAIN_MARKS: Final = frozenset("'\" ")


def fold_name(name: str) -> str:
    """Return a form that all names have which look like this one."""
    return name if name.isascii() else unicodedata.normalize("NFC", name).translate(_FOLDED)


def is_foldable(name: str) -> bool:
    """Whether another name can look like this one."""
    return not name.isascii() or not _PLAIN_MARKS.isdisjoint(name)


def name_note(asked: str, found: str) -> str:
    """Return what to say of a path that was found by its look; empty where its own names were asked for.

    Args:
        asked: The path that was given.
        found: The path that it led to.
    """
    names = found.split("/")
    looks = {fold_name(name): name for name in names}
    for name in asked.split("/"):
        real = looks.get(fold_name(name))
        if real is not None and name not in names:
            return f"no entry is named {name!r}; the only one that looks like it is {real!a}"
    return ""
