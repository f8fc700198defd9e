"""One program writes a store and serves the others; when it ends, another does, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord, Selection
from sessiontree.memory.place import LOCK_NAME, StoreLock
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.memory import memory_peers
from sessiontree.runtime.memory.memory_peers import KEY, SOCKET, SharedStore, open_store
from tests.system.house.error_fixtures import has_cause
from tests.unit.runtime.memory_fakes import ListStore

PATIENCE_S = 60.0
SCOPE = MemoryScope("t1", "main/b2", "default", "/workspace")
SKY = NewRecord("the sky is blue ü\u2028", "fact", "sky.md#L1-L2", "foreign")
QUERY = MemoryQuery("sky", 5, ("fact",), "sky.md", 0.5)

T = TypeVar("T")
SharedRuntimes = Callable[..., SharedStore]


class LockedStore(ListStore):
    """A list that one may write at a time, as a store on a disk."""

    def __init__(self, disk: ListStore, directory: Path) -> None:
        super().__init__()
        self.lock = StoreLock(directory)
        self.records, self.asked, self.finished = disk.records, disk.asked, disk.finished

    async def close(self) -> None:
        await super().close()
        self.lock.release()


@pytest.fixture
async def sharing(tmp_path: Path) -> AsyncIterator[SharedRuntimes]:
    """Makes what several programs share one store by; all are closed at the end."""
    disk, made = ListStore(), list[SharedStore]()

    def share(embedder: str = "letters") -> SharedStore:
        async def open_own() -> ListStore:
            await asyncio.sleep(0)
            return LockedStore(disk, tmp_path)

        made.append(SharedStore(tmp_path, embedder, open_own))
        return made[-1]

    async with asyncio.timeout(PATIENCE_S):
        yield share
        for each in made:
            await each.close()
    assert not any((tmp_path / name).exists() for name in (KEY, SOCKET))


async def together(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all answers, asked for at once."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in asked]
    return [task.result() for task in tasks]


async def test_everything_is_asked_of_who_writes(sharing: SharedRuntimes) -> None:
    """What one stores the other finds; every question comes back as it is answered there."""
    one, two = sharing(), sharing()
    await one.open()
    stored = await one.store([SKY], SCOPE, "key")
    await two.open()
    assert await two.list_unfinished_trees() == {"t1"}
    assert await two.store([SKY], SCOPE, "key") == stored
    assert await two.store([NewRecord("the sea")], SCOPE, "other") != stored
    for scope in (SCOPE, None):
        assert await two.search(QUERY, scope) == await one.search(QUERY, scope) != []
    selection = Selection(ids=tuple(stored))
    assert await two.select(selection, SCOPE, 10) == await one.select(selection, SCOPE, 10) != []
    await two.mark_finished("t1", agent_id="default", workspace="/workspace", ended_at_ms=7)
    assert await two.forget(Selection(ids=tuple(stored)), SCOPE) == stored
    assert await one.select(Selection(ids=tuple(stored)), SCOPE, 10) == []
    third = sharing()
    await third.open()
    assert await third.list_unfinished_trees() == set()


async def test_many_questions_are_answered_at_once(sharing: SharedRuntimes) -> None:
    """And each gets its own answer."""
    one, two = sharing(), sharing()
    await one.open()
    await two.open()
    keys = [f"key {number}" for number in range(50)]
    stored = await together([two.store([NewRecord(key)], SCOPE, key) for key in keys])
    found = await together([two.select(Selection(ids=tuple(ids)), None, 5) for ids in stored])
    assert [[record.text for record in records] for records in found] == [[key] for key in keys]


async def test_another_succeeds_who_wrote(sharing: SharedRuntimes) -> None:
    """Questions under way are asked again; among several one writes, and the others ask there."""
    first, *others = (sharing() for _ in range(5))
    await first.open()
    await first.store([SKY], SCOPE, "key")
    for each in others:
        await each.open()
    closing = asyncio.ensure_future(first.close())
    stored = await together([each.store([NewRecord("more")], SCOPE, "more") for each in others])
    await closing
    assert len({tuple(ids) for ids in stored}) == 1
    assert [len(await each.search(MemoryQuery("x"), None)) for each in others] == [2] * 4
    with pytest.raises(MemoryFailed, match="closed in this process"):
        await first.search(QUERY, None)


async def test_failures_are_the_writers(
    sharing: SharedRuntimes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their kind, place and reason; the way stays open."""
    one, two = sharing(), sharing()
    await one.open()
    await two.open()

    async def full(*_: Any) -> list[str]:
        raise MemoryFailed("/memory", "the disk is full", "unwritable")

    with monkeypatch.context() as patch:
        patch.setattr(LockedStore, "store", full)
        with pytest.raises(MemoryFailed, check=has_cause("unwritable"), match=r"/memory.*the disk is full"):
            await two.store([SKY], SCOPE, "key")
    assert await two.store([SKY], SCOPE, "key")


async def test_who_embeds_otherwise_is_refused(sharing: SharedRuntimes) -> None:
    """Vectors of two embedders can't be compared."""
    one, two = sharing("letters"), sharing("words")
    await one.open()
    with pytest.raises(MemoryFailed, check=has_cause("embedder"), match=r"'letters'.*'words'"):
        await two.open()


async def test_writer_that_serves_nobody_is_waited_for_and_named(
    sharing: SharedRuntimes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a command of this package repairs the store."""
    monkeypatch.setattr(memory_peers, "SUCCESSION_S", 0.3)
    lock = StoreLock(tmp_path)
    store = sharing()
    with pytest.raises(MemoryFailed, check=has_cause("locked"), match="writes it"):
        await store.open()
    lock.release()
    await store.open()


async def test_what_a_dead_writer_left_is_replaced(sharing: SharedRuntimes, tmp_path: Path) -> None:
    """Its socket leads nowhere, its key opens nothing."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    (tmp_path / KEY).write_text("old")
    one, two = sharing(), sharing()
    await one.open()
    await two.open()
    assert await two.store([SKY], SCOPE, "key")
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in (KEY, SOCKET)} == {0o600}


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"null\n",
        b'"wrong"\n',
        b"{\n",
        b'{"id":1,"do":"search","given":[]}\n',
        b"\xff\n",
        b"[" * 9_000 + b"\n",
    ],
    ids=["nothing", "empty", "null", "wrong", "cut", "a question", "no text", "depth"],
)
async def test_nobody_without_the_key_is_answered(
    sharing: SharedRuntimes, tmp_path: Path, said: bytes
) -> None:
    """Whatever they say first, they are hung up on, and others go on."""
    one, two = sharing(), sharing()
    await one.open()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
    writer.write(said)
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await two.open()


@pytest.mark.parametrize(
    "asked",
    [
        {"id": 1, "do": "close", "given": []},
        {"id": 1, "do": "search", "given": [7]},
        {"id": 1, "do": "store"},
    ],
    ids=["another thing", "no query", "nothing given"],
)
async def test_what_is_no_question_is_refused(sharing: SharedRuntimes, tmp_path: Path, asked: object) -> None:
    """With a reason, and the store stays as it was."""
    one = sharing()
    await one.open()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
    writer.write(json.dumps((tmp_path / KEY).read_text()).encode() + b"\n")
    assert json.loads(await reader.readline()) == "letters"
    writer.write(json.dumps(asked).encode() + b"\n")
    told = json.loads(await reader.readline())
    assert told["error"][0] == str(tmp_path) and told["error"][2] == "other"
    writer.close()
    assert await one.search(QUERY, None) == []


async def test_cancelled_opening_leaves_the_store_free(tmp_path: Path) -> None:
    """Also when the store is opened, after all, for a program that does not wait any more."""
    place = tmp_path / "memory"
    opening = asyncio.create_task(open_store(MemorySettings(), str(place)))
    while not (place / LOCK_NAME).exists():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    assert not opening.done()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    StoreLock(place).release()
