"""Hybrid search: what means the same and what has the same words, fused into one ranking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import numpy as np
from numpy.typing import NDArray

from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryScope
from sessiontree.contracts.threads import in_thread
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.fusion import fused
from sessiontree.memory.matrix import Matrix, Vectors, best
from sessiontree.memory.mirror import Mask, Mirror, Positions
from sessiontree.memory.shelf import Shelf
from sessiontree.memory.sieve import at_path, of_types, visible
from sessiontree.memory.vectors import vectors_of

LEAST_CANDIDATES = 40
_CANDIDATES_PER_HIT = 4
_MARGIN = 1.5
"""Over-fetching expects a filter to hit a ranking's top as often as the rest, and so much worse."""
_LISTED = 2_000
"""So few rows are named to an index of vectors one by one."""


def candidates_for(limit: int) -> int:
    """Return how long each of the two rankings is."""
    return max(LEAST_CANDIDATES, _CANDIDATES_PER_HIT * limit)


async def search(
    shelf: Shelf, embedder: Embedder, query: MemoryQuery, scope: MemoryScope | None, finished: Collection[str]
) -> list[Hit]:
    """Return the best records, best first; at most as many as the query wants."""
    mirror = shelf.mirror
    await shelf.number()
    mask = await in_thread(_mask, mirror, query, scope, finished)
    most = candidates_for(query.limit)
    if not mask.any():
        return []
    async with asyncio.TaskGroup() as group:
        meaning = group.create_task(_by_meaning(shelf, mirror, embedder, query.text, mask, most))
        words = group.create_task(_by_words(shelf, mirror, query.text, mask, most))
    scores = fused([meaning.result().tolist(), words.result().tolist()])
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
    if mirror.matrix is not None:
        return await in_thread(_compare, mirror.matrix, vector, mask, most)
    allowed = np.flatnonzero(mask)
    if len(allowed) <= _LISTED:
        found = await shelf.table.nearest(vector, most, mirror.row_ids(allowed))
        return _seen(mirror, found, mask)[:most]
    return await _sifted(mirror, mask, most, lambda many: shelf.table.nearest(vector, many, None))


def _compare(matrix: Matrix, vector: Vectors, mask: Mask, most: int) -> Positions:
    return best(matrix.scores(vector, len(mask)), np.flatnonzero(mask), most)


async def _by_words(shelf: Shelf, mirror: Mirror, text: str, mask: Mask, most: int) -> Positions:
    return await _sifted(mirror, mask, most, lambda many: shelf.table.matching(text, many))


async def _sifted(
    mirror: Mirror, mask: Mask, most: int, ranking: Callable[[int], Awaitable[NDArray[np.int64]]]
) -> Positions:
    """Return the best of a ranking that may be seen.

    So many are fetched that enough should be left; where they are not, all there is. The rankings do not
    depend on filters, so what is left is what a filtered search would have found.
    """
    share = np.count_nonzero(mask) / len(mask)
    asked = most if share == 1.0 else min(len(mask), int(most / share * _MARGIN) + most)
    while True:
        found = await ranking(asked)
        seen = _seen(mirror, found, mask)
        if len(seen) >= most or len(found) < asked or asked >= len(mask):
            return seen[:most]
        asked = len(mask)


def _seen(mirror: Mirror, row_ids: NDArray[np.int64], mask: Mask) -> Positions:
    positions = mirror.positions_of(row_ids)
    positions = positions[(positions >= 0) & (positions < len(mask))]
    return positions[mask[positions]]
