"""Erasing and pruning trees: nothing of them stays, and nothing of the others goes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import TypeAlias

import pytest

from sessiontree.contracts.errors import JournalUnwritable, TreeNotFound
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]


async def fill(journal: Journal, fact: MakeFact, *tree_ids: str) -> None:
    """Write trees that share one long text and have one of their own."""
    for n, tree_id in enumerate(tree_ids):
        journal.create_tree(tree_id, {"secret": f"row of {tree_id}"})
        own = Packed("c", 1, f'{{"own":"{tree_id}{"x" * 70_000}"}}')
        facts = [fact(0, 70_000), own, Packed("c", 1, f'{{"secret":"fact of {tree_id}"}}')]
        journal.append(tree_id, [("main", facts), (f"main/b{n}", [fact(n)])])
    for tree_id in tree_ids:
        await journal.append(tree_id, [])[1]


async def test_erasing_one_tree_leaves_the_others_whole(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """Rows and own blobs of the tree are gone; shared blobs and other trees verify."""
    async with opened(tmp_path) as journal:
        await fill(journal, fact, "one", "two", "three")
        before = {tree_id: journal.read(tree_id) for tree_id in ("one", "three")}
        assert len(list((tmp_path / "blobs").iterdir())) == 4
        journal.append("two", [("main", [fact(5)])])
        journal.erase("two")
        assert len(list((tmp_path / "blobs").iterdir())) == 3
        assert [tree.tree_id for tree in journal.trees()] == ["one", "three"]
        for tree_id, records in before.items():
            assert journal.verify(tree_id).ok
            assert journal.read(tree_id) == records
        for ask in (journal.read, journal.verify, journal.erase, lambda tree: journal.append(tree, [])):
            with pytest.raises(TreeNotFound):
                ask("two")
        journal.erase("one")
        journal.erase("three")
        assert list((tmp_path / "blobs").iterdir()) == []


async def test_erased_bytes_are_on_no_file(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """Erasing overwrites: neither database nor log keeps a word of the tree."""
    async with opened(tmp_path) as journal:
        await fill(journal, fact, "one", "two")
        journal.erase("one")
        kept = (tmp_path / "journal.db").read_bytes() + (tmp_path / "journal.db-wal").read_bytes()
        for word in (b"row of one", b"fact of one"):
            assert word not in kept
        assert b"fact of two" in kept


async def test_erased_bytes_that_a_reader_held_go_once_it_lets_go(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """A reader in the middle of a transaction keeps the log; the first commit after it empties that."""
    log = tmp_path / "journal.db-wal"
    async with opened(tmp_path) as journal:
        await fill(journal, fact, "one", "two")
        with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM trees").fetchone() == (2,)
            journal.erase("one")
            await journal.append("two", [("main", [fact(1)])])[1]
            assert b"fact of one" in log.read_bytes()
        for _ in range(2):  # the log is tended to after each commit: by the second it was after the first
            await journal.append("two", [("main", [fact(1)])])[1]
        assert b"fact of one" not in log.read_bytes()


async def test_erased_id_may_be_used_anew(opened: OpenJournal, fact: MakeFact, tmp_path: Path) -> None:
    """A tree of the same id starts at seq 1 with a chain of its own, here and for other readers."""
    async with opened(tmp_path) as journal:
        await fill(journal, fact, "tree")
        with Journal.open(tmp_path, read_only=True) as reader:
            assert len(reader.read("tree")) == 4
            journal.erase("tree")
            with pytest.raises(TreeNotFound):
                reader.read("tree")
            journal.create_tree("tree", {"second": True})
            last_seq, durable = journal.append("tree", [("main/new", [fact(9)])])
            await durable
            assert last_seq == 1
            for either in (journal, reader):
                assert [record.session for record in either.read("tree")] == ["main/new"]
                assert either.sessions("tree") == ["main/new"]
                assert either.verify("tree").ok


async def test_tree_can_be_erased_before_it_is_durable(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """What waits for the disk is committed first, then erased: its futures resolve."""
    async with opened(tmp_path) as journal:
        created = journal.create_tree("tree", {})
        _, durable = journal.append("tree", [("main", [fact(1)])])
        journal.erase("tree")
        await created
        await durable
        assert journal.trees() == []


async def test_erasing_several_trees_is_all_or_nothing(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """An unknown tree among them keeps all; erased together they leave no row; it needs no loop."""
    async with opened(tmp_path) as journal:
        await fill(journal, fact, "one", "two", "three")
    with Journal.open(tmp_path) as journal:
        with pytest.raises(TreeNotFound):
            journal.erase("one", "four")
        assert len(journal.trees()) == 3
        journal.erase("one", "three")
        assert journal.verify("two").ok
        journal.erase("two")
        assert journal.trees() == []
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        tables = ("segments", "touched", "heads", "blob_uses", "quarantine", "trees")
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608 - constants
    assert counts == [0] * 6


async def test_compacting_gives_space_back_and_keeps_what_is_there(
    opened: OpenJournal, fact: MakeFact, tmp_path: Path
) -> None:
    """The database shrinks, also while another process reads it; trees that stay verify and go on."""
    async with opened(tmp_path) as journal:
        await fill(journal, fact, "one", "two")
        for _ in range(40):
            await journal.append("one", [("main", [fact(n, 5_000) for n in range(10)])])[1]
        kept = journal.read("two")
        journal.erase("one")
        before = (tmp_path / "journal.db").stat().st_size
        with Journal.open(tmp_path, read_only=True) as reader:
            assert reader.read("two") == kept
            journal.compact()
            await journal.append("two", [("main", [fact(7)])])[1]
            assert reader.read("two")[:-1] == kept
            assert reader.verify("two").ok
        assert (tmp_path / "journal.db").stat().st_size < before / 4
        assert journal.read("two")[:-1] == kept


def test_reading_process_can_erase_nothing(tmp_path: Path) -> None:
    """A journal opened to read says how to open it to write."""
    Journal.open(tmp_path).release()
    with Journal.open(tmp_path, read_only=True) as journal:
        with pytest.raises(JournalUnwritable, match="opened to read"):
            journal.erase("tree")
        with pytest.raises(JournalUnwritable, match="opened to read"):
            journal.compact()
