"""Characters that people see as one and models write in one way: quotation marks, dashes, spaces."""

from __future__ import annotations

from typing import Final

from sessiontree.contracts.values.file_names import DOUBLE_QUOTES, SINGLE_QUOTES, SPACES

DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
ONE_TO_ONE: Final = str.maketrans(
    {
        **dict.fromkeys(SINGLE_QUOTES, "'"),
        **dict.fromkeys(DOUBLE_QUOTES, '"'),
        **dict.fromkeys(DASHES, "-"),
        **dict.fromkeys(SPACES, " "),
    }
)
"""To the plain character, one for one: an index into a translated text is one into the original."""
