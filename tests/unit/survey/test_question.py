"""Question: words that count, their stems, and other words for the same thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.survey.source.question import queries_of, question_of, stem, stem_set


def test_question_of_keeps_words_that_count() -> None:
    """Empty words are left out, unless all are empty; names stay whole and are taken apart."""
    asked = question_of("How does `Cache.get` handle maxRetries in the HTTP client?")
    assert asked.names == ("Cache.get", "maxRetries")
    assert asked.words == ("cache", "handle", "max", "retries", "http", "client")
    assert question_of("what is it?").words == ("what", "is", "it")
    assert question_of("?!").words == ()
    assert question_of("which test?").about == {"test"}
    compound = question_of("How is a Worker read-only?")
    assert (compound.words, compound.parts) == (("worker", "readonly"), ("read", "only"))
    for text in ("Workers are read-only", "READ_ONLY", "class ReadOnly"):
        assert stem("readonly") in stem_set(text)
    assert queries_of(question_of("delete")) == ["delete", "delete drop erase forget remove"]


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
    assert len({stem(form) for form in forms}) == 1


@given(st.text(max_size=200))
def test_question_of_takes_any_text(text: str) -> None:
    """Any question has bounded words, and each has a stem."""
    asked = question_of(text)
    assert len(asked.words) <= 12
    assert all(stem(word) for word in asked.words)
