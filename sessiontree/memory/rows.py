"""Records as rows of a table, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.memory import MemoryRecord, Source
from sessiontree.memory.matrix import Vectors

FORMAT: Final = 1
"""Of the tables; a later release may raise it."""
ROW_ID: Final = "_rowid"
"""LanceDB's own number of a row. The table is made with stable ones: they survive compaction, only grow, and
are never given twice."""
VECTOR: Final = "vector"

_TEXTS: Final = ("id", "type", "text", "path", "trust", "tree_id", "session", "agent_id", "workspace")
_NUMBERS: Final = {"first": pa.int32(), "last": pa.int32(), "created_at_ms": pa.int64()}
RECORD_COLUMNS: Final = (*_TEXTS, *_NUMBERS)
"""All that make up a record."""
MIRROR_COLUMNS: Final = tuple(name for name in RECORD_COLUMNS if name != "text")
"""All but what records say: the mirror holds the rest."""


def schema_of(identity: str, dimensions: int) -> pa.Schema:
    """Return the schema of the table of records; its metadata name the embedder of the vectors."""
    fields = [pa.field(name, pa.string(), nullable=name == "path") for name in _TEXTS]
    fields += [pa.field(name, kind, nullable=name != "created_at_ms") for name, kind in _NUMBERS.items()]
    fields.append(pa.field(VECTOR, pa.list_(pa.float32(), dimensions), nullable=False))
    return pa.schema(fields, {"sessiontree_format": str(FORMAT), "sessiontree_embedder": identity})


def embedder_of(schema: pa.Schema, place: str) -> str:
    """Return the identity of the embedder a table's vectors come from.

    Raises:
        MemoryFailed: it is no table of records, or a later release made it.
    """
    said = (schema.metadata or {}).items()
    metadata: dict[str, str] = {key.decode(): value.decode() for key, value in said}
    found = metadata.get("sessiontree_format")
    if found is None or "sessiontree_embedder" not in metadata:
        raise MemoryFailed(place, "its table was not made by this library; choose another place")
    if found != str(FORMAT):
        raise MemoryFailed(place, f"its format is {found}, this release knows {FORMAT}: use a later release")
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
    if isinstance(column, pa.ChunkedArray):  # no rows at all: Arrow keeps the chunks
        return np.empty((0, column.type.list_size), np.float32)
    flat: Vectors = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(rows), -1)
