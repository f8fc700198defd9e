"""Identifiers: names as programs write them, and the words they are made of."""

from __future__ import annotations

import re

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters, in order: ``maxRetries_HTTPPort2`` has five.

    Letters of other scripts stay together until something else comes.
    """
    return [part.lower() for part in _PARTS.findall(text)]


def has_inner_words(name: str) -> bool:
    """Whether a name holds words that only their letters' case sets apart."""
    return name not in {name.lower(), name.upper()} and len(words_of(name)) > 1
