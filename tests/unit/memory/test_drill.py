"""The drill: export, lose the store, import; what is remembered, and what is found, is the same."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from sessiontree.contracts.values.memory import (
    RECORD_TYPES,
    TRUSTS,
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
)
from sessiontree.journal.export import open_private_file
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.import_export import Imported, import_export, write_export
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.tables import FinishedTree

WORDS = ["retry", "handling", "parser", "gateway", "journal", "commit", "重试", "запит", "maxRetries", "lock"]
SCOPES = [
    MemoryScope(tree, session, "default", "/w")
    for tree in ("t1", "t2", "t3")
    for session in ("main", "main/b1")
]
QUERIES = [MemoryQuery(f"{one} {other}", 20) for one in WORDS[:6] for other in WORDS[6:9]]


async def look(
    store: LanceMemoryStore,
) -> tuple[list[MemoryRecord], list[FinishedTree], list[list[MemoryHit]]]:
    """Return all that a store holds, and what the owner and each session find in it."""
    records = [record async for part in store.parts() for record in part.records]
    found = [await store.search(query, scope) for query in QUERIES for scope in (None, *SCOPES)]
    return records, store.list_finished_trees(), found


async def fill(store: LanceMemoryStore) -> None:
    """Store some hundred records as several sessions, forget some, finish two of the trees."""
    chance = random.Random(4)
    for number, scope in enumerate(SCOPES):
        new = [
            NewRecord(
                f"{chance.choice(WORDS)} {chance.choice(WORDS)} {number} {index}",
                chance.choice(RECORD_TYPES),
                chance.choice([None, f"src/{chance.choice(WORDS)}.py#L{index + 1}-L{index + 4}", "notes.md"]),
                chance.choice(TRUSTS),
            )
            for index in range(60)
        ]
        await store.store(new, scope, f"call{number}")
    await store.forget(Selection(path="src/lock.py"), None)
    for tree, ended in (("t1", 8), ("t2", 9)):
        await store.mark_finished(tree, agent_id="default", workspace="/w", ended_at_ms=ended)


async def export(store: LanceMemoryStore, path: Path) -> None:
    """Export a store into a file."""
    batches = (part.records async for part in store.parts(at_once=100))
    with open_private_file(path) as out:
        await write_export(batches, store.list_finished_trees(), out, embedder="hashing-384-v1", at_ms=1)


@pytest.mark.covers("A42")
@pytest.mark.slow
async def test_lost_store_comes_back_from_its_export(tmp_path: Path) -> None:
    """Records, finished trees and every search are equal; importing again adds nothing; so is the export."""
    place, first, second = tmp_path / "memory", tmp_path / "first.ndjson", tmp_path / "second.ndjson"
    async with await LanceMemoryStore.open(str(place), HashingEmbedder()) as store:
        await fill(store)
        await store.tidy()
        before = await look(store)
        await export(store, first)
    shutil.rmtree(place)
    async with await LanceMemoryStore.open(str(place), HashingEmbedder()) as store:
        for added in (len(before[0]), 0):
            with first.open("rb") as file:
                assert await import_export(store, file, str(first)) == Imported(len(before[0]), added, 2)
        await store.tidy()
        assert await look(store) == before
        await export(store, second)
    assert first.read_bytes() == second.read_bytes()


async def test_export_runs_beside_a_writer(tmp_path: Path) -> None:
    """A reader exports a whole state while the writer goes on."""
    path = tmp_path / "memory.ndjson"
    async with await LanceMemoryStore.open(str(tmp_path / "memory"), HashingEmbedder()) as writer:
        await fill(writer)
        async with await LanceMemoryStore.open(
            str(tmp_path / "memory"), HashingEmbedder(), lock=False
        ) as reader:
            parts = reader.parts(at_once=50)
            first = await anext(parts)
            await writer.store([NewRecord("later")], SCOPES[0], "later")
            records = [*first.records, *[record async for part in parts for record in part.records]]
            assert len(records) == len(writer) - 1
            await export(reader, path)
        assert path.read_text().count('"record"') == len(writer)
