"""Question: words that count, their stems, and other words for the same thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.survey.source.question import build_queries, collect_stems, parse_question, stem_word


def test_question_of_keeps_words_that_count() -> None:
    """Empty words are left out, unless all are empty; names stay whole and are taken apart."""
    asked = parse_question("How does `Cache.get` handle maxRetries in the HTTP client?")
    assert asked.names == ("Cache.get", "maxRetries")
    assert asked.words == ("cache", "handle", "max", "retries", "http", "client")
    assert parse_question("what is it?").words == ("what", "is", "it")
    assert parse_question("?!").words == ()
    assert parse_question("which test?").about == {"test"}
    compound = parse_question("How is a Worker read-only?")
    assert (compound.words, compound.parts) == (("worker", "readonly"), ("read", "only"))
    for text in ("Workers are read-only", "READ_ONLY", "class ReadOnly"):
        assert stem_word("readonly") in collect_stems(text)
    assert build_queries(parse_question("delete")) == ["delete", "delete drop erase forget remove"]


@pytest.mark.parametrize(
    "forms",
    [
        ("sign", "signs", "signed", "signing"),
        ("serialize", "serialise", "serialised", "serializer", "serialization"),
        ("translate", "translated", "translation", "translations"),
        ("register", "registered", "registers"),
        ("configure", "configured", "configuration"),
        ("bind", "bound", "binding"),
        ("entry", "entries"),
    ],
)
def test_stem_is_that_of_all_forms(forms: tuple[str, ...]) -> None:
    """A word is found in any of its forms."""
    assert len({stem_word(form) for form in forms}) == 1


@given(st.text(max_size=200))
def test_question_of_takes_any_text(text: str) -> None:
    """Any question has bounded words, and each has a stem."""
    asked = parse_question(text)
    assert len(asked.words) <= 12
    assert all(stem_word(word) for word in asked.words)
