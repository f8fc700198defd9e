"""What is no hit: a record without a word of the query, and no more similar to it than chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.store import LanceMemoryStore

SCOPE = MemoryScope("t1", "main", "a1", "/w")
RECORDS = (
    "The deploy script reads its token from the vault and restarts the workers.",
    "Alice prefers tea in the morning and dislikes long meetings.",
    "parse_config raises ValueError if max_retries is negative",
    "The database migration ran on 2024-03-01 and took four hours.",
    "Our customers in Germany ask for invoices as PDF.",
    "function Cache.get in src/cache.py returns the cached value or None",
    "Der Server läuft auf Port 8080",
    "журнал пишется одним процессом",
    "The tests use a fake clock and never sleep",
    "sky is blue",
    "用户喜欢喝茶",
    "vacation policy: 30 days a year, unused days expire in March",
)
ANSWERED = {
    "deployment token": 0,
    "who likes tea": 1,
    "maxRetries negative": 2,
    "migrating databases": 3,
    "german invoices": 4,
    "cached values": 5,
    "port of the server": 6,
    "журнал процесс": 7,
    "sleeping in tests": 8,
    "blue skies": 9,
    "喝茶": 10,
    "vacations": 11,
}
NOTHING = (
    "quantum chromodynamics lattice",
    "capital of Mongolia",
    "how do penguins fly",
    "best pizza oven temperature",
    "xylophone",
    "what is the weather in Lisbon tomorrow",
    "Wie hoch ist der Mount Everest",
    "звёзды галактики",
    "天文学",
    "knitting patterns for socks",
    "football world cup final",
)


@pytest.mark.parametrize("is_indexed", [False, True])
async def test_query_about_nothing_finds_nothing(tmp_path: Path, is_indexed: bool) -> None:
    """And a query with an answer finds it first; by comparison and by the index."""
    store = await LanceMemoryStore.open(str(tmp_path / "memory"), HashingEmbedder())
    try:
        await store.store([NewRecord(text) for text in RECORDS], SCOPE, "call")
        if is_indexed:
            store._cache.mirror.matrix = None  # as in a store of more vectors than are held
        for query in NOTHING:
            assert await store.search(MemoryQuery(query, 6), SCOPE) == [], query
        for query, answer in ANSWERED.items():
            hits = await store.search(MemoryQuery(query, 6), SCOPE)
            assert hits[0].record.text == RECORDS[answer], query
            assert hits[0].score >= 0.49, query
    finally:
        await store.close()
