"""Reindexing: the same records under another embedder, or, whatever comes between, under the one before."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
import pytest

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryQuery, MemoryRecord, MemoryScope, NewRecord, Selection
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.place import StoreLock
from sessiontree.memory.reindex import Reindexed, open_as_stored, read_stored_embedder, reindex
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.tables import Vectors
from tests.system.house.error_fixtures import has_cause

SCOPE = MemoryScope("t1", "main", "default", "/w")
COUNT = 600
OWN_FILES = {"records.lance", "mains.lance", "writer.lock"}


@dataclass(frozen=True, slots=True)
class LengthEmbedder:
    """Three numbers of a text's length; fails at the text that is reported."""

    bad: str = ""
    identity: str = "length-3"
    dimensions: int = 3

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.bad in texts:
            raise OSError("the model is gone")
        angles = np.array([[len(text) % 7, len(text) % 11, 1] for text in texts], np.float32)
        vectors: Vectors = angles / np.linalg.norm(angles, axis=1, keepdims=True)
        return vectors


async def filled(place: Path) -> list[MemoryRecord]:
    """Make a store of some hundred records, some of them forgotten; return what is left."""
    async with await LanceMemoryStore.open(str(place), HashingEmbedder()) as store:
        for call in range(3):
            new = [
                NewRecord(
                    f"finding {call} {number} {'x' * (number % 13)}", source=f"part{number % 5}/a.py#L3"
                )
                for number in range(COUNT // 3)
            ]
            await store.store(new, SCOPE, f"call{call}")
        await store.forget(Selection(path="part4"), None)
        await store.mark_finished("t1", agent_id="default", workspace="/w", ended_at_ms=5)
        return await everything(store)


def files_of(place: Path) -> set[str]:
    """Return the names in a directory."""
    return {path.name for path in place.iterdir()}


async def everything(store: LanceMemoryStore) -> list[MemoryRecord]:
    """Return all records in created order."""
    return [record async for part in store.parts() for record in part.records]


async def test_same_records_lie_under_the_new_embedder(tmp_path: Path) -> None:
    """Records, order and finished trees stay, vectors are new, and it goes on as any store does."""
    before = await filled(tmp_path)
    told: list[int] = []
    done = await reindex(str(tmp_path), LengthEmbedder(), progress=told.append)
    assert done == Reindexed(len(before), "hashing-384-v1", "length-3")
    assert told[-1] == len(before) == COUNT * 4 // 5
    with pytest.raises(MemoryFailed, check=has_cause("embedder")):
        await LanceMemoryStore.open(str(tmp_path), HashingEmbedder())
    async with await LanceMemoryStore.open(str(tmp_path), LengthEmbedder()) as store:
        assert await everything(store) == before
        assert [tree.tree_id for tree in store.list_finished_trees()] == ["t1"]
        async for part in store.parts(vectors=True):
            texts = [record.text for record in part.records]
            np.testing.assert_array_equal(part.vectors, LengthEmbedder().embed(texts))
        hits = await store.search(MemoryQuery("finding 2 77", 20, path="part2"), SCOPE)
        assert any(hit.record.text.startswith("finding 2 77 ") for hit in hits)
        await store.store([NewRecord("one more")], SCOPE, "later")
        await store.forget(Selection(path="part1"), None)
        await store.tidy()
        assert len(store) == COUNT * 3 // 5 + 1
    assert files_of(tmp_path) == OWN_FILES


async def test_embedder_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """A failure at the last record: nothing changed, and the next attempt succeeds."""
    before = await filled(tmp_path)
    with pytest.raises(MemoryFailed, match="the model is gone"):
        await reindex(str(tmp_path), LengthEmbedder(bad=before[-1].text))
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder()) as store:
        assert await everything(store) == before
    assert (await reindex(str(tmp_path), LengthEmbedder())).records == len(before)


async def test_nobody_reindexes_beside_a_writer(tmp_path: Path) -> None:
    """Who writes is informed by its process; the store is as it was."""
    before = await filled(tmp_path)
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder()) as store:
        with pytest.raises(MemoryFailed, check=has_cause("locked")):
            await reindex(str(tmp_path), LengthEmbedder())
        assert await everything(store) == before


async def test_nobody_writes_while_it_is_reindexed(tmp_path: Path) -> None:
    """The lock is held from the first record to the swap, and free afterwards."""
    await filled(tmp_path)
    refused: list[str] = []

    def try_to_write(_: int) -> None:
        with pytest.raises(MemoryFailed, check=has_cause("locked")) as caught:
            StoreLock(tmp_path)
        refused.append(caught.value.reason)

    await reindex(str(tmp_path), LengthEmbedder(), progress=try_to_write)
    assert len(refused) == 2
    StoreLock(tmp_path).release()


async def test_words_are_found_before_anybody_writes(tmp_path: Path) -> None:
    """The text index is made with the swap: a reader finds words at once."""
    await filled(tmp_path)
    await reindex(str(tmp_path), LengthEmbedder())
    async with await LanceMemoryStore.open(str(tmp_path), LengthEmbedder(), lock=False) as reader:
        hits = await reader.search(MemoryQuery("finding 2 77", 20, path="part2"), SCOPE)
        assert any(hit.record.text.startswith("finding 2 77 ") for hit in hits)


async def test_who_reads_meanwhile_learns_of_the_new_embedder(tmp_path: Path) -> None:
    """Never a search with vectors of one embedder among those of another."""
    await filled(tmp_path)
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder(), lock=False) as reader:
        assert await reader.search(MemoryQuery("finding"), SCOPE)
        await reindex(str(tmp_path), LengthEmbedder())
        with pytest.raises(MemoryFailed, check=has_cause("embedder")):
            await reader.search(MemoryQuery("finding"), SCOPE)


async def test_empty_store_changes_hands_too(tmp_path: Path) -> None:
    """Nothing to embed is no failure."""
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder()):
        pass
    assert (await reindex(str(tmp_path), LengthEmbedder())).records == 0
    async with await LanceMemoryStore.open(str(tmp_path), LengthEmbedder()) as store:
        await store.store([NewRecord("one")], SCOPE, "first")
        assert len(store) == 1


async def test_where_nothing_is_nothing_is_made(tmp_path: Path) -> None:
    """A wrong place is reported, and no store appears there."""
    missing = tmp_path / "missing"
    assert await read_stored_embedder(str(missing)) is None
    with pytest.raises(MemoryFailed, match="the store does not exist; check the place"):
        await reindex(str(missing), LengthEmbedder())
    assert not files_of(tmp_path)


async def test_store_known_by_name_is_listed_and_thinned_but_takes_no_texts(tmp_path: Path) -> None:
    """Listing and forgetting need no embedder; what needs one says so."""
    before = await filled(tmp_path)
    store, embedder = await open_as_stored(str(tmp_path), lock=True)
    async with store:
        assert (embedder.identity, embedder.dimensions) == ("hashing-384-v1", 384)
        assert await everything(store) == before
        assert await store.forget(Selection(ids=(before[0].id,)), None) == [before[0].id]
        with pytest.raises(MemoryFailed, match="only the embedder's name is known"):
            await store.store([NewRecord("one more")], SCOPE, "later")
        assert await everything(store) == before[1:]


FULL = """
import asyncio, resource, sys
from sessiontree.contracts.errors import MemoryFailed
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.reindex import reindex

class Renamed(HashingEmbedder):
    identity = "another-384"

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    asyncio.run(reindex(sys.argv[1], Renamed()))
except MemoryFailed as error:
    print(error)
"""


@pytest.mark.slow
async def test_without_room_for_both_copies_the_store_stays_as_it_was(tmp_path: Path) -> None:
    """A disk that is full is a typed error; nothing is changed and nothing is left behind."""
    before = await filled(tmp_path)
    done = await anyio.run_process([sys.executable, "-c", FULL, str(tmp_path)])
    assert b"File too large" in done.stdout
    assert files_of(tmp_path) == OWN_FILES
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder()) as store:
        assert await everything(store) == before


KILLED = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from sessiontree.memory.reindex import reindex
from tests.unit.memory.test_reindex import LengthEmbedder

place, point = Path(sys.argv[1]), sys.argv[2]
end = lambda: os.kill(os.getpid(), signal.SIGKILL)
versions = place / "records.lance" / "_versions"

def committed():
    return {name for name in os.listdir(versions) if name.endswith(".manifest")}

def when_committed(known):
    while committed() == known:
        pass
    end()

def progress(count):
    if point == str(count):
        end()
    if point == "committed" and count == 480:
        threading.Thread(target=when_committed, args=(committed(),), daemon=True).start()

asyncio.run(reindex(str(place), LengthEmbedder(), progress=progress))
"""


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize(("point", "after"), [("256", False), ("480", False), ("committed", True)])
async def test_killed_anywhere_the_store_is_the_old_or_the_new_one(
    tmp_path: Path, point: str, after: bool
) -> None:
    """Killed midway, before the swap, right behind it: all records are there, under one embedder."""
    before = await filled(tmp_path)
    killed = await anyio.run_process([sys.executable, "-c", KILLED, str(tmp_path), point], check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    embedder = LengthEmbedder() if after else HashingEmbedder()
    async with await LanceMemoryStore.open(str(tmp_path), embedder) as store:
        assert await everything(store) == before
        hits = await store.search(MemoryQuery("finding 2 77", 20, path="part2"), None)
        assert any(hit.record.text.startswith("finding 2 77 ") for hit in hits)
    assert files_of(tmp_path) == OWN_FILES
    assert (await reindex(str(tmp_path), LengthEmbedder())).records == len(before)
