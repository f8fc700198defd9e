"""What goes wrong outside: every failure is typed, nothing acknowledged is lost, and the store goes on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord, Selection
from sessiontree.memory.failures import (
    convert_read_errors,
    convert_search_errors,
    convert_write_errors,
    read_error,
)
from sessiontree.memory.place import DurableFolder
from sessiontree.memory.store import LanceMemoryStore
from tests.system.house.error_fixtures import has_cause
from tests.unit.memory.record_strategies import ToyEmbedder

SCOPE = MemoryScope("t1", "main", "a1", "/w")

STORING = """
import asyncio, resource, sys
from sessiontree.contracts.errors import MemoryFailed, MemoryFailed
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord
from sessiontree.memory.store import LanceMemoryStore
from tests.unit.memory.record_strategies import ToyEmbedder

SCOPE = MemoryScope("t1", "main", "a1", "/w")

async def endless(store):
    for n in range(10_000):
        ids = await store.store([NewRecord(f"record {n}")], SCOPE, f"call {n}")
        print(*ids, flush=True)

async def limited(store):
    await store.store([NewRecord("small")], SCOPE, "first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    big = [NewRecord(f"{n} " + "x" * 9_000) for n in range(30)]
    calls = [big if n == 3 else [NewRecord(f"small {n}")] for n in range(7)]
    tasks = [asyncio.ensure_future(store.store(new, SCOPE, f"call {n}")) for n, new in enumerate(calls)]
    await asyncio.wait(tasks)
    causes = [getattr(task.exception(), "cause", None) for task in tasks]
    print(*(cause or len(task.result()) for cause, task in zip(causes, tasks)))
    print(tasks[3].exception())
    print(len(await store.search(MemoryQuery("small"), SCOPE)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(len(await store.store(big, SCOPE, "call 3")), len(store))
    await store.tidy()

async def main():
    async with await LanceMemoryStore.open(sys.argv[1], ToyEmbedder()) as store:
        await globals()[sys.argv[2]](store)

asyncio.run(main())
"""


def program(directory: Path, what: str, checkout: Path) -> list[str]:
    """Return a command that opens a store and does something to it."""
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(checkout)!r})\n{STORING}",
        str(directory),
        what,
    ]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the project."""
    return Path(__file__).parents[3]


@pytest.mark.slow
async def test_full_disk_is_told_and_passes(tmp_path: Path, checkout: Path) -> None:
    """The call that finds no room fails typed, those of the same commit are stored; later all goes on."""
    command = program(tmp_path, "limited", checkout)
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: ASYNC221 - nothing else runs
    assert lines[0].split() == ["1", "1", "1", "unwritable", "1", "1", "1"]
    assert "File too large" in lines[1]
    assert lines[2] == "7"
    assert lines[3] == "30 37"
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        assert len(store) == 37


@pytest.mark.slow
async def test_killed_writer_loses_nothing_acknowledged(tmp_path: Path, checkout: Path) -> None:
    """Killed in the midst of storing, again and again: every id that was reported is there, each once."""
    chance = random.Random(5)
    told: set[str] = set()
    for _ in range(3):
        with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs
            program(tmp_path, "endless", checkout), stdout=subprocess.PIPE, text=True
        ) as storing:
            assert storing.stdout is not None
            for _ in range(chance.randrange(1, 120)):
                told.add(storing.stdout.readline().strip())
            storing.kill()
            told.update(line.strip() for line in storing.stdout if len(line) == 33)
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        kept = await store.select(Selection(tree_id="t1"), None, 20_000)
        assert told <= {record.id for record in kept}
        assert len({record.text for record in kept}) == len(kept) == len(store)


async def filled(directory: Path) -> list[str]:
    """Make a store of fifty records, several files and a tidied index; return the ids."""
    async with await LanceMemoryStore.open(str(directory), ToyEmbedder()) as store:
        ids = await store.store([NewRecord(f"fox {n}") for n in range(30)], SCOPE, "many")
        await store.tidy()
        for n in range(20):
            ids += await store.store([NewRecord(f"late fox {n}")], SCOPE, f"late {n}")
        await store.mark_finished("t0", agent_id="a1", workspace="/w", ended_at_ms=1)
    return ids


async def use(directory: Path) -> None:
    """Do everything a store is for."""
    async with await LanceMemoryStore.open(str(directory), ToyEmbedder()) as store:
        await store.search(MemoryQuery("fox", 100), None)
        async for _ in store.parts(vectors=True):
            pass
        await store.store([NewRecord("new")], SCOPE, "new")
        await store.tidy()


@pytest.mark.short(2)
@pytest.mark.slow
@pytest.mark.parametrize("damage", ["emptied", "cut", "flipped", "deleted"])
async def test_damaged_files_are_a_typed_error(tmp_path: Path, damage: str) -> None:
    """Whichever file is hurt: what is done with the store works, or fails as MemoryFailed."""
    await filled(tmp_path / "whole")
    chance = random.Random(3)
    files = sorted(path for path in (tmp_path / "whole").rglob("*") if path.is_file())
    chosen = [path for path in files if path.name != "writer.lock"]
    refused = 0
    for path in chance.sample(chosen, 12):
        hurt_store = tmp_path / "hurt"
        shutil.copytree(tmp_path / "whole", hurt_store)
        hurt = hurt_store / path.relative_to(tmp_path / "whole")
        body = hurt.read_bytes()
        if damage == "deleted":
            hurt.unlink()
        elif damage == "flipped":
            place = chance.randrange(len(body))
            hurt.write_bytes(bytes([*body[:place], body[place] ^ 0xFF, *body[place + 1 :]]))
        else:
            hurt.write_bytes(b"" if damage == "emptied" else body[: len(body) // 2])
        try:
            await use(hurt_store)
        except MemoryFailed as error:
            assert str(hurt_store) in str(error)
            refused += 1
        shutil.rmtree(hurt_store)
    assert refused or damage == "flipped"


async def test_vanished_directory_is_told(tmp_path: Path) -> None:
    """Deleted under an open store: typed at the next write, nothing half made; opened again, it begins."""
    place = tmp_path / "memory"
    store = await LanceMemoryStore.open(str(place), ToyEmbedder())
    await store.store([NewRecord("fox")], SCOPE, "one")
    shutil.rmtree(place)
    with pytest.raises(MemoryFailed, check=has_cause("corrupt"), match="deleted or replaced"):
        await store.store([NewRecord("fox")], SCOPE, "two")
    with pytest.raises(MemoryFailed):
        await store.search(MemoryQuery("fox"), SCOPE)
    with pytest.raises(MemoryFailed):
        await store.forget(Selection(tree_id="t1"), None)
    assert not place.exists()
    await store.close()
    async with await LanceMemoryStore.open(str(place), ToyEmbedder()) as again:
        assert len(await again.store([NewRecord("fox")], SCOPE, "one")) == len(again) == 1


async def test_lost_table_is_not_taken_for_a_new_store(tmp_path: Path) -> None:
    """Where finished trees are known and records are not, something was lost."""
    await filled(tmp_path)
    shutil.rmtree(tmp_path / "records.lance")
    with pytest.raises(MemoryFailed, check=has_cause("corrupt"), match="table of records is missing"):
        await LanceMemoryStore.open(str(tmp_path), ToyEmbedder())


async def test_unwritable_place_is_told(tmp_path: Path) -> None:
    """A file in the way, or a directory that may not be written."""
    (tmp_path / "file").touch()
    with pytest.raises(MemoryFailed, check=has_cause("unwritable"), match="Not a directory"):
        await LanceMemoryStore.open(str(tmp_path / "file" / "memory"), ToyEmbedder())
    with pytest.raises(MemoryFailed, check=has_cause("unwritable")):
        await LanceMemoryStore.open("/proc/memory", ToyEmbedder())


async def test_other_embedder_is_refused(tmp_path: Path) -> None:
    """Vectors of different makes are never compared; the message names both and what to do."""
    ids = await filled(tmp_path)
    with pytest.raises(
        MemoryFailed,
        check=has_cause("embedder"),
        match=r"'toy-16' and 'other' .* `sessiontree memory reindex`",
    ):
        await LanceMemoryStore.open(str(tmp_path), ToyEmbedder("other"))
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        assert len(await store.get(ids, None)) == 50


async def test_every_new_file_reaches_the_disk_before_the_answer(tmp_path: Path) -> None:
    """Each file a commit leaves is synced once, and so is the folder that names it."""
    synced: list[Path] = []
    table = tmp_path / "records.lance"
    durable = DurableFolder(table, synced.append)
    await filled(tmp_path)
    durable.sync()
    files = {path for path in table.rglob("*") if path.is_file() and path.parent.name != "_transactions"}
    assert files <= set(synced)
    assert {path.parent for path in files} <= set(synced)
    assert len(synced) == len(set(synced))
    synced.clear()
    durable.sync()
    assert synced == []
    fresh = table / "_indices" / "new" / "part.lance"
    fresh.parent.mkdir()
    fresh.touch()
    durable.sync()
    assert synced == [fresh, fresh.parent, fresh.parent.parent, table]
    synced.clear()
    fresh.write_bytes(b"longer")
    durable.sync()
    assert synced == [fresh, fresh.parent]


class RefusingDisk:
    """A disk that fails when it is asked to."""

    def __init__(self) -> None:
        self.failing = False

    def __call__(self, path: Path) -> None:
        if self.failing:
            raise OSError(5, os.strerror(5), str(path))


async def test_failed_sync_is_never_acknowledged(tmp_path: Path) -> None:
    """Where the disk did not keep a commit, neither the call nor its repetition is reported it was stored."""
    disk = RefusingDisk()
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        assert store._writer is not None
        store._writer._durable = DurableFolder(tmp_path / "records.lance", disk)
        await store.store([NewRecord("kept")], SCOPE, "one")
        disk.failing = True
        for _ in range(2):
            with pytest.raises(MemoryFailed, check=has_cause("unwritable"), match="open it again"):
                await store.store([NewRecord("lost")], SCOPE, "two")
        disk.failing = False
        with pytest.raises(MemoryFailed, check=has_cause("unwritable"), match="open it again"):
            await store.store([NewRecord("lost")], SCOPE, "two")
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as again:
        assert len(await again.store([NewRecord("lost")], SCOPE, "two")) == 1
        assert len(again) == 2


@pytest.mark.parametrize(
    ("place", "is_damage"),
    [("s3://bucket/memory", False), ("gs://b/m", False), ("/var/memory", True), ("file:///var/memory", True)],
)
def test_address_that_can_not_be_reached_is_not_called_damaged(place: str, is_damage: bool) -> None:
    """What a service or the network refuses says nothing of the files; on a disk it does."""
    error = read_error(place, RuntimeError("Generic S3 error: Failed to resolve region"))
    assert isinstance(error, MemoryFailed)
    assert (error.cause == "corrupt") == is_damage
    assert ("restore it" in error.reason) == is_damage
    assert ("check the address" in error.reason) == (not is_damage)


@pytest.mark.parametrize(
    ("typed", "cause"),
    [(convert_read_errors, "other"), (convert_search_errors, "other"), (convert_write_errors, "unwritable")],
)
def test_panic_of_lancedb_is_a_failure_of_memory(
    typed: Callable[[str], AbstractContextManager[None]], cause: str
) -> None:
    """Its class can't be imported, so its name counts; an error of our own passes as it is."""
    panic = type("RustPanic", (Exception,), {})
    with (
        pytest.raises(MemoryFailed, match="rust future panicked", check=has_cause(cause)),
        typed("s3://bucket/memory"),
    ):
        raise panic("rust future panicked: unknown error")
    with pytest.raises(KeyError), typed("s3://bucket/memory"):
        raise KeyError("ours")
