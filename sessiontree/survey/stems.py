"""Stems: what words of one family share, found by cutting English endings; enough to rank by, no more."""

from __future__ import annotations

from functools import lru_cache

_MIN_STEM = 3
_ENDINGS = (
    *("ations", "ation", "ators", "ator", "ating", "ated", "ates", "ate"),
    *("izers", "izer", "izing", "ized", "izes", "ize", "isers", "iser", "ising", "ised", "ises", "ise"),
    *("ments", "ment", "ness", "able", "ible", "ions", "ion", "ings", "ing", "ers", "er", "ors", "or"),
    *("ies", "ied", "ed", "es", "al", "ly", "s", "e", "y"),
)
"""Longer ones before those they end with."""


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return a word without its ending: ``parsing``, ``parser`` and ``parses`` give the same.

    Words of three letters and fewer stay as they are.
    """
    for _ in range(2):  # approvals, approval, approv
        for ending in _ENDINGS:
            if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM and not word.endswith("ss"):
                word = word[: -len(ending)]
                break
    # a doubled last letter before an ending: `dropping` is `drop`
    if len(word) > _MIN_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls":
        return word[:-1]
    return word
