"""Markdown: text of others stays text, whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.markdown import code, table, visible

Code = Callable[[str], str]

TEXTS = st.text(
    alphabet=st.sampled_from("`|\\*_<>&[]()#-!~ \t\n\r\x00\x1b\x7f\u202e\u200b\ufeff\ud800é😀a1")
    | st.characters(),
    max_size=40,
)


def span_content(span: str) -> str:
    """Return what a CommonMark reader takes from a line that is one code span.

    Raises:
        AssertionError: the line is no single code span.
    """
    fence = re.match("`+", span)
    assert fence is not None, span
    close = re.search(f"(?<!`){fence[0]}(?!`)", span[fence.end() :])
    assert close is not None, span
    assert fence.end() + close.end() == len(span), span
    inner = span[fence.end() : fence.end() + close.start()]
    if inner.startswith(" ") and inner.endswith(" ") and inner.strip(" "):
        inner = inner[1:-1]
    return inner


def is_inert(make: Code, text: str) -> None:
    """The text comes back from its span letter by letter, on one line, with nothing invisible in it."""
    span = make(text)
    assert span.isprintable()
    shown = visible(text)
    assert span_content(span) == (shown if shown.strip(" ") else "(empty)")


@given(TEXTS)
def test_any_text_is_one_code_span(text: str) -> None:
    """No backtick ends it early, no line end, control, bidi or zero-width character is left."""
    is_inert(code, text)


@pytest.mark.parametrize(
    "broken", [lambda text: f"`{visible(text)}`", lambda text: f"`` {text} ``"], ids=["one backtick", "raw"]
)
def test_a_careless_span_is_found_out(broken: Code) -> None:
    """The property kills a fixed fence and unescaped characters."""

    @settings(max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(TEXTS)
    def planted(text: str) -> None:
        is_inert(broken, text)

    with pytest.raises(AssertionError):
        planted()


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_no_text_breaks_a_table(names: list[str]) -> None:
    """Every row has as many cells as the header, whatever stands before a bar."""
    lines = table(("Name", "Files"), [(code(name, in_table=True), 1) for name in names])
    assert len(lines) == 2 + len(names)
    assert all(line.count("|") == 3 for line in lines)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\tb\u00a0c", "a b c"),
        ("a\nb", "a\\x0ab"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
        ("é😀中", "é😀中"),
        ("x" * 301, "x" * 299 + "…"),
        ("x" * 300, "x" * 300),
    ],
)
def test_what_cannot_be_seen_is_spelt_out(text: str, expected: str) -> None:
    """Controls and formats are escapes, letters of every script stay, long text is cut."""
    assert visible(text) == expected


def test_numbers_have_separators() -> None:
    """Tables are for people."""
    assert table(("A", "B"), [("x", 1_234_567)])[2] == "| x | 1,234,567 |"
