"""Every plan of appends reads back in order, densely numbered (REL-S41)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, Packed
from tests.example_fixtures import examples

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
MakeFact: TypeAlias = Callable[..., Packed]
Read: TypeAlias = Callable[[Journal, str], list[JournalRecord]]
Plan: TypeAlias = list[tuple[str, list[tuple[str, int]]]]
"""Appends in order: the tree, and how many facts for which session."""
PLANS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two"]),
        st.lists(
            st.tuples(st.sampled_from(["", "main", "main/b1", "main/b1/wé😀"]), st.integers(0, 4)), max_size=4
        ),
    ),
    max_size=12,
)


def read_all(journal: Journal, tree_id: str) -> list[JournalRecord]:
    """The function under test."""
    return journal.read(tree_id)


def reads_what_was_appended(opened: OpenJournal, state: Path, plan: Plan, read: Read) -> None:
    """Property: seqs are dense from 1 in the order of append calls and chunks, per tree (REL-S41)."""

    async def run() -> None:
        async with opened(state) as journal:
            model: dict[str, list[JournalRecord]] = {"one": [], "two": []}
            waiting = [journal.create_tree(tree_id, {}) for tree_id in model]
            for number, (tree_id, sizes) in enumerate(plan):
                chunks: list[tuple[str, list[Packed]]] = []
                for session, count in sizes:
                    facts = [Packed(f"c{number}", n, f'{{"n":{n}}}') for n in range(count)]
                    chunks.append((session, facts))
                    for fact in facts:
                        seq = len(model[tree_id]) + 1
                        model[tree_id].append(JournalRecord(seq, session, fact.cause, fact.at_ms, fact.text))
                last_seq, durable = journal.append(tree_id, chunks)
                assert last_seq == len(model[tree_id])
                waiting.append(durable)
                if number % 3 == 0:
                    await durable
            for future in waiting:
                await future
            for tree_id, records in model.items():
                assert read(journal, tree_id) == records
                assert journal.verify(tree_id).ok
                sessions = dict.fromkeys(record.session for record in records if record.session)
                assert sorted(journal.sessions(tree_id)) == sorted(sessions)
                for session in ["", *sessions]:
                    own = [record for record in records if record.session == session]
                    assert journal.read_session(tree_id, session, after_seq=2) == [
                        r for r in own if r.seq > 2
                    ]

    asyncio.run(run())


@pytest.mark.covers("REL-S41", "ORD9")
@pytest.mark.slow
@settings(max_examples=examples(25))
@given(plan=PLANS)
def test_every_plan_of_appends_reads_back_in_order(
    opened: OpenJournal, tmp_path_factory: pytest.TempPathFactory, plan: Plan
) -> None:
    """REL-S41: what is read is what was appended, numbered densely, whatever was grouped with what."""
    reads_what_was_appended(opened, tmp_path_factory.mktemp("plan"), plan, read_all)


@pytest.mark.covers("REL-S41")
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            lambda journal, tree: sorted(journal.read(tree), key=lambda r: (r.session, r.seq)),
            id="by-session",
        ),
        pytest.param(lambda journal, tree: journal.read(tree, after_seq=1), id="loses-the-first"),
        pytest.param(lambda journal, tree: journal.read(tree, max_n=3), id="loses-the-last"),
    ],
)
def test_order_property_notices_a_reader_that_mixes_or_loses(
    opened: OpenJournal, tmp_path_factory: pytest.TempPathFactory, broken: Read
) -> None:
    """The property of REL-S41 fails on a reader with a planted bug."""
    plan: Plan = [("one", [("main", 2), ("", 1)]), ("two", []), ("one", [("main/b1", 1), ("main", 2)])]
    with pytest.raises(AssertionError):
        reads_what_was_appended(opened, tmp_path_factory.mktemp("broken"), plan, broken)
