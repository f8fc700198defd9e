"""Replacing one passage: only the passage changes, whatever spelling it was asked for in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree_tools.edit import Replacement, fold, replace_once

Replacing = Callable[[str, str, str], Replacement]

PIECES = st.text(st.sampled_from("ab'\"- .\n…’\u00a0—"), max_size=25)

ALIKE = [
    ("a", "a"),
    ("b", "b"),
    ("\t", "\t"),
    ("\n", "\n"),
    ("\u2019", "'"),
    ("'", "\u2018"),
    ("\u201c", '"'),
    ("\u2014", "-"),
    ("-", "\u2212"),
    ("\u00a0", " "),
    (" ", "\u3000"),
    ("…", "..."),
    ("...", "…"),
    ("\r\n", "\n"),
    ("\n", "\r\n"),
    ("x \t\u00a0\r\n", "x\n"),
    ("x\n", "x  \n"),
    ("x\u2003\n", "x \r\n"),
]
"""How a file spells something, and how a request may."""
SPELLINGS = st.lists(st.sampled_from(ALIKE), min_size=1, max_size=12)


def only_the_passage_changes(replacing: Replacing) -> None:
    """An exact passage gives way to the new text in the file's line ends; all else stays, BOM included."""

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(PIECES, PIECES, PIECES, PIECES, st.sampled_from(["\n", "\r\n"]), st.booleans())
    def check(before: str, inside: str, after: str, new: str, line_end: str, marked: bool) -> None:
        def spelled(text: str) -> str:
            return text.replace("\n", line_end)

        # The brackets occur nowhere else, so the passage is the only one.
        old = f"[{spelled(inside)}]"
        head, tail = "\ufeff" * marked + spelled(before), spelled(after)
        assume("\n" in before + inside + after and f"[{inside}]" != new)
        result = replacing(head + old + tail, old, new)
        assert result.after == head + spelled(new) + tail
        assert not result.tolerant
        assert result.line == head.count("\n") + 1
        assert result.before == head + old + tail

    check()


def spelling_does_not_matter(replacing: Replacing) -> None:
    """A passage asked for in another spelling is found, and exactly its own characters are replaced."""

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(SPELLINGS, SPELLINGS, SPELLINGS)
    def check(
        before: list[tuple[str, str]], inside: list[tuple[str, str]], after: list[tuple[str, str]]
    ) -> None:
        head, tail = ("".join(file for file, _ in part) for part in (before, after))
        passage = "[" + "".join(file for file, _ in inside) + "]"
        asked = "[" + "".join(request for _, request in inside) + "]"
        result = replacing(head + passage + tail, asked, "new")
        assert result.after == head + "new" + tail
        assert result.tolerant == (asked != passage)

    check()


def every_line_end_becomes_lf(text: str, old: str, new: str) -> Replacement:
    """Bug: reads the file with universal line ends."""
    return replace_once(text.replace("\r\n", "\n"), old.replace("\r\n", "\n"), new)


def line_ends_of_the_request(text: str, old: str, new: str) -> Replacement:
    """Bug: puts the new text in as it came."""
    found = replace_once(text, old, new)
    return Replacement(found.before, found.start, found.end, new, found.tolerant)


def byte_order_mark_lost(text: str, old: str, new: str) -> Replacement:
    """Bug: decodes the mark away."""
    return replace_once(text.removeprefix("\ufeff"), old, new)


def folded_file(text: str, old: str, new: str) -> Replacement:
    """Bug: writes the folded text back."""
    if old in text:
        return replace_once(text, old, new)
    found = replace_once(fold(text).text, fold(old).text, new)
    return Replacement(found.before, found.start, found.end, new, tolerant=True)


def folded_offsets(text: str, old: str, new: str) -> Replacement:
    """Bug: takes places in the folded text for places in the file."""
    if old in text:
        return replace_once(text, old, new)
    found = replace_once(fold(text).text, fold(old).text, new)
    return Replacement(text, found.start, found.end, new, tolerant=True)


def quotes_only(text: str, old: str, new: str) -> Replacement:
    """Bug: folds what keeps its length, and nothing else."""
    start = fold(text).translated.find(fold(old).translated)
    return Replacement(text, start, start + len(old), new, old not in text)


@pytest.mark.slow
def test_only_the_passage_changes() -> None:
    """Everything outside an exact match is the same afterwards, to the byte."""
    only_the_passage_changes(replace_once)


@pytest.mark.parametrize("bug", [every_line_end_becomes_lf, line_ends_of_the_request, byte_order_mark_lost])
def test_planted_replacing_bug_is_found(bug: Replacing) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        only_the_passage_changes(bug)


@pytest.mark.slow
def test_spelling_of_the_request_does_not_matter() -> None:
    """A tolerant match leads back to the original characters."""
    spelling_does_not_matter(replace_once)


@pytest.mark.parametrize("bug", [folded_file, folded_offsets, quotes_only])
def test_planted_folding_bug_is_found(bug: Replacing) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        spelling_does_not_matter(bug)


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("say “hi” to — me", '"hi"', '"ho"', 'say "ho" to — me'),
        ("one  \r\ntwo\r\nthree\r\n", "one\ntwo\n", "1\n2\n", "1\r\n2\r\nthree\r\n"),
        ("one\r\ntwo\r\n", "\ntwo", "\n2", "one\r\n2\r\n"),
        ("one\r\ntwo\r\n", "one\r", "1", "1\r\ntwo\r\n"),
        ("one   \ntwo", "\ntwo", "\n2", "one   \n2"),
        ("one\n  two\n", "  two ", "  2", "one\n  2\n"),
        ("one\n  two\t \nthree", "two\u00a0", "2", "one\n  2\nthree"),
        ("a\r\nb\nc", "b", "x\ny", "a\r\nx\ny\nc"),
        ("a\r\nb\r\nc\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\n"),
        ("a\nb", "b", "x\r\ny", "a\nx\ny"),
        ("\ufeffa b", "\ufeffa", "x", "\ufeffx b"),
        ("\ufeffa b", "a", "\ufeffx", "\ufeff\ufeffx b"),
        ("alone", "alone", "", ""),
        ("tail....", "tail....", "x", "x"),
        ("tail…. end", "tail....", "x", "x end"),
    ],
)
def test_known_passages(text: str, old: str, new: str, after: str) -> None:
    """Cases in which whole line ends, trailing spaces, marks or dots are at stake."""
    assert replace_once(text, old, new).after == after


@pytest.mark.parametrize(
    ("text", "old", "words"),
    [
        ("abc", "x", "not found"),
        ("", "x", "not found"),
        ("ab\nab\n", "ab", "found 2 times, in lines 1, 2"),
        ("aaa", "aa", "found 2 times, in lines 1, 1"),
        ("it’s\nit‘s", "it's", "found 2 times, in lines 1, 2"),
        ("it's\nit’s", "it‘s", "found 2 times, in lines 1, 2"),
        ("x\n" * 30, "x\n", "found 30 times, in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"),
        ("x\n" * 3000, "x", "found at least 1000 times"),
        ("a \nb\na\nb ", "a\u00a0\nb ", "found 2 times, in lines 1, 3"),
        ("same", "same", "nothing was changed"),
    ],
)
def test_passage_that_is_not_the_only_one_is_refused(text: str, old: str, words: str) -> None:
    """The error counts the matches and names their lines."""
    with pytest.raises(ExecutionError, match=words):
        replace_once(text, old, "same")


def test_exact_match_goes_before_a_tolerant_one() -> None:
    """One literal occurrence is the one meant, whatever looks like it."""
    assert replace_once("it’s it's", "it's", "x").after == "it’s x"


@pytest.mark.slow
@pytest.mark.parametrize("filler", [" ", "\t \u00a0", "\r\n", " \n", ".", "…\n"])
def test_long_runs_take_linear_time(filler: str) -> None:
    """A megabyte of what folding looks at is no trap."""
    text = filler * (1_000_000 // len(filler)) + "[it’s]"
    result = replace_once(text, "[it's]", "x")
    assert result.after == text[:-6] + "x"


def test_line_end_that_the_file_lacks_is_named() -> None:
    """The error says why the passage is not there."""
    with pytest.raises(ExecutionError, match="the file ends without one"):
        replace_once("a\nb", "b\n", "c\n")
