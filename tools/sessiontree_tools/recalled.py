"""What was recalled, as a model reads it: each record a line about it, then its text between marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.memory import MemoryRecord
from sessiontree.contracts.untrusted import plain_source, wrapped

FRAME_CHARS: Final = 700
"""Room for what stands around one text: its line, the marks, a note that it was cut."""
LEAST_CHARS: Final = 200
"""A text that would get less room than this is left out, and counted."""
RESERVE_CHARS: Final = 300
"""Room for what is said before and after all of them."""


def shown(records: Sequence[MemoryRecord], scores: Sequence[float] | None, max_chars: int) -> tuple[str, int]:
    """Return records as text, and how many of them are in it.

    Texts share the room fairly: a short one leaves what it does not need to those after it. Marks are never
    cut off.

    Args:
        records: In the order they are to be shown.
        scores: One for each; None where nothing was ranked.
        max_chars: Longest text.
    """
    blocks: list[str] = []
    room = max_chars - RESERVE_CHARS
    for at, record in enumerate(records):
        left = len(records) - at
        share = max(room // left, min(room, FRAME_CHARS + LEAST_CHARS)) - FRAME_CHARS
        if share < LEAST_CHARS:
            break
        block = _block(record, None if scores is None else scores[at], share)
        blocks.append(block)
        room -= len(block) + 2
    return "\n\n".join(blocks), len(blocks)


def row_of(record: MemoryRecord, score: float | None = None) -> dict[str, JsonValue]:
    """Return what is known of a record, but its text, for journal and screen."""
    row: dict[str, JsonValue] = {
        "id": record.id,
        "type": record.type,
        "source": record.source,
        "trust": record.trust,
        "session": record.scope.session,
        "tree_id": record.scope.tree_id,
        "created_at_ms": record.created_at_ms,
    }
    return row if score is None else {**row, "score": round(score, 4)}


def _block(record: MemoryRecord, score: float | None, max_chars: int) -> str:
    source = plain_source(record.source) if record.source is not None else "no source"
    rank = "" if score is None else f", score {score:.2f}"
    head = f"{source} ({record.type}, trust {record.trust}{rank}, id {record.id})"
    text = record.text
    if len(text) > max_chars:
        text = f"{text[:max_chars]}\u2026"
        head += f" [{max_chars:,} of {len(record.text):,} characters]"
    return f"{head}\n{wrapped(text, kind='memory', source=record.source or 'memory')}"
