"""Reciprocal rank fusion: one ranking out of several, by places alone.

Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods", SIGIR 2009; k = 60 is theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Hashable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryScope
from sessiontree.contracts.thread_calls import in_thread
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.matrix import Vectors, best
from sessiontree.memory.row_index import Mask, Mirror, Positions
from sessiontree.memory.table_cache import Shelf
from sessiontree.memory.vectors import vectors_of
from sessiontree.memory.visibility import at_path, of_types, visible

K: Final = 60
Item = TypeVar("Item", bound=Hashable)


def fused(rankings: Sequence[Sequence[Item]]) -> dict[Item, float]:
    """Return the items of all rankings with their scores, best first.

    An item's score is the sum of 1 / (k + place) over the rankings it is in, places counted from 1, over the
    best sum there is: 1.0 means first in every one. Equal scores keep the order in which items are met,
    ranking by ranking.
    """
    best = len(rankings) / (K + 1)
    sums: dict[Item, float] = {}
    for ranking in rankings:
        for place, item in enumerate(ranking, 1):
            sums[item] = sums.get(item, 0.0) + 1 / (K + place)
    return {item: total / best for item, total in sorted(sums.items(), key=lambda pair: -pair[1])}


LEAST_CANDIDATES = 40
_CANDIDATES_PER_HIT = 4
_MARGIN = 1.5
"""Over-fetching expects a filter to hit a ranking's top as often as the rest, and so much worse."""
_LISTED = 1_000
"""So few rows are named to LanceDB one by one."""


_MASKED_AT_ONCE = 20_000
"""So many rows are looked through faster than a thread is woken."""
_SHARED_FROM = 32_768
"""So many rows are compared in two threads: fetching them from memory is what takes the time."""


class Ranking(Protocol):
    """Asked for so many rows, and perhaps among some alone: answers with row numbers, best first."""

    def __call__(self, most: int, among: Sequence[int] | None, /) -> Awaitable[NDArray[np.int64]]:
        """Return the numbers of at most so many rows."""
        ...


def candidates_for(limit: int) -> int:
    """Return how long each of the two rankings is."""
    return max(LEAST_CANDIDATES, _CANDIDATES_PER_HIT * limit)


async def search(
    shelf: Shelf, embedder: Embedder, query: MemoryQuery, scope: MemoryScope | None, finished: Collection[str]
) -> list[Hit]:
    """Return the best records, best first; at most as many as the query wants."""
    await shelf.number()
    mirror = shelf.mirror
    if mirror.rows > _MASKED_AT_ONCE:
        mask = await in_thread(_mask, mirror, query, scope, finished)
    else:
        mask = _mask(mirror, query, scope, finished)
    if not mask.any():
        return []
    most = candidates_for(query.limit)
    words = asyncio.ensure_future(sifted(mirror, mask, most, partial(shelf.table.matching, query.text)))
    try:
        meaning = await _by_meaning(shelf, mirror, embedder, query.text, mask, most)
        rankings = [meaning.tolist(), (await words).tolist()]
    finally:
        words.cancel()
        await asyncio.wait([words])
    scores = fused(rankings)
    kept = {place: score for place, score in scores.items() if score >= query.min_score}
    positions = np.array(list(kept)[: query.limit], np.intp)
    by_id = {mirror.ids[position]: kept[position] for position in positions.tolist()}
    return [Hit(record, by_id[record.id]) for record in await shelf.records(mirror, positions)]


def _mask(mirror: Mirror, query: MemoryQuery, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    mask = visible(mirror, scope, finished)
    if query.types:
        mask &= of_types(mirror, query.types, len(mask))
    if query.path is not None:
        mask &= at_path(mirror, query.path, len(mask))
    return mask


async def _by_meaning(
    shelf: Shelf, mirror: Mirror, embedder: Embedder, text: str, mask: Mask, most: int
) -> Positions:
    vector: Vectors = (await in_thread(vectors_of, [text], embedder, shelf.place))[0]
    if not vector.any():
        return np.empty(0, np.intp)  # a query without features means nothing: any order would be made up
    matrix, rows = mirror.matrix, len(mask)
    if matrix is None:
        return await sifted(mirror, mask, most, partial(shelf.table.nearest, vector))
    if rows < _SHARED_FROM:
        return await in_thread(lambda: best(matrix.scores(vector, rows), np.flatnonzero(mask), most))
    async with asyncio.TaskGroup() as group:
        early = group.create_task(in_thread(matrix.scores, vector, rows // 2))
        late = group.create_task(in_thread(matrix.scores, vector, rows, rows // 2))
    scores = np.concatenate([early.result(), late.result()])
    return await in_thread(best, scores, np.flatnonzero(mask), most)


async def sifted(mirror: Mirror, mask: Mask, most: int, ranking: Ranking) -> Positions:
    """Return the best of a ranking that may be seen.

    Few rows are named one by one. Of many, so much of the whole ranking is fetched that enough should be
    left, and all of it where they are not. A ranking does not depend on filters: both find the same.
    """
    allowed = np.flatnonzero(mask)
    share = len(allowed) / len(mask)
    if len(allowed) <= _LISTED and share < 1:
        named = [number for number in mirror.row_ids(allowed) if number >= 0]
        return _seen(mirror, await ranking(most, named), mask) if named else np.empty(0, np.intp)
    asked = most if share == 1 else min(len(mask), int(most / share * _MARGIN) + most)
    found = await ranking(asked, None)
    seen = _seen(mirror, found, mask)
    if len(seen) < most and len(found) == asked < len(mask):
        seen = _seen(mirror, await ranking(len(mask), None), mask)
    return seen[:most]


def _seen(mirror: Mirror, row_ids: NDArray[np.int64], mask: Mask) -> Positions:
    positions = mirror.positions_of(row_ids)
    positions = positions[(positions >= 0) & (positions < len(mask))]
    return positions[mask[positions]]
