"""Cutting a text: prefix kept, within the limit, idempotent, no grapheme split; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.values.truncation import cut_line, cut_text, find_cut
from sessiontree.schema.checker import MAX_VALUE_CHARS, shorten_json
from sessiontree_tools.files.diff_text import MAX_LINE_CHARS
from sessiontree_tools.files.edit import Replacement, make_unified_diff

Cut = Callable[[str, int], str]

GRAPHEMES = [
    "a",
    "é",
    "e\u0301",
    "o\u0323\u0302",
    "\r\n",
    "\n",
    "한",
    "\u1112\u1161\u11ab",
    "가\u11a8",
    "각",
    "क\u094dषि",
    "นำ",
    "ｶ\uff9e",
    "👍🏽",
    "👩\u200d👩\u200d👧",
    "❤\ufe0f",
    "1\ufe0f\u20e3",
    "🇺🇦",
    "🇩🇪",
    "🏴\U000e0067\U000e0062\U000e007f",
    "\u0600\u0661",
    "\ud83d\udc4d",
    "𝄞",
]
"""Each one character to a reader; the next to last as two halves. Source: UAX 29, Unicode's emoji data."""

TEXTS = st.lists(st.sampled_from(GRAPHEMES), max_size=120)
NOTICE = "\n… cut: "


def cut_keeps_its_promises(cut: Cut) -> None:
    """Within the limit; the head is a prefix and ends between two graphemes; cut again, it stays."""

    @settings(max_examples=400, database=None, derandomize=True, phases=[Phase.generate])
    @given(TEXTS, st.integers(0, 150))
    def check(graphemes: list[str], limit: int) -> None:
        text = "".join(graphemes)
        shown = cut(text, limit)
        assert len(shown) <= limit
        assert cut(shown, limit) == shown
        if len(text) <= limit:
            assert shown == text
            return
        head, mark, rest = shown.rpartition(NOTICE)
        if mark:
            assert rest == f"{limit} of {len(text)} characters shown"
        else:
            assert limit <= len(f"{NOTICE}{limit} of {len(text)} characters shown")
            head = shown
        ends = {0}
        for grapheme in graphemes:
            ends.add(max(ends) + len(grapheme))
        assert text.startswith(head)
        assert len(head) in ends
        assert len(head) >= (limit - len(shown) + len(head)) * 0.8 - 12, "more was left out than had to be"

    check()


def cut_anywhere(text: str, limit: int) -> str:
    """Bug: counts code points alone."""
    if len(text) <= limit:
        return text
    notice = f"{NOTICE}{limit} of {len(text)} characters shown"
    return text[:limit] if len(notice) >= limit else text[: limit - len(notice)] + notice


def cut_beside_the_limit(text: str, limit: int) -> str:
    """Bug: the notice is not counted."""
    shown = cut_text(text, limit)
    return shown if shown == text else shown + "."


def cut_always(text: str, limit: int) -> str:
    """Bug: says that something was cut where nothing was."""
    return cut_text(text + " ", limit)


def cut_the_end(text: str, limit: int) -> str:
    """Bug: shows the last part."""
    shown = cut_text(text[::-1], limit)
    return text if len(text) <= limit else shown


def cut_all(text: str, limit: int) -> str:
    """Bug: shows nothing at all of a text that is too long."""
    return text if len(text) <= limit else ""


@pytest.mark.covers("I40", "REL-P36")
@pytest.mark.slow
def test_cutting_keeps_its_promises() -> None:
    """P36, over graphemes of many scripts."""
    cut_keeps_its_promises(cut_text)


@pytest.mark.covers("REL-P36")
@pytest.mark.parametrize("bug", [cut_anywhere, cut_beside_the_limit, cut_always, cut_the_end, cut_all])
def test_planted_cut_is_found(bug: Cut) -> None:
    """Each bug breaks a promise."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        cut_keeps_its_promises(bug)


def test_flags_are_cut_between_pairs() -> None:
    """Regional letters are paired from the beginning of their run, however long it is."""
    text = "🇺🇦" * 100
    assert [find_cut(text, end) for end in (0, 1, 2, 3, 99, 100, 200)] == [0, 0, 2, 2, 98, 100, 200]


def test_one_endless_grapheme_is_left_out_whole() -> None:
    """A letter under a thousand marks is no letter when some of them are missing."""
    text = "a" + "\u0301" * 1000
    assert cut_text(text, 200) == f"{NOTICE}200 of 1001 characters shown"


def test_line_of_windows_loses_both_its_ends() -> None:
    """No carriage return stays behind where a text is cut at the end of a line."""
    text = "line of text\r\n" * 50
    head = cut_text(text, 300).rpartition(NOTICE)[0]
    assert head.endswith("text")


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("", 5, ""),
        ("\n \n", 5, ""),
        ("  one\ntwo", 5, "one"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("abcd👩\u200d👧x", 6, "abcd…"),
        ("abc\r\n" + "x" * 100, 3, "abc"),
    ],
)
def test_first_line_that_says_something(text: str, limit: int, line: str) -> None:
    """One line, within the limit, the mark counted."""
    assert cut_line(text, limit) == line


LINES = st.lists(st.sampled_from([each for each in GRAPHEMES if not each.isspace()]), min_size=1, max_size=40)


def line_keeps_its_promises(cut: Cut) -> None:
    """Within the limit with its mark, between two graphemes, and cut again it stays."""

    @settings(max_examples=300, database=None, derandomize=True, phases=[Phase.generate])
    @given(LINES, st.integers(1, 60))
    def check(graphemes: list[str], limit: int) -> None:
        text = "".join(graphemes)
        line = cut(text, limit)
        assert len(line) <= limit
        assert cut(line, limit) == line
        assert (line == text) == (len(text) <= limit)
        if line != text:
            assert line.endswith("…")
            assert line[:-1] in {"".join(graphemes[:end]) for end in range(len(graphemes))}

    check()


def line_cut_anywhere(text: str, limit: int) -> str:
    """Bug: counts code points alone."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def line_and_mark(text: str, limit: int) -> str:
    """Bug: the mark is next to the limit."""
    return text if len(text) <= limit else text[: find_cut(text, limit)] + "…"


@pytest.mark.covers("REL-P36")
@pytest.mark.slow
def test_line_keeps_its_promises() -> None:
    """REL-P36, for what is shown in one line."""
    line_keeps_its_promises(cut_line)


@pytest.mark.parametrize("bug", [line_cut_anywhere, line_and_mark])
def test_planted_line_is_found(bug: Cut) -> None:
    """Each bug breaks a promise."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        line_keeps_its_promises(bug)


@pytest.mark.covers("REL-P36")
@pytest.mark.parametrize("grapheme", ["👩\u200d👩\u200d👧", "e\u0301", "🇺🇦"])
def test_what_is_quoted_is_cut_between_characters_too(grapheme: str) -> None:
    """A value in an error, and a line of a difference, at every place a cut may fall in."""
    for before in range(len(grapheme) + 1):
        text = "x" * (MAX_VALUE_CHARS - 2 - before) + grapheme * 5 + "y" * MAX_VALUE_CHARS
        assert shorten_json(text).removesuffix("…").rstrip("x" + grapheme) == '"'
        assert len(shorten_json(text).strip('"x…')) % len(grapheme) == 0
        line = "x" * (MAX_LINE_CHARS - before) + grapheme * 5
        changed = make_unified_diff("a", Replacement(f"{line}\n", 0, len(line), "z", tolerant=False))
        cut = changed.splitlines()[3].removeprefix("-").removesuffix("…")
        assert cut in {"x" * (MAX_LINE_CHARS - before) + grapheme * count for count in range(5)}
