"""Several programs over one run keep one bound of attempts at a time, in equal parts."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sessiontree.bench.ledger.leases import SampleLease
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.ledger_tables import SEEN_MS, read_time_ms

COMMAND = (
    "INSERT INTO commands(owner, kind, circumstances, started_at_ms, worked_ms, ended_at_ms) "
    "VALUES (?, ?, '{}', ?, ?, ?)"
)


class Programs:
    """Programs over one ledger.

    Args:
        file: The ledger.
        stack: Closes them.
    """

    def __init__(self, file: Path, stack: AsyncExitStack) -> None:
        self._file = file
        self._stack = stack

    async def join(self, name: str, *, kind: str = "run", age_ms: int = 0, is_over: bool = False) -> Ledger:
        """Return a program's end of the ledger; its last note is so old."""
        ledger = await self._stack.enter_async_context(Ledger(self._file, name, beat_s=1e6))
        await ledger.prepare({"suite": "s"}, [f"s{number}" for number in range(100)], 1, 0)

        def log(db: sqlite3.Connection) -> None:
            now = read_time_ms(db)
            db.execute(COMMAND, (name, kind, now - age_ms - 1_000, 1_000, now if is_over else None))

        await ledger.do(log)
        return ledger


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    """No program yet."""
    async with AsyncExitStack() as stack:
        yield Programs(tmp_path / "ledger.sqlite", stack)


async def lease(ledger: Ledger, most: int, at_once: int) -> list[SampleLease]:
    """Take leases."""
    return list((await ledger.lease(most, 1, None, None, at_once)).leases)


@pytest.mark.parametrize(("count", "at_once"), [(1, 6), (2, 6), (3, 7), (4, 2)])
async def test_programs_get_equal_parts_of_one_bound(programs: Programs, count: int, at_once: int) -> None:
    """Each may ask for all of it; together they never hold more."""
    ledgers = [await programs.join(f"p{number}") for number in range(count)]
    held = [len(await lease(each, at_once, at_once)) for each in ledgers]
    assert sum(held) == at_once
    assert max(held) == -(-at_once // count)
    assert all([not await lease(each, at_once, at_once) for each in ledgers])


async def test_who_comes_later_gets_its_part_as_leases_end(programs: Programs) -> None:
    """The first one holds all; what it gives back goes to the second, until both have the same."""
    first = await programs.join("first")
    held = await lease(first, 6, 6)
    assert len(held) == 6
    second = await programs.join("second")
    assert not await lease(second, 6, 6)
    taken = []
    for each in held[:3]:
        await first.give_back(each, "cancelled", 0)
        assert not await lease(first, 6, 6)
        taken += await lease(second, 6, 6)
    assert len(taken) == 3
    await second.give_back(taken[0], "cancelled", 0)
    assert not await lease(first, 6, 6), "its part is three"


@pytest.mark.parametrize(
    ("kind", "age_ms", "is_over"), [("rescore", 0, False), ("run", SEEN_MS, False), ("run", 0, True)]
)
async def test_who_does_not_work_has_no_part(
    programs: Programs, kind: str, age_ms: int, *, is_over: bool
) -> None:
    """A command that scores again, one that is silent, and one that has ended."""
    await programs.join("other", kind=kind, age_ms=age_ms, is_over=is_over)
    assert len(await lease(await programs.join("own"), 6, 6)) == 6
