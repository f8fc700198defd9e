"""A journal that was written and never closed, and what is needed to write others."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, Packed

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]


@dataclass(frozen=True, slots=True)
class Written:
    """What a process that was killed right after its last commit left behind."""

    database: bytes
    log: bytes
    """What commits wrote into it; beyond it lay zeros."""
    blobs: Path
    records: tuple[JournalRecord, ...]
    log_sizes: tuple[int, ...]
    """Bytes of the log after each commit; the first commit created the tree."""
    counts: tuple[int, ...]
    """Records after each commit."""

    def copy_to(self, directory: Path, *, database: bytes | None = None, log: bytes | None = None) -> Path:
        """Lay the files down again, with other bytes where given; return the state directory."""
        state = directory / "state"
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        (state / "journal.db").write_bytes(self.database if database is None else database)
        (state / "journal.db-wal").write_bytes(self.log if log is None else log)
        shutil.copytree(self.blobs, state / "blobs")
        return state


def frames_end(log: bytes) -> int:
    """Return how many bytes of a write-ahead log hold frames of its last start; zeros may follow.

    Source of the layout: the SQLite file format, "WAL File Format".
    """
    end, frame = 32, 24 + int.from_bytes(log[8:12], "big")
    while len(log) >= end + frame and log[end + 8 : end + 16] == log[16:24]:
        end += frame
    return end


def _fact(n: int, chars: int = 20) -> Packed:
    return Packed(f"stimulus {n}", 1000 + n, dump_json({"kind": "said", "v": 1, "n": n, "text": "x" * chars}))


@asynccontextmanager
async def _opened(state: Path) -> AsyncIterator[Journal]:
    journal = Journal.open(state)
    try:
        journal.start(asyncio.get_running_loop())
        yield journal
    finally:
        await journal.close()


@pytest.fixture(scope="session")
def fact() -> MakeFact:
    """Makes the nth fact, with a text of so many letters."""
    return _fact


@pytest.fixture(scope="session")
def opened() -> OpenJournal:
    """Opens a journal for writing, starts it, and closes it in the end."""
    return _opened


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Twelve commits of one tree: four sessions, the tree's own facts, one blob."""
    state = tmp_path_factory.mktemp("written") / "state"

    async def write() -> Written:
        async with _opened(state) as journal:
            await journal.create_tree("tree", {"model": "scripted"})
            log = state / "journal.db-wal"
            sizes, counts = [frames_end(log.read_bytes())], [0]
            for n in range(12):
                chunks = [
                    ("main", [_fact(n), _fact(n + 100)]),
                    (f"main/b{n % 3}", [_fact(n, 70_000 if n == 5 else 20)]),
                    ("", [_fact(n)]),
                ]
                last_seq, durable = journal.append("tree", chunks)
                await durable
                sizes.append(frames_end(log.read_bytes()))
                counts.append(last_seq)
            records = tuple(journal.read("tree"))
            database, log_bytes = (state / "journal.db").read_bytes(), log.read_bytes()[: sizes[-1]]
        return Written(database, log_bytes, state / "blobs", records, tuple(sizes), tuple(counts))

    return asyncio.run(write())
