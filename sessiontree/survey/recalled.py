"""Recalled: what a search of memory told, as places; everything in them is foreign text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, cast

from sessiontree.contracts.memory import Source
from sessiontree.contracts.messages import ToolResultMessage
from sessiontree.survey.ranking import RankedPlace

# both marks carry one number, which no text could know when it was stored
_MARKED = re.compile(
    r'^<<<EXTERNAL_UNTRUSTED_CONTENT id="(?P<id>[0-9a-f]{16})"[^\n]*>>>\n[^\n]*\n'
    r'(?P<text>.*?)\n<<<END_EXTERNAL_UNTRUSTED_CONTENT id="(?P=id)">>>$',
    re.MULTILINE | re.DOTALL,
)


def found_in(result: ToolResultMessage, outdated: Collection[str]) -> list[RankedPlace]:
    """Return the places a search found, best first.

    Args:
        result: Of ``memory_search``: its details say what was found, its text holds the records' texts, both
            in the same order.
        outdated: Trees whose records don't count.
    """
    details = cast("dict[str, Any]", result.details)
    rows = details["details"]["hits"]
    texts = [marked["text"] for marked in _MARKED.finditer(result.text)]
    return [
        _found(row, text)
        for row, text in zip(rows, texts, strict=False)
        if row["source"] is not None and row["tree_id"] not in outdated
    ]


def _found(row: dict[str, Any], text: str) -> RankedPlace:
    source = Source.of(row["source"])
    first = source.first or 1
    return RankedPlace(row["source"], source.path, first, source.last or first, text, row["score"])
