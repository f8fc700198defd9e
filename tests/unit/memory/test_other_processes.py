"""What another process does to the table: nothing that it erased is returned, and no text that it changed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import lancedb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord, Selection
from sessiontree.memory.mirror.columns import TextColumn
from sessiontree.memory.place import VersionFolder
from sessiontree.memory.store import LanceMemoryStore
from tests.example_fixtures import examples
from tests.unit.memory.record_strategies import ToyEmbedder

SCOPE = MemoryScope("t1", "main", "a1", "/w")
Step: TypeAlias = tuple[str, int]
names = st.sampled_from(
    ("store", "forget", "tidy", "search", "search", "erased elsewhere", "changed elsewhere")
)
steps = st.lists(st.tuples(names, st.integers(0, 30)), min_size=2, max_size=12)


class Watched:
    """A store, a reader of it, and what they must return."""

    def __init__(self, store: LanceMemoryStore, reader: LanceMemoryStore, table: Any) -> None:
        self._store = store
        self._reader = reader
        self._table = table
        """The table as another process opened it: LanceDB tells the handles above nothing of its commits."""
        self.texts: dict[str, str] = {}
        self._stored = 0

    async def step(self, name: str, number: int) -> None:
        """Do one thing; numbers name living records."""
        chosen = sorted(self.texts)[number % len(self.texts)] if self.texts else None
        if name == "store":
            self._stored += 1
            texts = [f"fox {self._stored} {n}" for n in range(1 + number % 3)]
            ids = await self._store.store([NewRecord(text) for text in texts], SCOPE, f"call {self._stored}")
            self.texts |= dict(zip(ids, texts, strict=True))
        elif name == "tidy":
            await self._store.tidy()
        elif name == "search":
            await self.check()
        elif chosen is not None:
            await self._change(name, chosen, number)

    async def _change(self, name: str, chosen: str, number: int) -> None:
        if name == "changed elsewhere":
            self.texts[chosen] = f"fox changed {number}"
            await self._table.checkout_latest()
            await self._table.update({"text": self.texts[chosen]}, where=f"id = '{chosen}'")
            return
        del self.texts[chosen]
        if name == "forget":
            await self._insist(partial(self._store.forget, Selection(ids=(chosen,)), SCOPE))
        else:
            await self._table.checkout_latest()
            await self._table.delete(f"id = '{chosen}'")

    async def _insist(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it again if LanceDB refuses it for a commit that it did not know of."""
        try:
            await act()
        except MemoryFailed as error:
            assert "conflict" in error.reason
            await act()

    async def check(self) -> None:
        """Whatever is returned is there, with the text that it has now; nothing is missing from `get`."""
        for store in (self._store, self._reader):
            hits = await store.search(MemoryQuery("fox", 100), SCOPE)
            found = {hit.record.id: hit.record.text for hit in hits}
            assert found == self.texts
            records = await store.get(sorted(self.texts), SCOPE)
            assert {record.id: record.text for record in records} == self.texts


async def watch(done: list[Step]) -> None:
    """Take steps from an empty store, and look at its end."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            await LanceMemoryStore.open(directory, ToyEmbedder()) as store,
            await LanceMemoryStore.open(directory, ToyEmbedder(), lock=False) as reader,
        ):
            table = await (await lancedb.connect_async(directory)).open_table("records")
            watched = Watched(store, reader, table)
            for name, number in [("store", 2), ("store", 1), *done]:
                await watched.step(name, number)
            await watched.check()


@pytest.mark.covers("MEM19")
@pytest.mark.slow
@settings(max_examples=examples(12))
@given(steps)
@example([("search", 0), ("erased elsewhere", 1), ("search", 0)])
@example([("tidy", 0), ("changed elsewhere", 1), ("search", 0), ("store", 0)])
@example([("tidy", 0), ("erased elsewhere", 1), ("store", 0), ("search", 0), ("tidy", 0), ("search", 0)])
@example([("erased elsewhere", 0), ("store", 0), ("forget", 0), ("tidy", 0)])
def test_what_another_process_did_is_seen(done: list[Step]) -> None:
    """Erased or changed between any two steps, by a connection that the store knows nothing of."""
    asyncio.run(watch(done))


async def test_texts_are_in_memory_until_another_process_commits(tmp_path: Path) -> None:
    """Own commits change nothing; after another's the table is read, until a tidying has compared both."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        reads = count_reads(store)
        ids = await store.store([NewRecord(f"fox {n}") for n in range(8)], SCOPE, "one")
        await store.forget(Selection(ids=(ids[0],)), SCOPE)
        texts = store._cache.mirror.texts
        assert [texts.at(0), texts.at(1)] == [None, "fox 1"]
        assert len(await store.search(MemoryQuery("fox"), SCOPE)) == 7
        await store.tidy()
        assert len(await store.get(ids, SCOPE)) == 7
        assert reads == []
        table = await (await lancedb.connect_async(tmp_path)).open_table("records")
        await table.delete(f"id = '{ids[1]}'")
        assert len(await store.get(ids, SCOPE)) == 6
        await store.store([NewRecord("fox")], SCOPE, "two")
        assert len(await store.get(ids, SCOPE)) == 6
        assert len(reads) == 2
        await store.tidy()
        assert len(await store.get(ids, SCOPE)) == 6
        assert (len(reads), len(store)) == (2, 7)
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as again:
        reads = count_reads(again)
        assert len(await again.search(MemoryQuery("fox"), SCOPE)) == 7
        assert reads == []


def count_reads(store: LanceMemoryStore) -> list[int]:
    """Return a list that gets the number of rows of each look at the table for texts."""
    reads: list[int] = []
    take = store._cache.table.take

    async def counted(row_ids: Sequence[int], *, vectors: bool = False) -> Any:
        reads.append(len(row_ids))
        return await take(row_ids, vectors=vectors)

    store._cache.table.take = counted  # type: ignore[method-assign]
    return reads


async def test_names_tell_the_version(tmp_path: Path) -> None:
    """As LanceDB tells it itself; names of another form tell nothing, and neither does a missing folder."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        names = VersionFolder(tmp_path / "records.lance", None)
        for n in range(12):
            await store.store([NewRecord(f"fox {n}")], SCOPE, str(n))
            assert names.read_newest() == await store._cache.table._table.version()
    folder = tmp_path / "other" / "_versions"
    other = VersionFolder(folder.parent, None)
    assert other.read_newest() is None
    folder.mkdir(parents=True)
    assert other.read_newest() is None
    (folder / f"{2**64 - 1 - 7}.manifest").touch()
    (folder / "latest_version_hint.json").touch()
    assert other.read_newest() == 7
    (folder / "8.manifest").touch()
    assert other.read_newest() is None


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 9)), max_size=40), st.integers(0, 30))
def test_newest_texts_are_kept_up_to_the_limit(puts: list[tuple[int, int]], limit: int) -> None:
    """What is kept is what was put last there, takes no more than the limit, and nothing older is kept."""
    column, expected = TextColumn(limit), dict[int, str]()
    column.extend(20)
    for position, length in puts:
        column.put(np.array([position]), [b"x" * length])
        expected[position] = "x" * length
        kept = {n: text for n in range(20) if (text := column.at(n)) is not None}
        assert all(expected[n] == text for n, text in kept.items())
        assert sum(map(len, kept.values())) == column._bytes <= limit
    column.clear()
    assert all(column.at(n) is None for n in range(20))
    column.put(np.arange(20), [b"x" * 2] * 20)
    assert [n for n in range(20) if column.at(n) is not None] == list(range(20 - limit // 2, 20))[-20:]
