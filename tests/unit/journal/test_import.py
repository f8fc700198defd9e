"""Trees that threads import while the journal is closed, and while others want the same id."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias, overload

import pytest

from sessiontree.contracts.errors import JournalError, JournalUnwritable
from sessiontree.journal.export import Manifest
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, Packed

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]
WITHIN_S = 20.0


def imported(journal: Journal, tree_id: str, records: Sequence[JournalRecord]) -> Future[None]:
    """Import a tree on a thread of its own, which does not keep a failed test from ending."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            journal.import_tree(Manifest(tree_id, 1, {}), records)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return done


async def outcome_of(done: Future[None]) -> BaseException | None:
    """Return what an import raised."""
    return await asyncio.to_thread(done.exception, WITHIN_S)


class Slow(Sequence[JournalRecord]):
    """Records that can't be read before they are released."""

    def __init__(self, records: Sequence[JournalRecord]) -> None:
        self._records = records
        self.reached, self.released = threading.Event(), threading.Event()

    @overload
    def __getitem__(self, at: int) -> JournalRecord: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[JournalRecord]: ...
    def __getitem__(self, at: int | slice) -> JournalRecord | Sequence[JournalRecord]:
        return self._records[at]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[JournalRecord]:
        self.reached.set()
        assert self.released.wait(WITHIN_S)
        return iter(self._records)


@pytest.fixture
def records(fact: MakeFact) -> list[JournalRecord]:
    """Twenty facts of one session."""
    return [JournalRecord(seq, "main", *fact(seq)) for seq in range(1, 21)]


async def test_import_that_comes_after_the_close_is_refused(
    opened: OpenJournal, records: list[JournalRecord], tmp_path: Path
) -> None:
    """It was begun before, so only the writer can refuse it; nothing waits for a thread that has ended."""
    slow = Slow(records)
    async with opened(tmp_path) as journal:
        done = imported(journal, "late", slow)
        assert await asyncio.to_thread(slow.reached.wait, WITHIN_S)
    slow.released.set()
    error = await outcome_of(done)
    assert isinstance(error, JournalUnwritable)
    assert "it is closed" in str(error)


@pytest.mark.parametrize("first", [0, 3])
async def test_imports_during_the_close_are_durable_or_refused(
    opened: OpenJournal, records: list[JournalRecord], tmp_path: Path, first: int
) -> None:
    """Each ends. Those that succeeded are in the journal, whole, and the refused ones are not."""
    async with opened(tmp_path) as journal:
        begun = {f"t{number}": imported(journal, f"t{number}", records) for number in range(12)}
        for number in range(first):
            assert await outcome_of(begun[f"t{number}"]) is None
    errors = {tree_id: await outcome_of(done) for tree_id, done in begun.items()}
    assert all(error is None or type(error) in {JournalUnwritable, JournalError} for error in errors.values())
    with Journal.open(tmp_path, read_only=True) as journal:
        kept = {tree.tree_id for tree in journal.trees()}
        assert kept == {tree_id for tree_id, error in errors.items() if error is None}
        assert all(journal.read(tree_id) == records for tree_id in kept)


async def test_id_is_taken_from_the_start_of_its_import(
    opened: OpenJournal, records: list[JournalRecord], fact: MakeFact, tmp_path: Path
) -> None:
    """A second import and a new tree of that id are refused, and the journal takes facts as before."""
    slow = Slow(records)
    async with opened(tmp_path) as journal:
        await journal.create_tree("other", {})
        first = imported(journal, "tree", slow)
        assert await asyncio.to_thread(slow.reached.wait, WITHIN_S)
        second = imported(journal, "tree", records)
        assert isinstance(await outcome_of(second), ValueError)
        with pytest.raises(ValueError, match="being imported"):
            journal.create_tree("tree", {})
        slow.released.set()
        assert await outcome_of(first) is None
        assert journal.read("tree") == records
        await journal.append("other", [("main", [fact(1)])])[1]
        assert journal.verify("tree").ok


async def test_id_of_a_failed_import_is_free(
    opened: OpenJournal, records: list[JournalRecord], tmp_path: Path
) -> None:
    """The next import may have it."""
    async with opened(tmp_path) as journal:
        assert isinstance(await outcome_of(imported(journal, "tree", records[1:])), ValueError)
        assert await outcome_of(imported(journal, "tree", records)) is None


async def test_read_that_comes_after_the_close_does_not_speak_of_damage(
    opened: OpenJournal, tmp_path: Path
) -> None:
    """A thread may have begun to read before; the files are good."""
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        reader = journal._reader
    for read in (reader.trees, lambda: reader.verify("tree"), lambda: reader.chunks("tree", 1)):
        with pytest.raises(JournalError, match="it is closed") as caught:
            read()
        assert type(caught.value) is JournalError
