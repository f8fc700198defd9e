"""Facts survive the journal letter by letter, whatever JSON they hold."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import JournalCorrupt
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal.export import load_export
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import JournalRecord, Packed
from tests.example_fixtures import examples

OpenJournal: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Journal]]
Facts: TypeAlias = list[tuple[str, dict[str, Any]]]
"""Cause and fact."""

TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\ud800", "\udfff\ud800", '","fact":{', "\\", "\n"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FACTS = st.lists(st.tuples(TEXT, st.dictionaries(TEXT, VALUES, max_size=4)), min_size=1, max_size=6)
HARD: Facts = [
    (
        '","fact":{"a":1}',
        {"kind": "said", "v": 1, "text": "\ud83d\ude00 \ud800", "n": 2**53 + 1, "m": -(2**64)},
    ),
    ("\ud800\n\\", {"": "x" * 70_000, "tiny": 5e-324, "huge": 1.7976931348623157e308, "zero": -0.0}),
]


def through_json(value: str) -> str:
    """The function under test: what the journal does to a fact's text on its way out is nothing."""
    return value


def comes_back(opened: OpenJournal, state: Path, facts: Facts, spoil: Callable[[str], str]) -> None:
    """Property: text, value and cause are the same after commit, reopening and export (REL-P34)."""
    packed = [Packed(cause, n, dump_json(fact)) for n, (cause, fact) in enumerate(facts)]

    async def run() -> None:
        async with opened(state) as journal:
            journal.create_tree("tree", {"cause": facts[0][0]})
            await journal.append("tree", [("main", packed)])[1]
        async with opened(state) as journal:
            out = io.StringIO()
            journal.export("tree", out)
            exported = load_export(out.getvalue().splitlines(keepends=True))
            for records in (journal.read("tree"), journal.read_session("tree", "main"), exported.records):
                assert [Packed(r.cause, r.at_ms, spoil(r.text)) for r in records] == packed
                values = [
                    repr(JournalRecord(1, "", "", 0, spoil(record.text)).to_json()) for record in records
                ]
                assert values == [repr(json.loads(item.text)) for item in packed]
            assert journal.row0("tree") == {"cause": facts[0][0]}

    asyncio.run(run())


@pytest.mark.covers("REL-P34")
@pytest.mark.slow
@settings(max_examples=examples(25))
@given(facts=FACTS)
@example(facts=HARD)
def test_any_json_comes_back_as_it_went_in(
    opened: OpenJournal, tmp_path_factory: pytest.TempPathFactory, facts: Facts
) -> None:
    """REL-P34: lone surrogates, integers beyond 2^53 and text that looks like framing are kept."""
    comes_back(opened, tmp_path_factory.mktemp("json"), facts, through_json)


@pytest.mark.covers("REL-P34")
@pytest.mark.parametrize(
    "broken",
    [
        lambda text: dump_json(json.loads(text, parse_int=float)),
        lambda text: json.dumps(json.loads(text)),
        lambda text: text.replace("\\ud800", "\\ufffd"),
    ],
    ids=["integers-as-floats", "other-spacing", "surrogates-replaced"],
)
def test_round_trip_property_notices_a_lossy_journal(
    opened: OpenJournal, tmp_path_factory: pytest.TempPathFactory, broken: Callable[[str], str]
) -> None:
    """The property of REL-P34 fails where integers, spacing or surrogates change."""
    with pytest.raises(AssertionError):
        comes_back(opened, tmp_path_factory.mktemp("lossy"), HARD, broken)


@pytest.mark.parametrize("text", ["{", "[1]", "{'a':1}"])
def test_text_that_is_no_object_is_a_typed_error(text: str) -> None:
    """A text nobody can read as a fact names its record."""
    with pytest.raises(JournalCorrupt, match="record 7"):
        JournalRecord(7, "main", "c", 0, text).to_json()


async def test_long_texts_are_files_shared_by_their_content(opened: OpenJournal, tmp_path: Path) -> None:
    """A text beyond 64 KB is stored once however often it occurs; one of 64 KB stays inline."""
    long, edge = '{"text":"' + "x" * 65_536 + '"}', '{"text":"' + "y" * (65_536 - 11) + '"}'
    assert len(edge) == 65_536
    async with opened(tmp_path) as journal:
        for tree_id in ("one", "two"):
            journal.create_tree(tree_id, {})
            facts = [Packed("c", 1, text) for text in (long, edge, long)]
            await journal.append(tree_id, [("main", facts)])[1]
        assert len(list((tmp_path / "blobs").iterdir())) == 1
        assert [record.text for record in journal.read("two")] == [long, edge, long]
        assert [record.text for record in journal.read_session("one", "main", after_seq=1)] == [edge, long]


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"a":' * 5_000, "9" * 5_000])
def test_text_that_is_no_fact_is_damage(text: str) -> None:
    """Whatever is wrong with it, its reader has to expect one error."""
    record = JournalRecord(1, "main", "c", 1, text)
    with pytest.raises(JournalCorrupt):
        record.to_json()
    with pytest.raises(JournalCorrupt):
        _ = record.fact
