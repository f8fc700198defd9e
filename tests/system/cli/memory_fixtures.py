"""What a survey left in memory, read without any session."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sessiontree.memory.embedders import make_embedder
from sessiontree.memory.settings import MemorySettings
from sessiontree.memory.store import LanceMemoryStore


async def remembered(state: Path) -> Counter[tuple[str | None, str]]:
    """Return how often each record, by source and text, is in the memory of a state directory."""
    embedder = make_embedder(MemorySettings().embedder)
    store = await LanceMemoryStore.open(str(state / "memory"), embedder, lock=False)
    try:
        found = [record async for part in store.parts() for record in part.records]
        return Counter((record.source, record.text) for record in found)
    finally:
        await store.close()
