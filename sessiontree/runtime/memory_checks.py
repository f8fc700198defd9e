"""What is asked of memory, checked where it arrives: a tool may have asked for anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.memory import (
    MAX_HITS,
    MAX_SOURCE_CHARS,
    MAX_STORED_AT_ONCE,
    MAX_TEXT_CHARS,
    RECORD_TYPES,
    MemoryQuery,
    NewRecord,
    Selection,
    Source,
    Trust,
)

MAX_SELECTED: Final = 1_000
"""Most records of one selection that are returned, and most ids it may name."""
OF_SESSIONS: Final = frozenset(get_args(Trust)) - {"owner"}
"""What a session may vouch as."""


def check_new(records: Sequence[NewRecord]) -> None:
    """Refuse records that can't be stored for a session.

    Raises:
        ValidationError: names the first that does not fit.
    """
    if not 1 <= len(records) <= MAX_STORED_AT_ONCE:
        raise ValidationError(
            f"{len(records)} records were given; store 1 to {MAX_STORED_AT_ONCE:,} at a time"
        )
    for number, record in enumerate(records):
        field = f"/{number}"
        _check_text(record.text, MAX_TEXT_CHARS, f"{field}/text")
        if record.type not in RECORD_TYPES:
            raise ValidationError(
                f"type {record.type!r} is none of {', '.join(RECORD_TYPES)}", f"{field}/type"
            )
        if record.trust not in OF_SESSIONS:
            raise ValidationError(
                f"a session can't vouch as {record.trust!r}; give {' or '.join(sorted(OF_SESSIONS))}",
                f"{field}/trust",
            )
        if record.source is not None:
            _check_text(record.source, MAX_SOURCE_CHARS, f"{field}/source")
            _check_source(record.source, f"{field}/source")


def check_query(query: MemoryQuery) -> None:
    """Refuse a query that means nothing.

    Raises:
        ValidationError: names what does not fit.
    """
    _check_text(query.text, MAX_TEXT_CHARS, "/text")
    if not 1 <= query.limit <= MAX_HITS:
        raise ValidationError(f"limit is {query.limit}; give 1 to {MAX_HITS}", "/limit")
    for wanted in query.types:
        if wanted not in RECORD_TYPES:
            raise ValidationError(f"type {wanted!r} is none of {', '.join(RECORD_TYPES)}", "/types")
    if query.path is not None:
        _check_text(query.path, MAX_SOURCE_CHARS, "/path")


def check_selection(selection: Selection) -> None:
    """Refuse a selection without a condition, or one that can't hold.

    Raises:
        ValidationError: says what to give.
    """
    if not selection.to_wire():
        raise ValidationError("nothing was named; give ids, a path or a tree")
    if len(selection.ids) > MAX_SELECTED:
        raise ValidationError(f"{len(selection.ids):,} ids were given; at most {MAX_SELECTED:,}", "/ids")
    if selection.path is not None:
        _check_text(selection.path, MAX_SOURCE_CHARS, "/path")
    elif selection.first is not None or selection.last is not None:
        raise ValidationError("lines are of a path; name it too", "/path")
    first, last = selection.first, selection.last
    if (first is not None and first < 1) or (last is not None and last < (first or 1)):
        raise ValidationError(f"lines {first} to {last} are none", "/first")


def check_limit(limit: int) -> None:
    """Refuse a limit that is none.

    Raises:
        ValidationError: says what to give.
    """
    if not 1 <= limit <= MAX_SELECTED:
        raise ValidationError(f"limit is {limit}; give 1 to {MAX_SELECTED:,}", "/limit")


def _check_text(text: str, most: int, field: str) -> None:
    if not text.strip() or len(text) > most:
        raise ValidationError(f"a text of {len(text):,} characters; give 1 to {most:,}, not all blank", field)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(f"character {error.start + 1} is half of a surrogate pair", field) from error


def _check_source(source: str, field: str) -> None:
    try:
        Source.of(source)
    except ValueError as error:
        raise ValidationError(str(error), field) from error
    if not source.isprintable():
        raise ValidationError("a source is one line of visible characters", field)
