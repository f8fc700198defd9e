"""Answers made of lines, kept within what a model gets of one result."""

from __future__ import annotations

from collections.abc import Iterable

NOTE_CHARS = 400
"""Room kept for the notes at the end."""


def listing(lines: Iterable[str], notes: list[str], *, max_chars: int) -> str:
    """Return the lines, then each note in brackets; whole lines are left out where they do not fit.

    Args:
        lines: In order; consumed only as far as they are shown, and one further.
        notes: What the reader should know; always shown.
        max_chars: Longest answer. Room for notes is taken from it, but at least half remains for lines.
    """
    room = max(max_chars // 2, max_chars - NOTE_CHARS)
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            notes = ["more did not fit into one answer; narrow the search", *notes]
            break
        kept.append(line)
    return "\n".join(kept + [f"[{note}]" for note in notes])
