"""The table and its mirror, kept alike.

A writer tells the mirror what it wrote; a reader, or a writer in doubt about what a failed write left,
compares row numbers with the table and takes in the difference.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa

from sessiontree.contracts.errors import EmbedderMismatch
from sessiontree.contracts.memory import MemoryRecord
from sessiontree.memory.matrix import Vectors
from sessiontree.memory.row_index import Mirror, Positions
from sessiontree.memory.rows import ROW_ID, VECTOR, embedder_of, to_vectors
from sessiontree.memory.table import RecordTable

_TAKEN_AT_ONCE = 1_000


class Shelf:
    """Rows on disk, and what is known of them in memory.

    Args:
        table: The rows.
        place: Path or address of the store, for errors.
        identity: Of the embedder the vectors must come from.
        ann_above: More rows than this are not held as vectors once an index answers for them.
    """

    def __init__(self, table: RecordTable, place: str, identity: str, ann_above: int) -> None:
        self.table = table
        self.place = place
        self.ann_above = ann_above
        self._identity = identity
        self._changing = asyncio.Lock()
        self.mirror = self._empty(vectors=True)

    def check(self) -> None:
        """Raise EmbedderMismatch where the vectors are another embedder's."""
        stored = embedder_of(self.table.schema, self.place)
        if stored != self._identity:
            raise EmbedderMismatch(self.place, stored, self._identity)

    async def load(self) -> None:
        """Make the mirror anew from the table."""
        async with self._changing:
            await self._load()

    async def catch_up(self, *, surely: bool = False) -> None:
        """Take in what other writers did.

        Args:
            surely: Compare even where the table is of the same version as before.
        """
        async with self._changing:
            if not await self.table.catch_up() and not surely:
                return
            self.check()
            there, known = await self.table.row_ids(), self.mirror.living_row_ids()
            gone = np.setdiff1d(known, there, assume_unique=True)
            if len(gone) == len(known) and len(there):  # another table stands in its place
                await self._load()
                return
            positions = self.mirror.positions_of(gone)
            self.mirror.drop(positions[positions >= 0])
            await self._take_in(self.mirror)

    async def number(self) -> None:
        """Learn the numbers of rows this process wrote."""
        if self.mirror.unnumbered:
            async with self._changing:
                if self.mirror.unnumbered:
                    ids, numbers = await self.table.numbers(self.mirror.next_row_id)
                    self.mirror.number(ids, numbers)

    async def tidy(self) -> None:
        """Free what dead rows take in memory, and the vectors where an index answers for them."""
        if len(self.mirror) > self.ann_above and self.mirror.matrix is not None:
            if await self.table.has_vector_index():
                self.mirror.forget_vectors()
        elif self.mirror.crowded:
            await self.load()

    async def records(self, mirror: Mirror, positions: Positions) -> list[MemoryRecord]:
        """Return the records at a mirror's positions, in that order, less those forgotten meanwhile."""
        taken: list[MemoryRecord] = []
        for start in range(0, len(positions), _TAKEN_AT_ONCE):
            chosen = positions[start : start + _TAKEN_AT_ONCE]
            places, rows = await self._take(mirror, chosen, vectors=False)
            texts = rows["text"].to_pylist()
            taken += [mirror.record(position, texts[place]) for position, place in places]
        return taken

    async def with_vectors(self, mirror: Mirror, positions: Positions) -> tuple[list[MemoryRecord], Vectors]:
        """Return the records at a mirror's positions and their vectors, in that order."""
        places, rows = await self._take(mirror, positions, vectors=True)
        texts = rows["text"].to_pylist()
        records = [mirror.record(position, texts[place]) for position, place in places]
        return records, to_vectors(rows)[[place for _, place in places]]

    async def _take(
        self, mirror: Mirror, positions: Positions, *, vectors: bool
    ) -> tuple[list[tuple[int, int]], pa.Table]:
        """Return rows of the table, and for each position that has one its place among them."""
        await self.number()
        numbers = mirror.row_ids(positions)
        rows = await self.table.take([number for number in numbers if number >= 0], vectors=vectors)
        found = {number: place for place, number in enumerate(rows[ROW_ID].to_pylist())}
        pairs = zip(positions.tolist(), numbers, strict=True)
        return [(position, found[number]) for position, number in pairs if number in found], rows

    async def _load(self) -> None:
        few = await self.table.count() <= self.ann_above
        mirror = self._empty(vectors=few or not await self.table.has_vector_index())
        await self._take_in(mirror)
        self.mirror = mirror

    async def _take_in(self, mirror: Mirror) -> None:
        start = mirror.next_row_id
        mirror.load(await self.table.mirrored(start))
        if mirror.matrix is not None:
            async for numbers, vectors in self.table.vectors(start):
                positions = mirror.positions_of(numbers)
                mirror.matrix.put(positions[positions >= 0], vectors[positions >= 0])

    def _empty(self, *, vectors: bool) -> Mirror:
        dimensions: int = self.table.schema.field(VECTOR).type.list_size
        return Mirror(dimensions, vectors=vectors)
