"""The store against the plainest model of it: what was stored is found, by whom it should, no more."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sessiontree.contracts.errors import MemoryFailed, ValidationError
from sessiontree.contracts.values.memory import (
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
    Source,
)
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.mirror.row_index import select_visible
from sessiontree.memory.search import filter_ranking
from sessiontree.memory.store import LanceMemoryStore
from tests.example_fixtures import examples
from tests.system.house.error_fixtures import has_cause
from tests.unit.memory.record_strategies import (
    PATHS,
    TREES,
    VOCABULARY,
    ToyEmbedder,
    may_see,
    nearest,
    new_records,
    scopes,
    texts,
)

SCOPE = MemoryScope("t1", "main", "a1", "/w")
SILENT = "zz7qx"
"""No record has this word."""
Call: TypeAlias = tuple[list[NewRecord], MemoryScope, str]
calls = st.sampled_from("abcdefgh").flatmap(
    lambda key: st.tuples(
        st.lists(new_records, min_size=1 + ord(key) % 4, max_size=1 + ord(key) % 4), scopes, st.just(key)
    )
)
"""A key names a call: whenever it is made, it has as many records."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.lists(calls, min_size=1, max_size=5)),
        st.tuples(st.just("forget"), st.builds(Selection, path=st.sampled_from(PATHS))),
        st.tuples(st.just("forget"), st.builds(Selection, tree_id=st.sampled_from(TREES))),
        st.tuples(st.just("finish"), st.sampled_from(TREES)),
        st.tuples(st.sampled_from(("tidy", "reopen")), st.none()),
        st.tuples(st.just("search"), st.tuples(texts, st.none() | scopes)),
    ),
    min_size=3,
    max_size=14,
)


def is_selected(record: MemoryRecord, selection: Selection) -> bool:
    """Whether all conditions hold."""
    path = None if record.source is None else Source.of(record.source).path
    below = path is not None and f"{path}/".startswith(f"{selection.path}/")
    return (selection.path is None or below) and selection.tree_id in (None, record.scope.tree_id)


class Model:
    """What a store must hold."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records: dict[str, MemoryRecord] = {}
        self.finished: set[str] = set()

    async def open(self) -> LanceMemoryStore:
        return await LanceMemoryStore.open(str(self.directory), ToyEmbedder())

    async def step(self, store: LanceMemoryStore, name: str, asked: object) -> LanceMemoryStore:
        """Do one thing to both."""
        match name, asked:
            case "store", list(several):
                await self._store(store, several)
            case "forget", Selection() as selection:
                gone = {key for key, record in self.records.items() if is_selected(record, selection)}
                assert set(await store.forget(selection, None)) == gone
                assert await store.forget(selection, None) == []
                for record_id in gone:
                    del self.records[record_id]
            case "finish", str(tree):
                await store.mark_finished(tree, agent_id="a1", workspace="/w", ended_at_ms=1)
                self.finished.add(tree)
            case "tidy", _:
                await store.tidy()
            case "reopen", _:
                await store.close()
                store = await self.open()
            case "search", (str(text), MemoryScope() | None as scope):
                await self._search(store, text, scope)
        return store

    async def _store(self, store: LanceMemoryStore, several: list[Call]) -> None:
        """Store some calls at once; of those with one key, one is kept whole, whichever comes first."""
        async with asyncio.TaskGroup() as group:
            ids = [group.create_task(store.store(*call)) for call in several]
        assert [await store.store(*call) for call in several] == [task.result() for task in ids]
        made = {record_id for task in ids for record_id in task.result()}
        fresh = {record.id: record for record in await store.get(sorted(made - self.records.keys()), None)}
        for n, (_, scope, key) in enumerate(several):
            rivals = [
                m for m, call in enumerate(several) if (call[1].tree_id, call[2]) == (scope.tree_id, key)
            ]
            if any(record_id in self.records for m in rivals for record_id in ids[m].result()):
                assert not any(record_id in fresh for record_id in ids[n].result())
                continue
            kept = [fresh[record_id] for m in rivals for record_id in ids[m].result() if record_id in fresh]
            kept = list({record.id: record for record in kept}.values())
            assert [(r.text, r.type, r.trust, r.scope) for r in kept] in [
                [(new.text, new.type, new.trust, several[m][1]) for new in several[m][0]] for m in rivals
            ]
        self.records |= fresh

    async def _search(self, store: LanceMemoryStore, text: str, scope: MemoryScope | None) -> None:
        """No word of the query is in any text: what is found, is found by vectors alone."""
        seen = [record for record in self.records.values() if may_see(record, scope, self.finished)]
        hits = await store.search(MemoryQuery(SILENT, 5), scope)
        near = [self.records[record_id].text for record_id in nearest(seen, SILENT, 5)]
        assert [hit.record.text for hit in hits] == near  # records of one text stand in the order of commits
        assert {hit.record.id for hit in hits} <= {record.id for record in seen}
        halves = [61 / (60 + place) / 2 for place in range(1, len(hits) + 1)]
        assert [hit.score for hit in hits] == pytest.approx(halves)
        worded = await store.search(MemoryQuery(text, 100), scope)
        assert {hit.record.id for hit in worded} == {record.id for record in seen}

    async def check(self, store: LanceMemoryStore) -> None:
        """Both hold the same, and everybody sees what is theirs."""
        kept = [record async for part in store.parts() for record in part.records]
        assert {record.id: record for record in kept} == self.records
        assert len(store) == len(self.records)
        unfinished = await store.list_unfinished_trees()
        assert unfinished == {each.scope.tree_id for each in self.records.values()} - self.finished
        for tree in TREES:
            scope = MemoryScope(tree, "main/b1", "a1", "/w")
            seen = {key for key, record in self.records.items() if may_see(record, scope, self.finished)}
            assert {record.id for record in await store.get(list(self.records), scope)} == seen
            chosen = await store.select(Selection(tree_id="t1"), scope, 1_000)
            assert [r.id for r in chosen] == [r.id for r in kept if r.id in seen and r.scope.tree_id == "t1"]


@pytest.mark.covers("C6")
@pytest.mark.slow
@settings(max_examples=examples(25))
@given(steps)
def test_store_is_its_model(done: list[tuple[str, object]]) -> None:
    """Whatever is stored, repeated, forgotten, tidied, reopened: ids, records, hits and scopes are right."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            model = Model(Path(directory))
            store = await model.open()
            try:
                for name, asked in done:
                    store = await model.step(store, name, asked)
                await model.check(store)
            finally:
                await store.close()

    asyncio.run(run())


@pytest.mark.slow
async def test_index_of_vectors_finds_what_the_matrix_does(tmp_path: Path) -> None:
    """Above the limit vectors leave memory, and come back with nothing lost: stored, filtered, reopened."""
    places = [MemoryScope(f"t{n % 3}", ("main", "main/b1")[n % 2], "a1", "/w") for n in range(600)]
    records = [
        MemoryRecord(f"{n:032x}", "free", f"record {n}", None, "session", scope, n)
        for n, scope in enumerate(places)
    ]

    async def check(store: LanceMemoryStore, *, indexed: bool) -> None:
        assert (store._cache.mirror.matrix is None) == indexed
        for scope in (None, MemoryScope("t1", "main", "a1", "/w"), MemoryScope("t2", "main/b1", "a1", "/w")):
            seen = [record for record in records if may_see(record, scope, ())]
            hits = await store.search(MemoryQuery(SILENT, 20), scope)
            assert [hit.record.id for hit in hits] == nearest(seen, SILENT, 20)

    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder(), ann_above=300) as store:
        await store.add(records[:200])
        await store.tidy()
        assert store._cache.mirror.matrix is not None
        await store.add(records[200:])
        await check(store, indexed=False)
        await store.tidy()
        await check(store, indexed=True)
        (extra,) = await store.store([NewRecord("one more")], SCOPE, "extra")
        assert len(await store.forget(Selection(ids=(extra,)), None)) == 1
        await check(store, indexed=True)
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder(), ann_above=300) as again:
        await check(again, indexed=True)
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as exact:
        await check(exact, indexed=False)


@pytest.mark.slow
async def test_words_rank_the_same_under_a_filter(tmp_path: Path) -> None:
    """What a scope leaves out changes no order: named one by one or sifted, hits are the filtered ranking."""
    mine = [NewRecord("fox " + "filler " * (1 + n)) for n in range(60)]
    scope = MemoryScope("t2", "main", "a1", "/w")
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        await store.store(mine, scope, "mine")
        for n in range(3):
            await store.store([NewRecord("fox")] * 1_000, SCOPE, f"theirs {n}")
        assert await ranked(store, scope) == list(range(40))
        await store.store([NewRecord("nothing of it")] * 1_000, scope, "more of mine")
        assert await ranked(store, scope) == list(range(40))


async def ranked(store: LanceMemoryStore, scope: MemoryScope) -> list[int]:
    """Return the lengths, in filler words, of what the full-text half finds, best first."""
    await store._cache.number()
    mirror = store._cache.mirror
    mask = select_visible(mirror, scope, ())
    positions = await filter_ranking(mirror, mask, 40, partial(store._cache.table.find_matching, "fox"))
    return [record.text.count("filler") - 1 for record in await store._cache.records(mirror, positions)]


async def test_hits_carry_everything(tmp_path: Path) -> None:
    """A record comes back as it was stored; types, path and least score narrow what is found."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        new = [
            NewRecord("the parser reads ahead", "decision", "src/parser.py#L3-L9", "owner"),
            NewRecord("розбір дерева", "fact", "src/parser.py", "foreign"),
            NewRecord("记忆 用户", "preference", None),
        ]
        ids = await store.store(new, SCOPE, "call")
        for record, word in zip(new, ("READS", "дерева", "用户"), strict=True):
            (first, *_) = await store.search(MemoryQuery(word), SCOPE)
            found = first.record
            assert (found.text, found.type, found.source, found.trust) == (
                record.text,
                record.type,
                record.source,
                record.trust,
            )
            assert (found.scope, found.id in ids, first.score > 0.5) == (SCOPE, True, True)
        assert {h.record.type for h in await store.search(MemoryQuery("x", types=("fact",)), SCOPE)} == {
            "fact"
        }
        assert len(await store.search(MemoryQuery("x", path="src"), SCOPE)) == 2
        assert len(await store.search(MemoryQuery("parser", min_score=0.9), SCOPE)) <= 1
        overlapping = Selection(path="src/parser.py", first=8, last=20)
        assert [r.id for r in await store.select(overlapping, SCOPE, 10)] == ids[:2]
        assert [r.id for r in await store.select(Selection(path="src/parser.py", first=10), SCOPE, 10)] == [
            ids[1]
        ]
        assert [r.id for r in await store.get([ids[2], "0" * 32, ids[0]], SCOPE)] == [ids[2], ids[0]]


async def test_query_without_features_finds_nothing(tmp_path: Path) -> None:
    """What holds no word, so no feature either, fits nothing; no order of records is made up for it."""
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder()) as store:
        await store.store([NewRecord("the parser reads ahead")], SCOPE, "call")
        for text in ('"', "*", "(", "%_", "\0", "~ && ||"):
            assert await store.search(MemoryQuery(text), SCOPE) == [], text
        assert len(await store.search(MemoryQuery('"parser"'), SCOPE)) == 1


async def test_calls_at_once_share_commits(tmp_path: Path) -> None:
    """Two hundred stores at once are a few commits; the same call twice in one of them is stored once."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        before = await store._cache.table._table.version()
        async with asyncio.TaskGroup() as group:
            for n in range(200):
                group.create_task(store.store([NewRecord(f"record {n % 100}")], SCOPE, f"call {n % 100}"))
        assert len(store) == 100
        assert await store._cache.table._table.version() - before < 20
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder(), lock=False) as reader:
        assert len(reader) == 100


async def test_cancelled_caller_takes_nobody_along(tmp_path: Path) -> None:
    """A store given up while it waits changes nothing for the others."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        tasks = [asyncio.ensure_future(store.store([NewRecord("x")], SCOPE, str(n))) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        kept = [tasks[n].result()[0] for n in range(1, 20, 2)]
        assert len(await store.get(kept, SCOPE)) == 10


class Choosy(ToyEmbedder):
    """Fails on one text, and answers with rubbish for others."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if "fail" in texts:
            raise OSError("no such model")
        found = super().embed(texts)
        return found * np.float32("nan") if "nan" in texts else found[:, :3] if "short" in texts else found


@pytest.mark.parametrize("text", ["fail", "nan", "short"])
async def test_one_failing_record_fails_alone(tmp_path: Path, text: str) -> None:
    """What the embedder can't do fails its own caller, typed; the others of the moment are stored."""
    async with await LanceMemoryStore.open(str(tmp_path), Choosy()) as store:
        tasks = [
            asyncio.ensure_future(store.store([NewRecord(text if n == 5 else f"good {n}")], SCOPE, str(n)))
            for n in range(10)
        ]
        await asyncio.wait(tasks)
        with pytest.raises(MemoryFailed, match="toy-16"):
            tasks[5].result()
        assert len(store) == 9
        assert all(len(task.result()) == 1 for n, task in enumerate(tasks) if n != 5)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (NewRecord(""), "/records/0/text"),
        (NewRecord("x" * 20_001), "/records/0/text"),
        (NewRecord("half \ud800"), "/records/0/text"),
        (NewRecord("x", source="a#L9-L3"), "/records/0/source"),
        (NewRecord("x", source=""), "/records/0/source"),
        (NewRecord("x", source="half \udfff"), "/records/0/source"),
        (NewRecord("x", "gossip"), "/records/0/type"),  # type: ignore[arg-type]
        (NewRecord("x", trust="everyone"), "/records/0/trust"),  # type: ignore[arg-type]
    ],
)
async def test_record_that_cannot_be_kept_is_refused(tmp_path: Path, record: NewRecord, field: str) -> None:
    """Before anything is written, and by name."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        with pytest.raises(ValidationError) as caught:
            await store.store([record], SCOPE, "call")
        assert caught.value.field == field
        assert len(store) == 0


async def test_selection_without_a_condition_is_refused(tmp_path: Path) -> None:
    """Nothing named is not everything."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        await store.store([NewRecord("x")], SCOPE, "call")
        for selection in (Selection(), Selection(first=3)):
            with pytest.raises(ValueError, match="name"):
                await store.forget(selection, None)
        assert len(store) == 1


async def test_one_writes_and_others_read(tmp_path: Path) -> None:
    """The second writer learns who writes; a reader sees at once what is stored, finished and forgotten."""
    directory = str(tmp_path / "memory")
    with pytest.raises(MemoryFailed, match="table of records is missing"):
        await LanceMemoryStore.open(directory, ToyEmbedder(), lock=False)
    other = MemoryScope("t2", "main", "a1", "/w")
    async with await LanceMemoryStore.open(directory, ToyEmbedder()) as store:
        with pytest.raises(MemoryFailed, check=has_cause("locked"), match=r"process \d+ writes it"):
            await LanceMemoryStore.open(directory, ToyEmbedder())
        async with await LanceMemoryStore.open(directory, ToyEmbedder(), lock=False) as reader:
            ids = await store.store([NewRecord(f"fox {n}") for n in range(30)], SCOPE, "call")
            assert [hit.record.id for hit in await reader.search(MemoryQuery("fox", 1), SCOPE)] == [
                hit.record.id for hit in await store.search(MemoryQuery("fox", 1), SCOPE)
            ]
            assert await reader.search(MemoryQuery("fox"), other) == []
            await store.mark_finished("t1", agent_id="a1", workspace="/w", ended_at_ms=1)
            assert len(await reader.search(MemoryQuery("fox"), other)) == 10
            await store.forget(Selection(ids=tuple(ids[:25])), SCOPE)
            await store.tidy()
            assert {record.id for record in await reader.get(ids, SCOPE)} == set(ids[25:])
            assert len(reader) == 5
            assert {hit.record.id for hit in await reader.search(MemoryQuery("fox", 5), SCOPE)} == set(
                ids[25:]
            )
            for attempt in (
                reader.store([NewRecord("x")], SCOPE, "k"),
                reader.forget(Selection(ids=tuple(ids)), None),
                reader.mark_finished("t2", agent_id="a1", workspace="/w", ended_at_ms=1),
            ):
                with pytest.raises(MemoryFailed, match="open only for reading"):
                    await attempt
    async with await LanceMemoryStore.open(directory, ToyEmbedder()) as again:
        assert len(again) == 5


async def test_parts_are_in_created_order_with_vectors(tmp_path: Path) -> None:
    """Records added later with an earlier time come first; their vectors are the embedder's."""
    records = [
        MemoryRecord(f"{n:032x}", "free", f"{VOCABULARY[n % 8]} {n}", None, "session", SCOPE, -n // 3)
        for n in range(50)
    ]
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        assert len(await store.add(records)) == 50
        assert await store.add(records) == []
        parts = [part async for part in store.parts(vectors=True, at_once=7)]
        found = [record for part in parts for record in part.records]
        assert found == sorted(records, key=lambda record: record.created_at_ms)
        vectors = np.concatenate([part.vectors for part in parts if part.vectors is not None])
        assert vectors == pytest.approx(ToyEmbedder().embed([record.text for record in found]))
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as again:
        assert [record async for part in again.parts() for record in part.records] == found


@pytest.mark.slow
def test_rest_client_of_lancedb_is_built_when_it_is_used() -> None:
    """A process that loads the store does without it; one that asks for it gets all of it."""
    code = """
import sys, sessiontree.memory.store
client = "lance_namespace_urllib3_client"
assert f"{client}.models" in sys.modules and f"{client}.api" not in sys.modules
from lance_namespace_urllib3_client import TableApi
assert f"{client}.api" in sys.modules and TableApi.create_table
"""
    subprocess.run([sys.executable, "-c", code], check=True)
