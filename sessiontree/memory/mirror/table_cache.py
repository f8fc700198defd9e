"""The table on the disk and its mirror in memory, kept equal.

A writer adds to the mirror what it wrote. A reader, or a writer that does not know what a failed write left,
compares row numbers with the table and applies the difference.

A record must not be returned that another process erased or changed. Each commit to the table makes a new
version. A text that is kept in memory is used only while the newest version on the disk is one whose commits
are all in the mirror; otherwise the newest version of the table is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from sessiontree.contracts.tools.thread_calls import run_in_thread
from sessiontree.contracts.values.memory import MemoryRecord
from sessiontree.memory.failures import refuse_embedder
from sessiontree.memory.mirror.row_index import Positions, RowIndex
from sessiontree.memory.mirror.word_index import WordIndex
from sessiontree.memory.tables import ROW_ID, VECTOR, RecordTable, Vectors, read_embedder, to_vectors

_TAKEN_AT_ONCE = 1_000
_INDEXED_AT_ONCE = 400
"""So many texts a search puts into the index of words itself; it takes some milliseconds."""


class TableCache:
    """The table on the disk and its mirror in memory.

    Args:
        table: The table.
        place: Path or address of the store, for errors.
        identity: Identity of the embedder that made the vectors.
        ann_above: With more rows than this, vectors are not held in memory once there is an index of them.
        read_newest: Returns the table's newest version, or None if it is not known. None = it takes long to
            find out, as for a store on the network; then texts are always read from the table.
    """

    def __init__(
        self,
        table: RecordTable,
        place: str,
        identity: str,
        ann_above: int,
        read_newest: Callable[[], int | None] | None = None,
    ) -> None:
        self.table = table
        self.place = place
        self.ann_above = ann_above
        self._identity = identity
        self._read_newest = read_newest
        self._version: int | None = None
        """The version whose commits are all in the mirror; None if that is not known."""
        # Race: two readers that catch up at once would both read the new rows and apply them twice.
        self._changing = asyncio.Lock()
        self.builds_words = False
        """Whether this process answers many searches, so that an index of all words is worth its making."""
        self._indexing: asyncio.Task[None] | None = None
        self.mirror = self._empty(vectors=True)

    def check(self) -> None:
        """Raise MemoryFailed (``embedder``) if another embedder made the vectors."""
        stored = read_embedder(self.table.schema, self.place)
        if stored != self._identity:
            raise refuse_embedder(self.place, stored, self._identity)

    async def load(self) -> None:
        """Make a new mirror from the table."""
        async with self._changing:
            version = await self.table.catch_up()
            await self._load()
            self._version = version

    async def catch_up(self, *, surely: bool = False, with_texts: bool = False) -> None:
        """Apply what other writers did.

        Args:
            surely: Compare even if the table has the same version as before.
            with_texts: Compare texts too; otherwise they are dropped, because another process may have
                changed the text of a row, which keeps its number.
        """
        async with self._changing:
            version = await self.table.catch_up()
            if version == self._version and not surely:
                return
            self.check()
            self._version = None
            there, known = await self.table.row_ids(), self.mirror.list_living_row_ids()
            gone = np.setdiff1d(known, there, assume_unique=True)
            if 0 < len(known) == len(gone) and len(there):  # another table replaced it
                await self._load()
            else:
                positions = self.mirror.find_positions(gone)
                self.mirror.drop(positions[positions >= 0])
                if not with_texts:
                    self.mirror.forget_texts()
                await self._take_in(self.mirror)
                # Whatever is in the table has a number now; a row without one was erased before it got one.
                self.mirror.drop_unnumbered()
                if with_texts:
                    await self._read_contents(self.mirror, 0, vectors=False)
            # Last: a search that runs meanwhile must not take the mirror for up to date.
            self._version = version

    def note_commits(self, versions: Sequence[int]) -> None:
        """Note versions that commits of this process made, after the mirror has what they changed."""
        for version in versions:
            # If another process committed in between, this version has a change that the mirror has not.
            self._version = version if version - 1 == self._version else None

    async def number(self) -> None:
        """Read the numbers of rows that this process wrote."""
        if self.mirror.unnumbered:
            async with self._changing:
                if self.mirror.unnumbered:
                    # Tested again under the lock: whoever held it may have read the numbers.
                    ids, numbers = await self.table.numbers(self.mirror.next_row_id)
                    self.mirror.number(ids, numbers)

    async def tidy(self) -> None:
        """Free the memory of dead rows, and of vectors if there is an index of them; compare texts.

        Call it in the writer's turn, after the table was tidied. Nobody can tell the commits of tidying from
        those of another process, so table and mirror are compared.
        """
        if len(self.mirror) > self.ann_above and self.mirror.matrix is not None:
            if await self.table.has_vector_index():
                self.mirror.forget_vectors()
        elif self.mirror.is_crowded:
            await self.load()
        if self._read_newest is not None and self._read_newest() != self._version:
            await self.catch_up(with_texts=True)

    async def records(self, mirror: RowIndex, positions: Positions) -> list[MemoryRecord]:
        """Return the records at a mirror's positions, in that order, without those forgotten meanwhile."""
        recalled = self._recall(mirror, positions)
        if recalled is not None:
            return recalled
        taken: list[MemoryRecord] = []
        for start in range(0, len(positions), _TAKEN_AT_ONCE):
            chosen = positions[start : start + _TAKEN_AT_ONCE]
            places, rows = await self._take(mirror, chosen, vectors=False)
            texts = rows["text"].to_pylist()
            taken += [mirror.record(position, texts[place]) for position, place in places]
        return taken

    async def load_with_vectors(
        self, mirror: RowIndex, positions: Positions
    ) -> tuple[list[MemoryRecord], Vectors]:
        """Return the records at a mirror's positions and their vectors, in that order."""
        places, rows = await self._take(mirror, positions, vectors=True)
        texts = rows["text"].to_pylist()
        records = [mirror.record(position, texts[place]) for position, place in places]
        return records, to_vectors(rows)[[place for _, place in places]]

    def get_words(self, mirror: RowIndex) -> WordIndex | None:
        """Return the index of the words of all rows, or None if texts are missing or many are not in it.

        It still needs :meth:`WordIndex.update`. In a process that writes, those that are many are added in
        the background.
        """
        if not mirror.has_all_texts:
            return None
        if mirror.rows - len(mirror.words) <= _INDEXED_AT_ONCE:
            return mirror.words
        if self.builds_words and mirror is self.mirror and self._indexing is None:
            self._indexing = asyncio.create_task(self._index_words(mirror), name="memory-words")
        return None

    def close(self) -> None:
        """Release files and caches; whoever reads after this gets the table's error."""
        self._read_newest = None
        self.builds_words = False
        if self._indexing is not None:
            self._indexing.cancel()
        self.table.close()

    async def _index_words(self, mirror: RowIndex) -> None:
        try:
            # In parts, so that the last one is soon done when the store is closed.
            while len(mirror.words) < (rows := mirror.rows):
                rows = min(rows, len(mirror.words) + _INDEXED_AT_ONCE)
                await run_in_thread(mirror.words.update, mirror.texts, rows)
        finally:
            self._indexing = None

    def _recall(self, mirror: RowIndex, positions: Positions) -> list[MemoryRecord] | None:
        """Return the living records at positions from memory, or None if the table must be read."""
        found: list[MemoryRecord] = []
        for position in positions[mirror.alive()[positions]].tolist():
            text = mirror.texts.at(position)
            if text is None:
                return None
            found.append(mirror.record(position, text))
        # Nothing is awaited between this look and the answer. A mirror that was replaced learns nothing more.
        is_current = (
            mirror is self.mirror
            and self._version is not None
            and self._read_newest is not None
            and self._read_newest() == self._version
        )
        return found if is_current else None

    async def _take(
        self, mirror: RowIndex, positions: Positions, *, vectors: bool
    ) -> tuple[list[tuple[int, int]], pa.Table]:
        """Return rows of the table, and pairs of position and index of its row."""
        await self.number()
        if self._read_newest is not None:
            await self.table.catch_up()  # without it, LanceDB reads the version that this process saw last
        numbers = mirror.row_ids(positions)
        rows = await self.table.take([number for number in numbers if number >= 0], vectors=vectors)
        # A row that was forgotten after the search is missing in the answer, and so from the result.
        found = {number: place for place, number in enumerate(rows[ROW_ID].to_pylist())}
        pairs = zip(positions.tolist(), numbers, strict=True)
        return [(position, found[number]) for position, number in pairs if number in found], rows

    async def _load(self) -> None:
        few = await self.table.count() <= self.ann_above
        mirror = self._empty(vectors=few or not await self.table.has_vector_index())
        await self._take_in(mirror)
        # Replaced when it is whole: searches that run keep the old mirror, whose positions they hold.
        self.mirror = mirror

    async def _take_in(self, mirror: RowIndex) -> None:
        start = mirror.next_row_id
        mirror.load(await self.table.read_mirrored(start))
        await self._read_contents(mirror, start, vectors=mirror.matrix is not None)

    async def _read_contents(self, mirror: RowIndex, start: int, *, vectors: bool) -> None:
        """Read the texts, and perhaps the vectors, of the rows with this number or a higher one."""
        async for rows in self.table.read_contents(start, vectors=vectors):
            positions = mirror.find_positions(rows[ROW_ID].to_numpy().astype(np.int64))
            known = positions >= 0
            if vectors and mirror.matrix is not None:
                mirror.matrix.put(positions[known], to_vectors(rows)[known])
            texts = rows["text"].cast(pa.binary()).filter(pa.array(known)).to_pylist()
            mirror.put_texts(positions[known], texts)

    def _empty(self, *, vectors: bool) -> RowIndex:
        dimensions: int = self.table.schema.field(VECTOR).type.list_size
        return RowIndex(dimensions, vectors=vectors)
