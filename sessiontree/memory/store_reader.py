"""What a store of memory holds, as it is read: searches, and records by id, place or tree."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.values.memory import (
    MAX_HITS,
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    Selection,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.embedders import Embedder
from sessiontree.memory.mirror.row_index import (
    Mask,
    Positions,
    select_overlapping,
    select_path,
    select_tree,
    select_visible,
)
from sessiontree.memory.mirror.table_cache import TableCache
from sessiontree.memory.search import search
from sessiontree.memory.tables import FinishedTree, FinishedTrees, Vectors
from sessiontree.memory.writer import StoreWriter

_AT_ONCE: Final = 1_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a store's records, in created order."""

    records: list[MemoryRecord]
    vectors: Vectors | None
    """One row for each record; None if they were not asked for."""


class StoreReader:
    """Reads the records of one store; :class:`~sessiontree.memory.store.LanceMemoryStore` opens it.

    Every read is of the newest version.
    """

    _cache: TableCache
    _finished: FinishedTrees
    _embedder: Embedder
    _writer: StoreWriter | None
    """None = another process writes the store."""

    def __len__(self) -> int:
        """Return the number of records, as far as this process has read them."""
        return len(self._cache.mirror)

    async def search(self, query: MemoryQuery, scope: MemoryScope | None) -> list[MemoryHit]:
        """Return the records that fit a query best and that the scope may see, best first.

        Any text is a valid query: its words count, and punctuation has no meaning. Scope None sees all.

        Raises:
            MemoryFailed: the embedder failed, or the store cannot be read.
        """
        limit = max(1, min(query.limit, MAX_HITS))
        asked = MemoryQuery(_make_well_formed(query.text), limit, query.types, query.path, query.min_score)
        return await self._read_newest(
            lambda: search(self._cache, self._embedder, asked, scope, self._finished.trees.keys())
        )

    async def get(self, ids: Sequence[str], scope: MemoryScope | None) -> list[MemoryRecord]:
        """Return the records with these ids that the scope may see, in the order of the ids."""

        async def read() -> list[MemoryRecord]:
            mirror = self._cache.mirror
            mask = await run_in_thread(select_visible, mirror, scope, self._finished.trees.keys())
            places = [mirror.position(record_id) for record_id in ids]
            # The mask is made in a thread; a row that was stored meanwhile is not in it.
            seen = [place for place in places if place is not None and place < len(mask) and mask[place]]
            return await self._cache.records(mirror, np.array(seen, np.intp))

        return await self._read_newest(read)

    async def select(self, selection: Selection, scope: MemoryScope | None, limit: int) -> list[MemoryRecord]:
        """Return up to ``limit`` selected records that the scope may see, in created order.

        Raises:
            ValueError: the selection has no condition.
        """
        check_selection(selection)

        async def read() -> list[MemoryRecord]:
            mirror = self._cache.mirror
            positions = await run_in_thread(self._select, selection, scope)
            return await self._cache.records(mirror, mirror.sort_by_creation(positions)[:limit])

        return await self._read_newest(read)

    def list_finished_trees(self) -> list[FinishedTree]:
        """Return the trees whose Main has finished, in the order in which they ended."""
        return sorted(self._finished.trees.values(), key=lambda tree: (tree.ended_at_ms, tree.tree_id))

    async def list_unfinished_trees(self) -> set[str]:
        """Return the ids of trees that have records and no finished Main."""
        return self._cache.mirror.list_living_trees() - self._finished.trees.keys()

    async def parts(self, *, vectors: bool = False, at_once: int = _AT_ONCE) -> AsyncIterator[Part]:
        """Yield all records in parts, in created order; those of one millisecond in the order stored.

        Records that are stored meanwhile are not included; records that are forgotten meanwhile may be
        missing.
        """
        await self._read_newest(self._read_nothing)
        mirror = self._cache.mirror
        positions = mirror.sort_by_creation(np.flatnonzero(mirror.alive()))
        for start in range(0, len(positions), at_once):
            chosen = positions[start : start + at_once]
            if vectors:
                yield Part(*await self._cache.load_with_vectors(mirror, chosen))
            else:
                yield Part(await self._cache.records(mirror, chosen), None)

    async def _read_newest(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read the newest version; if that version was pruned during the read, read once more."""
        if self._writer is not None:
            return await read()
        try:
            await self._catch_up()
            return await read()
        except MemoryFailed as error:
            # Race: the process that writes may prune a version between this catching up and the read.
            if error.cause != "corrupt":
                raise
            await self._catch_up()
            return await read()

    async def _catch_up(self) -> None:
        await self._cache.catch_up()
        await self._finished.load()

    async def _read_nothing(self) -> None:
        """Read nothing; :meth:`_read_newest` still catches up."""

    def _select(self, selection: Selection, scope: MemoryScope | None) -> Positions:
        mirror = self._cache.mirror
        mask: Mask = select_visible(mirror, scope, self._finished.trees.keys())
        rows = len(mask)
        if selection.ids:
            named = np.zeros(rows, np.bool_)
            places = [mirror.position(record_id) for record_id in selection.ids]
            named[[place for place in places if place is not None and place < rows]] = True
            mask &= named
        if selection.path is not None:
            mask &= select_path(mirror, selection.path, rows)
            mask &= select_overlapping(mirror, selection.first, selection.last, rows)
        if selection.tree_id is not None:
            mask &= select_tree(mirror, selection.tree_id, rows)
        return np.flatnonzero(mask)


def _make_well_formed(text: str) -> str:
    """Return a text that UTF-8 can encode, with lone halves of surrogate pairs replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_selection(selection: Selection) -> None:
    """Raise ValueError if a selection has no condition, because it would select everything."""
    if not selection.to_wire():
        raise ValueError("a selection needs a condition; name ids, a path or a tree")
    if selection.path is None and (selection.first is not None or selection.last is not None):
        raise ValueError("a selection with lines needs a path; name the path of the lines too")
