"""Opening a store for what needs no vectors: listing, exporting and forgetting work whatever made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.memory.matrix import Vectors
from sessiontree.memory.place import directory_of
from sessiontree.memory.rows import VECTOR, embedder_of
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.table import RecordTable, connect

NOTHING_YET: Final = "nothing is remembered there yet; check the place"


@dataclass(frozen=True, slots=True)
class KnownByName:
    """An embedder of which a store tells no more than its name."""

    identity: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Refuse: it can't be asked."""
        raise MemoryFailed(self.identity, f"only its name is known; {len(texts)} texts can't be embedded")


async def stored_embedder(uri: str, storage_options: Mapping[str, str] | None = None) -> KnownByName | None:
    """Return what made a store's vectors; None where there is no store. Never makes one.

    Raises:
        MemoryFailed: it can't be read.
    """
    directory = directory_of(uri)
    if directory is not None and not directory.is_dir():
        return None
    table = await RecordTable.open(await connect(uri, storage_options), uri)
    if table is None:
        return None
    try:
        dimensions: int = table.schema.field(VECTOR).type.list_size
        return KnownByName(embedder_of(table.schema, uri), dimensions)
    finally:
        table.close()


async def open_as_stored(
    uri: str, *, lock: bool, storage_options: Mapping[str, str] | None = None
) -> tuple[LanceMemoryStore, KnownByName]:
    """Open a store under the name of the embedder that made it; it can neither search nor add texts.

    Raises:
        MemoryLocked: ``lock``, and another process writes it.
        MemoryFailed: there is none, or it can't be read.
    """
    embedder = await stored_embedder(uri, storage_options)
    if embedder is None:
        raise MemoryFailed(uri, NOTHING_YET)
    store = await LanceMemoryStore.open(uri, embedder, lock=lock, storage_options=storage_options)
    return store, embedder
