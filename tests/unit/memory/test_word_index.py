"""Words in memory: the same words, scores and ranks as the table's own full-text index."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import lancedb
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lancedb.query import MatchQuery

from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.mirror import word_index
from sessiontree.memory.mirror.columns import TextColumn
from sessiontree.memory.mirror.word_index import WordIndex, split_pieces
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.tables import ROW_ID, split_words
from tests.unit.memory.record_strategies import ToyEmbedder

SCOPE = MemoryScope("t1", "main", "a1", "/w")
# fmt: off
WORDS = (
    "retry", "Retries", "the", "lock", "parser.py", "max_retries", "maxRetries", "3.14", "don't", "x",
    "журнал", "naïve", "用户喜欢喝茶", "ภาษาไทย", "(lock)", "--retry", "e\u0301", "\u202flock", "a\u00a0b",
    "y" * 50,
)
# fmt: on
worded = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=12).map(" ".join)


@given(worded | st.text(max_size=40))
@example("The retries don't retry: maxRetries max_retries foo.bar 3.14 v1.2.3 a'b x@y.z 1,000 _lock_ 'tis")
@example("\x1ca\x1db\x85c\u2028d\u3000e f\u202fg")
def test_words_of_pieces_are_those_of_the_whole(text: str) -> None:
    """White space always parts words, and neither case nor marks at the ends of a piece make others."""
    well_formed = text.encode("utf-8", "replace").decode()
    whole = split_words([well_formed])[0]
    assert list(chain.from_iterable(split_words(split_pieces(well_formed)))) == whole


def test_texts_are_split_one_by_one() -> None:
    """Whatever they have, the word between them included."""
    texts = ["", "fox foxes", "a 0zq7x4w9k2 b", "журнал", "."]
    assert split_words(texts) == [list(chain(*split_words([text]))) for text in texts]
    assert split_words(texts)[1] == ["fox", "fox"]
    assert split_words([]) == []


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[asyncio.Runner, LanceMemoryStore]]:
    """A tidied store of some hundred records by chance."""
    chance = np.random.default_rng(3)
    texts = [" ".join(chance.choice(WORDS[:-1], chance.integers(1, 30))) for _ in range(300)]
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as directory:
        store = runner.run(LanceMemoryStore.open(directory, ToyEmbedder()))
        runner.run(store.store([NewRecord(text) for text in texts], SCOPE, "call"))
        runner.run(store.tidy())
        runner.run(store._cache.number())
        yield runner, store
        runner.run(store.close())


@pytest.mark.slow
@given(worded)
@example("retry")
@example("retry Retry lock retries")
def test_scores_are_those_of_the_table(opened: tuple[asyncio.Runner, LanceMemoryStore], text: str) -> None:
    """Row by row, words that are repeated or that no text has included."""
    runner, store = opened
    mirror = store._cache.mirror
    asked = text.encode("utf-8", "replace").decode()

    async def ask() -> dict[int, float]:
        words = MatchQuery(asked, "text")  # type: ignore[call-arg]
        query = store._cache.table._table.query().nearest_to_text(words)
        found = await query.select(["_score"]).with_row_id().limit(1_000).to_arrow()
        positions = mirror.find_positions(found[ROW_ID].to_numpy().astype(np.int64))
        return dict(zip(positions.tolist(), found["_score"].to_pylist(), strict=True))

    mirror.words.update(mirror.texts, mirror.rows)
    scores = mirror.words.score(asked, mirror.alive())
    own = {row: float(scores[row]) for row in np.flatnonzero(scores).tolist()}
    assert own == pytest.approx(runner.run(ask()), rel=1e-5)


def score_plainly(texts: list[str], query: str, alive: list[bool]) -> dict[int, float]:
    """The definition of BM25, one row at a time."""
    split = split_words(texts)
    living = [words for words, lives in zip(split, alive, strict=True) if lives and words]
    mean = sum(map(len, living)) / max(1, len(living))
    scores = dict[int, float]()
    for row, words in enumerate(split):
        for word in split_words([query])[0]:
            having = sum(word in other for other in living)
            rarity = math.log(1 + (len(living) - having + 0.5) / (having + 0.5))
            often = words.count(word)
            if often and alive[row]:
                part = rarity * 2.2 * often / (often + 1.2 * (0.25 + 0.75 * len(words) / mean))
                scores[row] = scores.get(row, 0) + part
    return scores


def rank_plainly(texts: list[str], query: str, alive: list[bool]) -> list[int]:
    """Best first; equal scores by position."""
    scores = score_plainly(texts, query, alive)
    return sorted(scores, key=lambda row: (-round(scores[row], 5), row))


texts = st.lists(
    st.lists(st.sampled_from(("retry", "lock", "fox", "the")), max_size=6).map(" ".join), max_size=20
)


@given(texts, st.sampled_from(("retry", "fox lock", "fox fox retry", "the", "unseen fox")), st.data())
def test_rank_is_the_definition(rows: list[str], query: str, data: st.DataObject) -> None:
    """Added in parts of any size, sorted at any time, with rows that died or are hidden."""
    alive = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    cuts = [*sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=4))), len(rows)]
    column, index = TextColumn(), WordIndex()
    column.extend(len(rows))
    column.put(np.arange(len(rows)), [row.encode() for row in rows])
    lives = np.array(alive, np.bool_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_index, "_LATELY", data.draw(st.integers(0, 9)))
        for cut in cuts:
            index.update(column, cut)
            expected = rank_plainly(rows[:cut], query, alive[:cut])
            assert len(index) == cut
            found = index.rank(query, lives[:cut], lives[:cut], 100)
            assert found.tolist() == expected
            scores = score_plainly(rows[:cut], query, alive[:cut])
            assert index.score(query, lives[:cut])[expected] == pytest.approx([scores[n] for n in expected])
            hidden = lives[:cut] & (np.arange(cut) % 2 == 0)
            few = index.rank(query, hidden, lives[:cut], 3)
            assert few.tolist() == [row for row in expected if row % 2 == 0][:3]
    for stop in cuts:  # as if the rows behind had been stored after the search had begun
        assert index.rank(query, lives[:stop], lives[:stop], 100).tolist() == rank_plainly(
            rows[:stop], query, alive[:stop]
        )


@pytest.mark.slow
async def test_many_texts_are_indexed_in_the_background(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Until then the table's index answers; both find the same, and closing waits for neither."""
    place = str(tmp_path_factory.mktemp("memory"))
    async with await LanceMemoryStore.open(place, HashingEmbedder()) as store:
        for n in range(2):
            new = [NewRecord(f"fox word{m % 40} {n} {m} {'filler ' * (m % 9)}") for m in range(800)]
            await store.store(new, SCOPE, f"call {n}")
        await store.tidy()
        cache = store._cache
        # No more records have these words than are ranked: of equal ones LanceDB ranks any.
        queries = [MemoryQuery(text, 20) for text in ("word7", "word7 word8", "799", "nothing")]
        cache.builds_words = False
        before = [await store.search(query, SCOPE) for query in queries]
        cache.builds_words = True
        assert cache.get_words(cache.mirror) is None
        assert cache._indexing is not None
        await cache._indexing
        assert cache.get_words(cache.mirror) is cache.mirror.words
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cache.table, "find_matching", None)
            found = [await store.search(query, SCOPE) for query in queries]
        assert found == before
        cache.mirror.texts = TextColumn(0)  # as in a store of more text than is kept
        cache.mirror.texts.extend(cache.mirror.rows)
        assert [await store.search(query, SCOPE) for query in queries] == found
    async with await LanceMemoryStore.open(place, HashingEmbedder()) as again:
        assert again._cache.get_words(again._cache.mirror) is None
        indexing = again._cache._indexing
        assert indexing is not None
    await asyncio.wait([indexing])
    assert indexing.cancelled()


async def test_index_is_not_asked_if_texts_are_missing(tmp_path: Path) -> None:
    """A limit of texts is a limit of the index: it is dropped with the first text that is."""
    async with await LanceMemoryStore.open(str(tmp_path), HashingEmbedder()) as store:
        cache = store._cache
        cache.mirror.texts = TextColumn(10)
        await store.store([NewRecord("fox"), NewRecord("retry")], SCOPE, "one")
        await store.search(MemoryQuery("fox"), SCOPE)
        assert (cache.get_words(cache.mirror), len(cache.mirror.words)) == (cache.mirror.words, 2)
        await store.store([NewRecord("lock lock")], SCOPE, "two")
        assert (cache.get_words(cache.mirror), len(cache.mirror.words)) == (None, 0)
        (hit, *_) = await store.search(MemoryQuery("fox"), SCOPE)
        assert hit.record.text == "fox"


async def test_changed_text_is_found_by_its_words(tmp_path: Path) -> None:
    """What another process changed has its new words once a tidying has compared the texts."""
    async with await LanceMemoryStore.open(str(tmp_path), ToyEmbedder()) as store:
        cache = store._cache
        (chosen, _) = await store.store([NewRecord("fox"), NewRecord("fox")], SCOPE, "one")
        await store.search(MemoryQuery("fox"), SCOPE)
        table = await (await lancedb.connect_async(tmp_path)).open_table("records")
        await table.update({"text": "wolf"}, where=f"id = '{chosen}'")
        await store.tidy()
        words, alive = cache.get_words(cache.mirror), cache.mirror.alive()
        assert words is not None
        words.update(cache.mirror.texts, 2)
        assert [words.rank(text, alive, alive, 5).tolist() for text in ("fox", "wolf")] == [[1], [0]]


def test_counts_of_a_word_have_no_end() -> None:
    """More repetitions than a count can hold are as many as it can hold."""
    column, index = TextColumn(), WordIndex()
    column.extend(2)
    column.put(np.arange(2), [b"fox " * 70_000, b"fox"])
    index.update(column, 2)
    assert Counter(index._late[2].all().tolist()) == {65_535: 1, 1: 1}
