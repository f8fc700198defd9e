"""A disk that refuses: the failure is reported to all who wait, and nothing is written after it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from sessiontree.contracts.errors import JournalUnwritable
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]

LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from sessiontree.contracts.errors import JournalUnwritable
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

async def main():
    journal = Journal.open(Path(sys.argv[1]))
    journal.start(asyncio.get_running_loop())
    await journal.create_tree("tree", {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    fact = Packed("c", 1, '{"text":"%s"}' % ("x" * int(sys.argv[2])))
    acked = 0
    try:
        while True:
            last_seq, durable = journal.append("tree", [("main", [fact])])
            await durable
            acked = last_seq
    except JournalUnwritable as error:
        print(acked, error.reason)
    for ask, *given in (journal.append, "tree", []), (journal.create_tree, "b", {}), (journal.erase, "tree"):
        try:
            ask(*given)
            print("written after a failure")
        except JournalUnwritable:
            pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(len(journal.read("tree")))
    await journal.close()

asyncio.run(main())
"""
"""Appends until a file may not grow any more; the system then refuses the write itself."""


@pytest.mark.parametrize("chars", [3_000, 1_300_000], ids=["log", "blob"])
async def test_refused_write_fails_the_append_and_keeps_what_was_acknowledged(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path, chars: int
) -> None:
    """A write the system refuses, of the log or of a blob, is JournalUnwritable; reopening goes on."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "state"), str(chars)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: ASYNC221 - nothing else runs
    assert len(lines) == 2
    acked = int(lines[0].split()[0])
    assert int(lines[1]) == acked
    assert (acked > 10) == (chars == 3_000)
    async with opened(tmp_path / "state") as journal:
        kept = len(journal.read("tree"))
        assert acked <= kept <= acked + 1
        assert journal.verify("tree").ok
        last_seq, durable = journal.append("tree", [("main", [fact(1)])])
        await durable
        assert last_seq == kept + 1


async def test_full_database_fails_everyone_who_waits(fact: MakeFact, tmp_path: Path) -> None:
    """The futures of the failed group and of all later ones fail alike, each with an error of its own."""
    journal = Journal.open(tmp_path)
    journal.start(asyncio.get_running_loop())
    await journal.create_tree("tree", {})
    await journal.append("tree", [("main", [fact(1)])])[1]
    limit = journal._writing()._writer
    limit.do(lambda connection: connection.execute("PRAGMA max_page_count=1").close())
    futures = [journal.append("tree", [("main", [fact(n, 30_000)] * 9)])[1] for n in range(5)]
    errors = [await failure(future) for future in futures]
    assert len({id(error) for error in errors}) == 5
    assert all("disk is full" in str(error) and "open it again" in str(error) for error in errors)
    with pytest.raises(JournalUnwritable, match="disk is full"):
        journal.append("tree", [("main", [fact(2)])])
    assert len(journal.read("tree")) == 1
    await journal.close()
    with Journal.open(tmp_path) as again:
        assert len(again.read("tree")) == 1


async def failure(future: asyncio.Future[None]) -> JournalUnwritable:
    """Return what a future fails with."""
    with pytest.raises(JournalUnwritable) as caught:
        await future
    return caught.value
