"""What a session wants remembered becomes records: checked, with ids and with who stored them.

An id is a digest of tree, key and place among the records of one call: a repeated call makes the same ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.memory import (
    MAX_SOURCE_CHARS,
    MAX_STORED_AT_ONCE,
    MAX_TEXT_CHARS,
    RECORD_TYPES,
    TRUSTS,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Source,
)

_ID_BYTES = 16


def record_id(tree_id: str, key: str, index: int) -> str:
    """Return the id of one record of a call: 32 hex digits."""
    named = json.dumps([tree_id, key, index]).encode("ascii")
    return hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()


def recorded(records: Sequence[NewRecord], scope: MemoryScope, key: str, at_ms: int) -> list[MemoryRecord]:
    """Return the records of one call, in its order.

    Raises:
        ValidationError: there are too many, or one has a text, type or source that can't be kept.
    """
    if len(records) > MAX_STORED_AT_ONCE:
        raise ValidationError(
            f"{len(records)} records at once; store at most {MAX_STORED_AT_ONCE} with one call", "/records"
        )
    return [
        MemoryRecord(
            record_id(scope.tree_id, key, index),
            record.type,
            _text(record, index),
            _source(record, index),
            record.trust,
            scope,
            at_ms,
        )
        for index, record in enumerate(records)
        if _known_words(record, index)
    ]


def _text(record: NewRecord, index: int) -> str:
    if not 1 <= len(record.text) <= MAX_TEXT_CHARS:
        raise ValidationError(
            f"a record's text has 1 to {MAX_TEXT_CHARS} characters, this one {len(record.text)}",
            f"/records/{index}/text",
        )
    return _utf8(record.text, f"/records/{index}/text")


def _source(record: NewRecord, index: int) -> str | None:
    if record.source is None:
        return None
    field = f"/records/{index}/source"
    if len(record.source) > MAX_SOURCE_CHARS:
        raise ValidationError(
            f"a source has at most {MAX_SOURCE_CHARS} characters, this one {len(record.source)}", field
        )
    try:
        return str(Source.of(_utf8(record.source, field)))
    except ValueError as error:
        raise ValidationError(str(error), field) from error


def _known_words(record: NewRecord, index: int) -> bool:
    if record.type not in RECORD_TYPES:
        raise ValidationError(
            f"there is no record type {record.type!r}; choose of {', '.join(RECORD_TYPES)}",
            f"/records/{index}/type",
        )
    if record.trust not in TRUSTS:
        raise ValidationError(
            f"there is no trust {record.trust!r}; choose of {', '.join(TRUSTS)}", f"/records/{index}/trust"
        )
    return True


def _utf8(text: str, field: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValidationError(f"it holds half a character at {error.start}", field) from error
    return text
