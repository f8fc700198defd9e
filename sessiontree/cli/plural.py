"""A number with what it counts, as a person reads it."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: ``1 tree``, ``1,200 trees``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
