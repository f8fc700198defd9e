"""Characters that people see as one and models write in one way: quotation marks, dashes, spaces."""

from __future__ import annotations

from typing import Final

SINGLE_QUOTES: Final = "\u2018\u2019\u201a\u201b\u2032\u02bc"
DOUBLE_QUOTES: Final = "\u201c\u201d\u201e\u201f\u2033"
DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
SPACES: Final = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
ONE_TO_ONE: Final = str.maketrans(
    {
        **dict.fromkeys(SINGLE_QUOTES, "'"),
        **dict.fromkeys(DOUBLE_QUOTES, '"'),
        **dict.fromkeys(DASHES, "-"),
        **dict.fromkeys(SPACES, " "),
    }
)
"""To the plain character, one for one: an index into a translated text is one into the original."""
