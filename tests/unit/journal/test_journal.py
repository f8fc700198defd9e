"""Appending and reading: order, numbering, what is refused, and what closing promises."""

from __future__ import annotations

import asyncio
import random
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from sessiontree.contracts.errors import JournalError, JournalUnwritable, TreeNotFound
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, Packed

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]


async def test_pages_of_any_size_join_to_the_whole(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """A cursor over seq sees every record once, whatever page size and segment borders."""
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        chance = random.Random(7)
        for n in range(40):
            _, durable = journal.append("tree", [("main", [fact(n)] * chance.randint(1, 6))])
            if n % 4:
                await durable
        await journal.append("tree", [])[1]
        whole = journal.read("tree")
        for size in (1, 3, 7, 1000):
            pages: list[JournalRecord] = []
            while page := journal.read("tree", after_seq=len(pages), max_n=size):
                pages += page
            assert pages == whole


async def test_facts_beyond_four_megabytes_span_segments(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """One append may need several segments of one transaction; order and chain hold across them."""
    async with opened(tmp_path) as journal:
        await journal.create_tree("tree", {})
        facts = [fact(n, 60_000) for n in range(150)]
        last_seq, durable = journal.append("tree", [("main/b1", facts[:75]), ("main", facts[75:])])
        await durable
        records = journal.read("tree")
        assert [record.text for record in records] == [item.text for item in facts]
        assert last_seq == records[-1].seq == 150
        assert journal.verify("tree").ok
        assert journal.read_session("tree", "main") == records[75:]
        rows = journal._require_reader()._rows.all("SELECT count(*), max(length(body)) FROM segments")
        assert rows[0][0] == 3
        assert rows[0][1] < 5 * 1024 * 1024


async def test_thousand_trees_created_at_once_are_all_there(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """A group larger than one statement may hold is still one commit."""
    async with opened(tmp_path) as journal:
        for n in range(1000):
            journal.create_tree(f"tree {n}", {"n": n})
            journal.append(f"tree {n}", [("main", [fact(n)])])
        _, durable = journal.append("tree 999", [])
        await durable
        trees = journal.trees()
        assert len(trees) == 1000
        assert all(tree.last_seq == 1 for tree in trees)
        assert journal.row0("tree 123") == {"n": 123}
        assert journal.read("tree 123")[0].to_json()["n"] == 123


async def test_future_of_an_append_without_facts_waits_for_those_before(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """An empty append is a way to wait for all that was appended."""
    async with opened(tmp_path) as journal:
        journal.create_tree("tree", {})
        journal.append("tree", [("main", [fact(1)])])
        last_seq, durable = journal.append("tree", [("main", [])])
        await durable
        assert last_seq == len(journal.read("tree")) == journal.last_seq("tree") == 1


@pytest.mark.parametrize(
    "text",
    ['{"a":\n1}', '{"a":"é"}', "[1]", "", '{"a":1}\r', " {}"],
    ids=["newline", "letter", "list", "none", "cr", "gap"],
)
async def test_fact_of_another_form_is_refused_and_loses_nothing(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path, text: str
) -> None:
    """A bad fact raises ValueError at once; facts before and after it are kept, numbering has no hole."""
    async with opened(tmp_path) as journal:
        journal.create_tree("tree", {})
        journal.append("tree", [("main", [fact(1)])])
        with pytest.raises(ValueError, match="one line"):
            journal.append("tree", [("main", [fact(2)]), ("main", [Packed("c", 1, text)])])
        with pytest.raises(ValueError, match="64 bits"):
            journal.append("tree", [("main", [Packed("c", 2**63, "{}")])])
        with pytest.raises(ValueError, match="printed"):
            journal.append("tree", [("main\x00", [fact(2)])])
        last_seq, durable = journal.append("tree", [("main", [fact(3)])])
        await durable
        assert last_seq == 2
        assert [record.to_json()["n"] for record in journal.read("tree")] == [1, 3]


async def test_tree_ids_are_taken_once_and_must_be_names(opened: OpenJournal, tmp_path: Path) -> None:
    """A taken id is refused before and after its creation is durable; so is one that is no name."""
    async with opened(tmp_path) as journal:
        created = journal.create_tree("tree", {})
        with pytest.raises(ValueError, match="already"):
            journal.create_tree("tree", {})
        await created
        for tree_id in ("", "a\nb", "\ud800"):
            with pytest.raises(ValueError, match="id"):
                journal.create_tree(tree_id, {})
        with pytest.raises(ValueError, match="not JSON compliant"):
            journal.create_tree("other", {"limit": float("inf")})
    async with opened(tmp_path) as journal:
        with pytest.raises(ValueError, match="already"):
            journal.create_tree("tree", {})


async def test_tree_that_is_not_there_is_named(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """Every way to ask for an unknown tree ends in TreeNotFound."""
    async with opened(tmp_path) as journal:
        for ask in (
            lambda: journal.read("gone"),
            lambda: journal.read("\ud800"),
            lambda: journal.read_session("gone", "main"),
            lambda: journal.row0("gone"),
            lambda: journal.last_seq("gone"),
            lambda: journal.verify("gone"),
            lambda: journal.append("gone", [("main", [fact(1)])]),
            lambda: journal.erase("gone"),
        ):
            with pytest.raises(TreeNotFound, match="holds no tree"):
                ask()


async def test_closing_commits_what_waits_and_may_be_repeated(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """Nothing appended before close is lost, nothing is taken after it, and closing twice is no error."""
    journal = Journal.open(tmp_path)
    journal.start(asyncio.get_running_loop())
    futures = [journal.create_tree("tree", {})]
    futures += [journal.append("tree", [("main", [fact(n)])])[1] for n in range(50)]
    async with asyncio.TaskGroup() as group:
        group.create_task(journal.close())
        group.create_task(journal.close())
    await journal.close()
    assert all(future.done() and future.exception() is None for future in futures)
    with pytest.raises(JournalUnwritable, match="closed"):
        journal.append("tree", [("main", [fact(1)])])
    with pytest.raises(JournalError, match="closed"):
        journal.read("tree")
    assert not (tmp_path / "journal.db-wal").exists()
    async with opened(tmp_path) as again:
        assert len(again.read("tree")) == 50


async def test_appending_needs_a_started_journal(fact: MakeFact, tmp_path: Path) -> None:
    """A journal belongs to one loop, from start on; it starts once."""
    journal = Journal.open(tmp_path)
    with pytest.raises(RuntimeError, match="not started"):
        journal.create_tree("tree", {})
    journal.start(asyncio.get_running_loop())
    with pytest.raises(RuntimeError, match="before"):
        journal.start(asyncio.get_running_loop())
    with pytest.raises(RuntimeError, match="await"):
        journal.release()
    await journal.close()


async def test_state_directory_is_private(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """Directory 0700, every file 0600, blobs included."""
    state = tmp_path / "a" / "state"
    async with opened(state) as journal:
        journal.create_tree("tree", {})
        await journal.append("tree", [("main", [fact(1, 70_000)])])[1]
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.rglob("*")}
        assert modes.pop("blobs") == 0o700
        assert len(modes) == 5
        assert set(modes.values()) == {0o600}


async def test_switch_interval_is_short_while_a_writer_is_open(tmp_path: Path) -> None:
    """The interpreter hands over within half a millisecond while any writer is open, and only then."""
    before_s = sys.getswitchinterval()
    first, second = Journal.open(tmp_path / "1"), Journal.open(tmp_path / "2")
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    first.release()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    second.release()
    assert sys.getswitchinterval() == before_s


async def test_group_resolves_once_though_a_waiter_was_cancelled(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """A cancelled waiter neither undoes its facts nor disturbs the others of its group."""
    async with opened(tmp_path) as journal:
        journal.create_tree("tree", {})
        _, first = journal.append("tree", [("main", [fact(1)])])
        _, second = journal.append("tree", [("main", [fact(2)])])
        first.cancel()
        await second
        assert journal.last_seq("tree") == 2
