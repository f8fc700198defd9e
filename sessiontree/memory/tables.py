"""The two tables of a store in LanceDB: records, and the trees whose Main has finished.

Only this module queries LanceDB. Every call raises a :class:`MemoryFailed` when LanceDB fails. The table of
records has stable row ids: a row keeps its number when files are compacted. ICU splits full text, so that
scripts without spaces have words too; English words are stemmed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryRecord, Source
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.failures import convert_read_errors, convert_search_errors, convert_write_errors


def _run_when_used(package: str) -> None:
    """Let a package's own file run when a name of it is first used; its submodules are there at once."""
    found = None if package in sys.modules else importlib.util.find_spec(package)
    if found is None or found.loader is None:
        return
    module, loader = importlib.util.module_from_spec(found), found.loader

    def load_on_first_use(name: str) -> Any:
        vars(module).pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, name)

    vars(module)["__getattr__"] = load_on_first_use
    sys.modules[package] = module


# LanceDB uses the models of its REST client only. To build the rest of it takes half the time of this import.
_run_when_used("lance_namespace_urllib3_client")
import lancedb  # noqa: E402
from lancedb.index import FTS, IvfFlat  # noqa: E402
from lancedb.query import MatchQuery  # noqa: E402

Vectors = NDArray[np.float32]

FORMAT: Final = 1
"""Version of the tables; a later release may raise it."""
ROW_ID: Final = "_rowid"
"""LanceDB's own number of a row. The numbers survive compaction, only grow, and are never reused."""
VECTOR: Final = "vector"

_TEXTS: Final = ("id", "type", "text", "path", "trust", "tree_id", "session", "agent_id", "workspace")
_NUMBERS: Final = {"first": pa.int32(), "last": pa.int32(), "created_at_ms": pa.int64()}
RECORD_COLUMNS: Final = (*_TEXTS, *_NUMBERS)
"""The columns of a record."""
MIRROR_COLUMNS: Final = tuple(name for name in RECORD_COLUMNS if name != "text")
"""All columns except the text: the mirror holds these."""


def build_schema(identity: str, dimensions: int) -> pa.Schema:
    """Return the schema of the table of records; its metadata names the embedder of the vectors."""
    fields = [pa.field(name, pa.string(), nullable=name == "path") for name in _TEXTS]
    fields += [pa.field(name, kind, nullable=name != "created_at_ms") for name, kind in _NUMBERS.items()]
    fields.append(pa.field(VECTOR, pa.list_(pa.float32(), dimensions), nullable=False))
    return pa.schema(fields, {"sessiontree_format": str(FORMAT), "sessiontree_embedder": identity})


def read_embedder(schema: pa.Schema, place: str) -> str:
    """Return the identity of the embedder that made a table's vectors.

    Raises:
        MemoryFailed: it is not a table of records, or a later release made it.
    """
    encoded = (schema.metadata or {}).items()
    metadata: dict[str, str] = {key.decode(): value.decode() for key, value in encoded}
    found = metadata.get("sessiontree_format")
    if found is None or "sessiontree_embedder" not in metadata:
        raise MemoryFailed(place, "this library did not make its table; choose another place")
    if found != str(FORMAT):
        raise MemoryFailed(place, f"its format is {found}, this release reads {FORMAT}; use a later release")
    return metadata["sessiontree_embedder"]


def to_table(records: Sequence[MemoryRecord], vectors: Vectors, schema: pa.Schema) -> pa.Table:
    """Return records and their vectors as rows, in that order."""
    sources = [None if record.source is None else Source.of(record.source) for record in records]
    columns: dict[str, Any] = {
        "id": [record.id for record in records],
        "type": [record.type for record in records],
        "text": [record.text for record in records],
        "path": [source and source.path for source in sources],
        "trust": [record.trust for record in records],
        "tree_id": [record.scope.tree_id for record in records],
        "session": [record.scope.session for record in records],
        "agent_id": [record.scope.agent_id for record in records],
        "workspace": [record.scope.workspace for record in records],
        "first": [source and source.first for source in sources],
        "last": [source and source.last for source in sources],
        "created_at_ms": [record.created_at_ms for record in records],
    }
    arrays = [pa.array(columns[name], schema.field(name).type) for name in RECORD_COLUMNS]
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    arrays.append(pa.FixedSizeListArray.from_arrays(flat, schema.field(VECTOR).type.list_size))
    return pa.table(arrays, schema=schema)


def to_vectors(rows: pa.Table) -> Vectors:
    """Return the vectors of rows, shape (rows, dimensions)."""
    column = rows.column(VECTOR).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # without rows, Arrow keeps the chunks
        return np.empty((0, column.type.list_size), np.float32)
    flat: Vectors = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(rows), -1)


RECORDS: Final = "records"
TEXT_INDEX: Final = FTS(base_tokenizer="icu/split")
_BETWEEN: Final = "0zq7x4w9k2"
"""A word that texts do not have."""
OLD_VERSIONS_FOR: Final = timedelta(seconds=10)
"""How long a version is kept after the next one, so that its readers can finish."""
_MAX_IN_A_LIST: Final = 10_000
_LOADED_AT_ONCE: Final = 4_096
_PROBES: Final = 32
"""How many parts of the vector index a search reads; a part has some thousand rows."""


def split_words(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text as the full-text index has them, without endings. Blocks."""
    # LanceDB takes 2 ms to prepare each call, so all texts go in one, with a word between every two.
    words: list[list[str]] = [[]]
    for word in _split_text(f" {_BETWEEN} ".join(texts)) if texts else ():
        if word == _BETWEEN:
            words.append([])
        else:
            words[-1].append(word)
    if len(words) != len(texts):  # no texts, or one of them has the word
        return [_split_text(text) for text in texts]
    return words


def _split_text(text: str) -> list[str]:
    return [token.text for token in lancedb.tokenize(text, base_tokenizer=TEXT_INDEX.base_tokenizer)]


async def connect(uri: str, storage_options: Mapping[str, str] | None = None) -> Any:
    """Return a connection to the database at an address; it makes tables with stable row ids."""
    options = {**(storage_options or {}), "new_table_enable_stable_row_ids": "true"}
    with convert_read_errors(uri):
        return await lancedb.connect_async(uri, storage_options=options)


async def open_table(connection: Any, name: str, place: str) -> Any | None:
    """Return a table, or None if it does not exist.

    Raises:
        MemoryFailed: it exists and cannot be opened.
    """
    with convert_read_errors(place):
        names = (await connection.list_tables()).tables
        return await connection.open_table(name) if name in names else None


class RecordTable:
    """Rows of records and vectors, their full-text index, and perhaps an index of the vectors.

    Args:
        table: The open table.
        place: Path or address of the store, for errors.
        schema: The table's schema.
    """

    def __init__(self, table: Any, place: str, schema: pa.Schema) -> None:
        self._table = table
        self._place = place
        self.schema = schema

    @classmethod
    async def create(cls, connection: Any, place: str, schema: pa.Schema) -> RecordTable:
        """Make an empty table with its full-text index."""
        with convert_write_errors(place):
            table = await connection.create_table(RECORDS, schema=schema, exist_ok=True)
            made = cls(table, place, schema)
            await made.index_text()
        return made

    @classmethod
    async def open(cls, connection: Any, place: str) -> RecordTable | None:
        """Open the table; return None if it does not exist."""
        table = await open_table(connection, RECORDS, place)
        if table is None:
            return None
        with convert_read_errors(place):
            return cls(table, place, await table.schema())

    async def index_text(self) -> None:
        """Make the full-text index if it is missing, as after a crash between table and index."""
        with convert_write_errors(self._place):
            if not await self._is_indexed("text"):
                await self._table.create_index("text", config=TEXT_INDEX)

    async def index_vectors(self) -> None:
        """Make or replace the approximate index of the vectors."""
        with convert_write_errors(self._place):
            await self._table.create_index(VECTOR, config=IvfFlat(distance_type="dot"), replace=True)

    async def has_vector_index(self) -> bool:
        """Whether there is an index of the vectors."""
        with convert_read_errors(self._place):
            return await self._is_indexed(VECTOR)

    async def catch_up(self) -> int:
        """Switch to the newest version and return its number."""
        with convert_read_errors(self._place):
            await self._table.checkout_latest()
            self.schema = await self._table.schema()
            return int(await self._table.version())

    async def add(self, rows: pa.Table) -> int:
        """Append rows in one commit; return the version that it made."""
        with convert_write_errors(self._place):
            return int((await self._table.add(rows)).version)

    async def delete(self, row_ids: Sequence[int]) -> list[int]:
        """Delete rows by number, in several commits if they are many; return the versions that they made."""
        versions: list[int] = []
        with convert_write_errors(self._place):
            for start in range(0, len(row_ids), _MAX_IN_A_LIST):
                part = row_ids[start : start + _MAX_IN_A_LIST]
                deleted = await self._table.delete(f"{ROW_ID} IN ({','.join(map(str, part))})")
                versions.append(int(deleted.version))
        return versions

    async def optimize(self) -> None:
        """Merge small files and bring indexes up to date."""
        with convert_write_errors(self._place):
            await self._table.optimize()

    async def prune(self) -> None:
        """Remove files that only old versions use; call it only once the newest is on the disk."""
        with convert_write_errors(self._place):
            await self._table.optimize(cleanup_older_than=OLD_VERSIONS_FOR)

    async def count(self) -> int:
        """Return how many rows there are."""
        with convert_read_errors(self._place):
            return int(await self._table.count_rows())

    async def count_fragments(self) -> int:
        """Return how many pieces the table consists of; each commit adds one."""
        with convert_read_errors(self._place):
            return int((await self._table.stats())["fragment_stats"]["num_fragments"])

    async def row_ids(self) -> NDArray[np.int64]:
        """Return the numbers of all rows, ascending."""
        with convert_read_errors(self._place):
            found = await self._table.query().select([]).with_row_id().to_arrow()
        numbers: NDArray[np.int64] = np.sort(found[ROW_ID].to_numpy().astype(np.int64))
        return numbers

    async def numbers(self, start: int) -> tuple[list[str], NDArray[np.int64]]:
        """Return ids and numbers of the rows with this number or a higher one, in any order."""
        with convert_read_errors(self._place):
            query = self._table.query().where(f"{ROW_ID} >= {start}").select(["id"]).with_row_id()
            found = await query.to_arrow()
        return found["id"].to_pylist(), found[ROW_ID].to_numpy().astype(np.int64)

    async def read_mirrored(self, start: int) -> pa.Table:
        """Return the mirrored columns of the rows with this number or a higher one, by ascending number."""
        with convert_read_errors(self._place):
            query = self._table.query().where(f"{ROW_ID} >= {start}").select(list(MIRROR_COLUMNS))
            return (await query.with_row_id().to_arrow()).sort_by(ROW_ID)

    async def read_contents(self, start: int, *, vectors: bool) -> AsyncIterator[pa.Table]:
        """Yield texts of the rows with this number or a higher one, in parts, in any order.

        Args:
            start: The number.
            vectors: Whether to return their vectors too.
        """
        columns = ["text", VECTOR] if vectors else ["text"]
        with convert_read_errors(self._place):
            query = self._table.query().where(f"{ROW_ID} >= {start}").select(columns).with_row_id()
            async for batch in await query.to_batches(max_batch_length=_LOADED_AT_ONCE):
                yield pa.Table.from_batches([batch])

    async def take(self, row_ids: Sequence[int], *, vectors: bool = False) -> pa.Table:
        """Return the texts of the rows with these numbers, in any order, without rows that were deleted.

        Args:
            row_ids: The rows' numbers.
            vectors: Whether to return their vectors too.
        """
        columns = ["text", VECTOR] if vectors else ["text"]
        with convert_read_errors(self._place):
            return await self._table.take_row_ids(list(row_ids)).select(columns).with_row_id().to_arrow()

    async def find_matching(self, text: str, most: int, among: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the numbers of rows whose text contains words of this one, best by BM25 first.

        Args:
            text: The words; quotes and operators have no meaning.
            most: How many rows at most.
            among: Only these rows; None = all. All rows count for how rare a word is.
        """
        with convert_search_errors(self._place):
            query = self._restrict_rows(self._table.query(), among)
            # LanceDB would parse a string as a query language; mypy does not see pydantic's defaults
            words = MatchQuery(text, "text")  # type: ignore[call-arg]
            query = query.nearest_to_text(words).select(["_score"]).with_row_id().limit(most)
            found = await query.to_arrow()
        numbers, scores = found[ROW_ID].to_numpy().astype(np.int64), found["_score"].to_numpy()
        ranked: NDArray[np.int64] = numbers[np.lexsort((numbers, -scores))]
        return ranked

    async def find_nearest(
        self, vector: Vectors, least: float, most: int, among: Sequence[int] | None
    ) -> NDArray[np.int64]:
        """Return the numbers of the rows with the nearest vectors, found by the index, nearest first.

        Args:
            vector: The vector to compare with.
            least: The inner product that a row has at least.
            most: How many rows at most.
            among: Only these rows; None = all.
        """
        with convert_search_errors(self._place):
            query = self._restrict_rows(self._table.query(), among).nearest_to(vector).distance_type("dot")
            query = query.nprobes(_PROBES).select(["_distance"]).with_row_id().limit(most)
            found = await query.to_arrow()
        numbers, distances = found[ROW_ID].to_numpy().astype(np.int64), found["_distance"].to_numpy()
        is_similar = 1 - distances >= least  # the distance of "dot"
        numbers, distances = numbers[is_similar], distances[is_similar]
        ranked: NDArray[np.int64] = numbers[np.lexsort((numbers, distances))]
        return ranked

    def folder(self, directory: Path) -> Path:
        """Return the table's own directory within the directory of a local store."""
        return directory / f"{RECORDS}.lance"

    def close(self) -> None:
        """Release files and caches."""
        self._table.close()

    async def _is_indexed(self, column: str) -> bool:
        return any(column in index.columns for index in await self._table.list_indices())

    @staticmethod
    def _restrict_rows(query: Any, row_ids: Sequence[int] | None) -> Any:
        return query if row_ids is None else query.where(f"{ROW_ID} IN ({','.join(map(str, row_ids))})")


MAINS: Final = "mains"
_FINISHED_SCHEMA: Final = pa.schema(
    [
        pa.field("tree_id", pa.string(), nullable=False),
        pa.field("agent_id", pa.string(), nullable=False),
        pa.field("workspace", pa.string(), nullable=False),
        pa.field("ended_at_ms", pa.int64(), nullable=False),
    ]
)
_MAX_COMMITS: Final = 100
"""After this many commits the small files are merged."""


@dataclass(frozen=True, slots=True)
class FinishedTree:
    """A tree whose Main has completed."""

    tree_id: str
    agent_id: str
    workspace: str
    ended_at_ms: int


class FinishedTrees:
    """The small table of finished trees, held completely in memory."""

    def __init__(self, connection: Any, table: Any | None, place: str) -> None:
        self._connection = connection
        self._table = table
        self._place = place
        self._trees: dict[str, FinishedTree] = {}
        self._commits = 0

    @classmethod
    async def open(cls, connection: Any, place: str, *, create: bool) -> FinishedTrees:
        """Open the table. Without ``create`` a missing table counts as empty."""
        table = await open_table(connection, MAINS, place)
        if table is None and create:
            with convert_write_errors(place):
                table = await connection.create_table(MAINS, schema=_FINISHED_SCHEMA, exist_ok=True)
        opened = cls(connection, table, place)
        await opened.load()
        return opened

    @property
    def trees(self) -> Mapping[str, FinishedTree]:
        """All finished trees by tree id."""
        return self._trees

    async def load(self) -> None:
        """Read what other processes wrote since."""
        if self._table is None:
            self._table = await open_table(self._connection, MAINS, self._place)
        if self._table is None:
            return
        with convert_read_errors(self._place):
            before = await self._table.version()
            await self._table.checkout_latest()
            # An empty cache is always read: it may be empty because nothing was read so far.
            if self._trees and await self._table.version() == before:
                return
            rows = await self._table.query().to_arrow()
        self._trees = {row["tree_id"]: FinishedTree(**row) for row in rows.to_pylist()}

    async def add(self, trees: list[FinishedTree]) -> None:
        """Add the trees that are not in the table yet, in one commit."""
        fresh = {tree.tree_id: tree for tree in trees if tree.tree_id not in self._trees}
        if self._table is None or not fresh:
            return
        rows = [asdict(tree) for tree in fresh.values()]
        with convert_write_errors(self._place):
            await self._table.add(pa.Table.from_pylist(rows, schema=_FINISHED_SCHEMA))
            self._trees |= fresh
            self._commits += 1
            if self._commits >= _MAX_COMMITS:
                await self._table.optimize(cleanup_older_than=OLD_VERSIONS_FOR)
                self._commits = 0

    async def remove(self, tree_id: str) -> None:
        """Remove a tree from the table, if it is there."""
        if self._table is None or tree_id not in self._trees:
            return
        # LanceDB takes conditions only as text, and a quote in an id must not end the literal.
        quoted = tree_id.replace("'", "''")
        with convert_write_errors(self._place):
            await self._table.delete(f"tree_id = '{quoted}'")
            del self._trees[tree_id]
            await self._table.optimize(cleanup_older_than=OLD_VERSIONS_FOR)

    def close(self) -> None:
        """Release files."""
        if self._table is not None:
            self._table.close()
