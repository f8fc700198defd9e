"""Opening the store of a runtime's memory: the one place that loads its library, in whichever process."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, Final

from sessiontree.memory.place import directory_of
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.memory_peers import SharedStore
from sessiontree.runtime.memory_words import MemoryStore

_LATE: Final = {
    "store": "sessiontree.memory.store:MemoryStore",
    "embedder": "sessiontree.memory.embedders:make_embedder",
}


def _late(name: str) -> Any:
    module, _, wanted = _LATE[name].partition(":")
    return getattr(importlib.import_module(module), wanted)


async def open_store(settings: MemorySettings, uri: str) -> MemoryStore:
    """Open a store for writing, beside other programs; what blocks is done in a thread.

    A store on this machine is written by one process, which serves the others. Of one that is reached by
    network, programs see to it themselves that one alone writes it.

    Args:
        settings: What embeds its texts, and how it is reached.
        uri: Where it lies.

    Raises:
        ConfigError: its embedder can't be had.
        MemoryFailed: the store can't be opened.
    """
    store = await asyncio.to_thread(_late, "store")
    embedder = await asyncio.to_thread(lambda: _late("embedder")(settings.embedder))
    wishes = {} if settings.ann_above is None else {"ann_above": settings.ann_above}

    async def open_own() -> MemoryStore:
        opened: MemoryStore = await store.open(
            uri, embedder, storage_options=settings.revealed_options() or None, **wishes
        )
        return opened

    directory = directory_of(uri)
    if directory is None:
        return await open_own()
    shared = SharedStore(directory, embedder.identity, open_own)
    await shared.open()
    return shared
