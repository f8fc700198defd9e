"""Any text is a query: it never fails, and its words find the records that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord
from sessiontree.memory.failures import convert_read_errors, convert_search_errors
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.store import LanceMemoryStore

SCOPE = MemoryScope("t1", "main", "a1", "/w")
WORDS = ("sky", "blue", "parser", "retries", "журнал", "дерево", "naïve", "4711", "main2")
MARKS = (
    '"',
    '""',
    "'",
    "`",
    "(",
    ")",
    "[",
    "{",
    "}",
    "*",
    "?",
    "~",
    "^",
    ":",
    "+",
    "-",
    "!",
    "\\",
    "/",
    "%",
    "=",
    ";",
)
Find = Callable[[LanceMemoryStore, str], Coroutine[object, object, list[str]]]

marks = st.sampled_from(MARKS)
worded = st.tuples(marks | st.just(""), st.sampled_from(WORDS), marks | st.just("")).map("".join)
noise = (
    st.text(max_size=8)
    | st.text("\0\x01\x1b\x7f\u200b\u202e\ufeff\ud800\udfff", max_size=4)
    | st.sampled_from(
        ("AND", "OR", "NOT", "NEAR/3", "text:", '"sky is', 'blue"~2', '{"match":', "EXISTS", "NULL")
    )
)
queries = st.lists(worded | noise | marks, max_size=8).map(" ".join) | st.text(max_size=40)


@dataclass(frozen=True, slots=True)
class Opened:
    """A store, and the loop that it belongs to."""

    runner: asyncio.Runner
    store: LanceMemoryStore


@pytest.fixture(scope="module", params=["fresh", "tidied"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A store of two records for each word, before and after its index was brought up to date."""
    with asyncio.Runner() as runner:
        store = runner.run(LanceMemoryStore.open(str(tmp_path_factory.mktemp("memory")), HashingEmbedder()))
        new = [NewRecord(text) for word in WORDS for text in (word, f"of {word}, and more besides")]
        runner.run(store.store(new, SCOPE, "call"))
        if request.param == "tidied":
            runner.run(store.tidy())
        yield Opened(runner, store)
        runner.run(store.close())


async def by_both(store: LanceMemoryStore, text: str) -> list[str]:
    """Return the texts of all that a search finds."""
    return [hit.record.text for hit in await store.search(MemoryQuery(text, 100), SCOPE)]


async def by_words(store: LanceMemoryStore, text: str) -> list[str]:
    """Return the texts of what the half by words finds."""
    await store._cache.number()
    mirror = store._cache.mirror
    numbers = await store._cache.table.find_matching(text, 100, None)
    return [record.text for record in await store._cache.records(mirror, mirror.find_positions(numbers))]


async def by_syntax(store: LanceMemoryStore, text: str) -> list[str]:
    """Planted: hands the text over as a query in LanceDB's own language."""
    with convert_read_errors("memory"):
        found = await store._cache.table._table.query().nearest_to_text(text).to_arrow()
    return list(found["text"].to_pylist())


def check_found(opened: Opened, find: Find, text: str) -> None:
    """It raises nothing, and of each word that is by itself both records are found."""
    found = opened.runner.run(find(opened.store, text))
    for part in text.split(" "):
        if (word := part.strip("".join(MARKS))) in WORDS:
            assert {word, f"of {word}, and more besides"} <= set(found), (text, word)


@pytest.mark.slow
@given(queries)
@example('"sky is blue"')
@example('""')
@example('"a" "b"')
@example('";alert(123);t="')
@example("\ud800 sky \udfff")
def test_any_text_is_a_query(opened: Opened, text: str) -> None:
    """Quotes, operators, controls and halves of pairs among its words, in a tidied store too."""
    check_found(opened, by_both, text)


@pytest.mark.slow
@given(queries.filter(lambda text: text.isascii()))
@example('"sky is blue"')
def test_words_alone_find_what_has_them(opened: Opened, text: str) -> None:
    """The half by words does its part, without the vectors' help."""
    check_found(opened, by_words, text)


def test_planted_syntax_is_found(opened: Opened) -> None:
    """A text that is taken for a query language fails the property: the words of a phrase part company."""
    with pytest.raises((AssertionError, MemoryFailed)):
        check_found(opened, by_syntax, '"sky blue"')


@pytest.mark.parametrize(
    ("fault", "is_damage"),
    [
        (ValueError("Invalid input, position is not found but required for phrase queries"), False),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), False),
        (RuntimeError("lance error: Not found: records.lance/data/0.lance"), True),
        (RuntimeError("lance error: LanceError(IO): file size is too small"), True),
        (FileNotFoundError(2, "No such file or directory"), True),
    ],
)
def test_refused_query_is_not_damage(fault: Exception, *, is_damage: bool) -> None:
    """What is invalid may be the question; a file that is gone or cut never is."""
    with pytest.raises(MemoryFailed) as caught, convert_search_errors("/var/memory"):
        raise fault
    assert (caught.value.cause == "corrupt") == is_damage
    assert ("restore it" in caught.value.reason) == is_damage
    assert ("use other words" in caught.value.reason) != is_damage
