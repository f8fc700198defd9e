"""The table of records in LanceDB: the only file that knows how it is asked.

Every call raises a :class:`MemoryFailed` where LanceDB fails. The table is made with stable row ids, so a
row keeps its number when files are compacted. Full text is split by ICU, so that scripts without spaces
have words too, and English words are stemmed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, IvfFlat
from lancedb.query import MatchQuery
from numpy.typing import NDArray

from sessiontree.memory.failures import typed_reads, typed_searches, typed_writes
from sessiontree.memory.matrix import Vectors
from sessiontree.memory.rows import MIRROR_COLUMNS, ROW_ID, VECTOR, to_vectors

RECORDS: Final = "records"
TEXT_INDEX: Final = FTS(base_tokenizer="icu/split")
OLD_VERSIONS_FOR: Final = timedelta(seconds=10)
"""How long a version outlives the next: whoever reads it has so long to finish."""
_MOST_IN_A_LIST: Final = 10_000
_LOADED_AT_ONCE: Final = 4_096
_PROBES: Final = 32
"""Parts of the index of vectors that a search looks into; each has some thousand rows."""


async def connect(uri: str, storage_options: Mapping[str, str] | None = None) -> Any:
    """Return a connection to the database at an address; tables it makes have stable row ids."""
    options = {**(storage_options or {}), "new_table_enable_stable_row_ids": "true"}
    with typed_reads(uri):
        return await lancedb.connect_async(uri, storage_options=options)


async def open_table(connection: Any, name: str, place: str) -> Any | None:
    """Return a table, None where there is none.

    Raises:
        MemoryFailed: it is there and can't be opened.
    """
    with typed_reads(place):
        names = (await connection.list_tables()).tables
        return await connection.open_table(name) if name in names else None


class RecordTable:
    """Rows of records and vectors, their full-text index, and perhaps one of vectors.

    Args:
        table: The open table.
        place: Path or address of the store, for errors.
        dimensions: Of its vectors.
    """

    def __init__(self, table: Any, place: str, schema: pa.Schema) -> None:
        self._table = table
        self._place = place
        self.schema = schema

    @classmethod
    async def create(cls, connection: Any, place: str, schema: pa.Schema) -> RecordTable:
        """Make an empty table with its full-text index."""
        with typed_writes(place):
            table = await connection.create_table(RECORDS, schema=schema, exist_ok=True)
            made = cls(table, place, schema)
            await made.index_text()
        return made

    @classmethod
    async def open(cls, connection: Any, place: str) -> RecordTable | None:
        """Open the table; None where there is none."""
        table = await open_table(connection, RECORDS, place)
        if table is None:
            return None
        with typed_reads(place):
            return cls(table, place, await table.schema())

    async def index_text(self) -> None:
        """Make the full-text index where it is missing: a crash may have come between table and index."""
        with typed_writes(self._place):
            if not await self._indexed("text"):
                await self._table.create_index("text", config=TEXT_INDEX)

    async def index_vectors(self) -> None:
        """Make an approximate index of the vectors, or make it anew."""
        with typed_writes(self._place):
            await self._table.create_index(VECTOR, config=IvfFlat(distance_type="dot"), replace=True)

    async def has_vector_index(self) -> bool:
        """Whether there is an index of the vectors."""
        with typed_reads(self._place):
            return await self._indexed(VECTOR)

    async def catch_up(self) -> bool:
        """Look at the newest version; return whether it is another than before."""
        with typed_reads(self._place):
            before = await self._table.version()
            await self._table.checkout_latest()
            after = await self._table.version()
            if before != after:
                self.schema = await self._table.schema()
        return bool(before != after)

    async def add(self, rows: pa.Table) -> None:
        """Append rows in one commit."""
        with typed_writes(self._place):
            await self._table.add(rows)

    async def delete(self, row_ids: Sequence[int]) -> None:
        """Delete rows by number; many in several commits."""
        with typed_writes(self._place):
            for start in range(0, len(row_ids), _MOST_IN_A_LIST):
                part = row_ids[start : start + _MOST_IN_A_LIST]
                await self._table.delete(f"{ROW_ID} IN ({','.join(map(str, part))})")

    async def optimize(self) -> None:
        """Merge small files and bring indexes up to date."""
        with typed_writes(self._place):
            await self._table.optimize()

    async def prune(self) -> None:
        """Remove what old versions alone hold; only once the newest has reached the disk."""
        with typed_writes(self._place):
            await self._table.optimize(cleanup_older_than=OLD_VERSIONS_FOR)

    async def count(self) -> int:
        """Return how many rows there are."""
        with typed_reads(self._place):
            return int(await self._table.count_rows())

    async def fragments(self) -> int:
        """Return of how many pieces the table is; each commit adds one."""
        with typed_reads(self._place):
            return int((await self._table.stats())["fragment_stats"]["num_fragments"])

    async def row_ids(self) -> NDArray[np.int64]:
        """Return the numbers of all rows, ascending."""
        with typed_reads(self._place):
            found = await self._table.query().select([]).with_row_id().to_arrow()
        numbers: NDArray[np.int64] = np.sort(found[ROW_ID].to_numpy().astype(np.int64))
        return numbers

    async def numbers(self, start: int) -> tuple[list[str], NDArray[np.int64]]:
        """Return ids and numbers of the rows from a number on, in any order."""
        with typed_reads(self._place):
            query = self._table.query().where(f"{ROW_ID} >= {start}").select(["id"]).with_row_id()
            found = await query.to_arrow()
        return found["id"].to_pylist(), found[ROW_ID].to_numpy().astype(np.int64)

    async def mirrored(self, start: int) -> pa.Table:
        """Return the rows from a number on with all by which they are found, by ascending number."""
        with typed_reads(self._place):
            query = self._table.query().where(f"{ROW_ID} >= {start}").select(list(MIRROR_COLUMNS))
            return (await query.with_row_id().to_arrow()).sort_by(ROW_ID)

    async def vectors(self, start: int) -> AsyncIterator[tuple[NDArray[np.int64], Vectors]]:
        """Yield numbers and vectors of the rows from a number on, part by part, in any order."""
        with typed_reads(self._place):
            query = self._table.query().where(f"{ROW_ID} >= {start}").select([VECTOR]).with_row_id()
            async for batch in await query.to_batches(max_batch_length=_LOADED_AT_ONCE):
                rows = pa.Table.from_batches([batch])
                yield rows[ROW_ID].to_numpy().astype(np.int64), to_vectors(rows)

    async def take(self, row_ids: Sequence[int], *, vectors: bool = False) -> pa.Table:
        """Return the texts of the rows of these numbers, in any order; those deleted meanwhile are left out.

        Args:
            row_ids: The rows' numbers.
            vectors: Whether their vectors come too.
        """
        columns = ["text", VECTOR] if vectors else ["text"]
        with typed_reads(self._place):
            return await self._table.take_row_ids(list(row_ids)).select(columns).with_row_id().to_arrow()

    async def matching(self, text: str, most: int, among: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the numbers of rows whose text has words of this one, best by BM25 first.

        Args:
            text: The words; a quote or an operator among them means nothing.
            most: How many.
            among: Only these rows; None = all. What is left out counts in how rare a word is.
        """
        with typed_searches(self._place):
            query = self._among(self._table.query(), among)
            # never a string, which LanceDB reads as a language; pydantic has defaults that mypy does not see
            words = MatchQuery(text, "text")  # type: ignore[call-arg]
            query = query.nearest_to_text(words).select(["_score"]).with_row_id().limit(most)
            found = await query.to_arrow()
        numbers, scores = found[ROW_ID].to_numpy().astype(np.int64), found["_score"].to_numpy()
        ranked: NDArray[np.int64] = numbers[np.lexsort((numbers, -scores))]
        return ranked

    async def nearest(self, vector: Vectors, most: int, among: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the numbers of rows with the nearest vectors by the index, nearest first.

        Args:
            vector: What they are compared with.
            most: How many.
            among: Only these rows; None = all.
        """
        with typed_searches(self._place):
            query = self._among(self._table.query(), among).nearest_to(vector).distance_type("dot")
            query = query.nprobes(_PROBES).select(["_distance"]).with_row_id().limit(most)
            found = await query.to_arrow()
        numbers, distances = found[ROW_ID].to_numpy().astype(np.int64), found["_distance"].to_numpy()
        ranked: NDArray[np.int64] = numbers[np.lexsort((numbers, distances))]
        return ranked

    def folder(self, directory: Path) -> Path:
        """Return the table's own directory in that of a local store."""
        return directory / f"{RECORDS}.lance"

    def close(self) -> None:
        """Let go of files and caches."""
        self._table.close()

    async def _indexed(self, column: str) -> bool:
        return any(column in index.columns for index in await self._table.list_indices())

    @staticmethod
    def _among(query: Any, row_ids: Sequence[int] | None) -> Any:
        return query if row_ids is None else query.where(f"{ROW_ID} IN ({','.join(map(str, row_ids))})")
