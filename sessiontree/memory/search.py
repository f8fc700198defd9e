"""Search: by words and by vectors, with the two rankings fused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sessiontree.contracts.errors import MemoryFailed, SessionTreeError, describe_error
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.values.memory import MemoryHit, MemoryQuery, MemoryScope
from sessiontree.memory.embedders import Embedder
from sessiontree.memory.failures import convert_search_errors
from sessiontree.memory.mirror.columns import select_best
from sessiontree.memory.mirror.row_index import (
    Mask,
    Positions,
    RowIndex,
    select_path,
    select_types,
    select_visible,
)
from sessiontree.memory.mirror.table_cache import TableCache
from sessiontree.memory.mirror.word_index import WordIndex
from sessiontree.memory.tables import Vectors


def embed_texts(texts: Sequence[str], embedder: Embedder, place: str) -> Vectors:
    """Return one row for each text. Blocks.

    Raises:
        MemoryFailed: the embedder failed, or returned something else.
    """
    try:
        vectors = np.asarray(embedder.embed(texts), np.float32)
    except SessionTreeError:
        raise
    except Exception as error:
        raise MemoryFailed(
            place, f"embedder {embedder.identity!r} failed ({describe_error(error)})"
        ) from error
    if vectors.shape != (len(texts), embedder.dimensions):
        raise MemoryFailed(
            place,
            f"embedder {embedder.identity!r} should return shape {(len(texts), embedder.dimensions)} and "
            f"returned {vectors.shape}",
        )
    if not np.isfinite(vectors).all():
        raise MemoryFailed(place, f"embedder {embedder.identity!r} returned values that are not finite")
    return vectors


K: Final = 60
Item = TypeVar("Item", bound=Hashable)


def fuse_rankings(rankings: Sequence[Sequence[Item]]) -> dict[Item, float]:
    """Return the items of all rankings with their scores, best first (reciprocal rank fusion).

    An item's score is the sum of 1 / (k + place) over the rankings that contain it, with places from 1,
    divided by the highest possible sum: 1.0 means first in every ranking. Items with equal scores keep the
    order of the rankings.
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
"""Over-fetching assumes that a filter removes top rows as often as others; this factor adds a reserve."""
_LISTED = 1_000
"""Up to this many allowed rows are named to LanceDB one by one."""


_MASKED_AT_ONCE = 20_000
"""Up to this many rows are filtered without a thread, because waking a thread takes longer."""
_COMPARED_ALONE = 12_000_000
"""With more numbers than this, two threads compare vectors, because reading them from memory dominates."""


def get_noise(embedder: Embedder) -> float:
    """Return the similarity below which a record is no hit unless it has a word of the query.

    Of an embedder that does not say what similarity chance makes, every record counts.
    """
    return float(getattr(embedder, "noise", -1.0))


class Ranking(Protocol):
    """Ranks up to ``most`` rows, perhaps only among some, and returns their numbers, best first."""

    def __call__(self, most: int, among: Sequence[int] | None, /) -> Awaitable[NDArray[np.int64]]:
        """Return the numbers of at most ``most`` rows."""
        ...


async def search(
    cache: TableCache,
    embedder: Embedder,
    query: MemoryQuery,
    scope: MemoryScope | None,
    finished: Collection[str],
) -> list[MemoryHit]:
    """Return the best records, best first, up to the query's limit.

    A record counts that has a word of the query, or is more similar to it than chance makes records be.
    """
    # One mirror for the whole search: `load` may put another in its place, with other positions.
    mirror = cache.mirror
    if not len(mirror):
        return []
    if mirror.rows > _MASKED_AT_ONCE:
        mask = await run_in_thread(_mask, mirror, query, scope, finished)
    else:
        mask = _mask(mirror, query, scope, finished)
    if not mask.any():
        return []
    most = max(LEAST_CANDIDATES, _CANDIDATES_PER_HIT * query.limit)
    meaning, similar, worded = await _RecordSearch(cache, mirror, embedder, query.text, mask, most).rank()
    hits = {*similar.tolist(), *worded.tolist()}
    scores = fuse_rankings([meaning.tolist(), worded.tolist()])
    kept = {place: score for place, score in scores.items() if place in hits and score >= query.min_score}
    positions = np.array(list(kept)[: query.limit], np.intp)
    by_id = {mirror.ids[position]: kept[position] for position in positions.tolist()}
    return [MemoryHit(record, by_id[record.id]) for record in await cache.records(mirror, positions)]


def _mask(mirror: RowIndex, query: MemoryQuery, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    mask = select_visible(mirror, scope, finished)
    if query.types:
        mask &= select_types(mirror, query.types, len(mask))
    if query.path is not None:
        mask &= select_path(mirror, query.path, len(mask))
    return mask


@dataclass(frozen=True, slots=True)
class _RecordSearch:
    """Ranks the records that a mask allows, by vectors and by words."""

    cache: TableCache
    mirror: RowIndex
    embedder: Embedder
    text: str
    mask: Mask
    most: int

    async def rank(self) -> tuple[Positions, Positions, Positions]:
        """Return the nearest records, those that are nearer than chance makes them, and those with words."""
        index = self.cache.get_words(self.mirror)
        words = asyncio.ensure_future(self._find_matching()) if index is None else None
        try:
            # One thread does all of it: to wake another takes longer than most of these comparisons.
            vector, near, matching = await run_in_thread(self._rank_here, index)
            if near is None:
                near = await self._compare_many(vector)
            return *near, matching if words is None else await words
        finally:
            # If embedding fails, the other search must not go on with nobody to take its result or its error.
            if words is not None:
                words.cancel()
                await asyncio.wait([words])

    def _rank_here(
        self, index: WordIndex | None
    ) -> tuple[Vectors, tuple[Positions, Positions] | None, Positions]:
        """Return the vector, the records near it if they are few, and those with the words. Blocks."""
        nothing: Positions = np.empty(0, np.intp)
        matching, rows, matrix = nothing, len(self.mask), self.mirror.matrix
        if index is not None:
            with convert_search_errors(self.cache.place):
                index.update(self.mirror.texts, rows)
                matching = index.rank(self.text, self.mask, self.mirror.alive()[:rows], self.most)
        vector: Vectors = embed_texts([self.text], self.embedder, self.cache.place)[0]
        if not vector.any():
            return vector, (nothing, nothing), matching  # no features: any order would be arbitrary
        if matrix is None or np.count_nonzero(vector) * rows > _COMPARED_ALONE:
            return vector, None, matching
        return vector, self._choose_near(matrix.scores(vector, rows)), matching

    def _choose_near(self, scores: Vectors) -> tuple[Positions, Positions]:
        found = select_best(scores, np.flatnonzero(self.mask), self.most)
        return found, found[scores[found] >= get_noise(self.embedder)]

    async def _compare_many(self, vector: Vectors) -> tuple[Positions, Positions]:
        """Compare a vector in two threads, or ask the table's index if memory does not have the vectors."""
        matrix, rows = self.mirror.matrix, len(self.mask)
        if matrix is None:
            nearest = partial(self.cache.table.find_nearest, vector)
            return (
                await self._ask_table(partial(nearest, -np.inf)),
                await self._ask_table(partial(nearest, get_noise(self.embedder))),
            )
        async with asyncio.TaskGroup() as group:
            early = group.create_task(run_in_thread(matrix.scores, vector, rows // 2))
            late = group.create_task(run_in_thread(matrix.scores, vector, rows, rows // 2))
        return await run_in_thread(self._choose_near, np.concatenate([early.result(), late.result()]))

    async def _find_matching(self) -> Positions:
        return await self._ask_table(partial(self.cache.table.find_matching, self.text))

    async def _ask_table(self, ranking: Ranking) -> Positions:
        await self.cache.number()
        return await filter_ranking(self.mirror, self.mask, self.most, ranking)


async def filter_ranking(mirror: RowIndex, mask: Mask, most: int, ranking: Ranking) -> Positions:
    """Return the best rows of a ranking that the mask allows.

    A few allowed rows are named one by one. If there are many, so many rows are fetched that enough should
    remain after the filter, and all rows if they do not. Both ways find the same rows, because a ranking does
    not depend on filters.
    """
    allowed = np.flatnonzero(mask)
    share = len(allowed) / len(mask)
    if len(allowed) <= _LISTED and share < 1:
        named = [number for number in mirror.row_ids(allowed) if number >= 0]
        return _keep_allowed(mirror, await ranking(most, named), mask) if named else np.empty(0, np.intp)
    wanted = most if share == 1 else min(len(mask), int(most / share * _MARGIN) + most)
    found = await ranking(wanted, None)
    kept = _keep_allowed(mirror, found, mask)
    if len(kept) < most and len(found) == wanted < len(mask):
        kept = _keep_allowed(mirror, await ranking(len(mask), None), mask)
    return kept[:most]


def _keep_allowed(mirror: RowIndex, row_ids: NDArray[np.int64], mask: Mask) -> Positions:
    positions = mirror.find_positions(row_ids)
    # Rows that were stored after the mask was made have positions beyond it.
    positions = positions[(positions >= 0) & (positions < len(mask))]
    return positions[mask[positions]]
