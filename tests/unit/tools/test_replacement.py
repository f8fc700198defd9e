"""Replacing one passage: only the passage changes, whatever spelling it was asked for in."""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import decomposition, is_normalized, normalize

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree_tools.files.edit import Replacement, fold, is_mark, replace_once

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


FORMS = [
    *("，", "Ａ", "ｱﾞ", "e\u0301", "é", "q\u0303", "각", "\u1100\u1161\u11a8", "ﬁ", "㍿", "①", "\u3000", "…"),
    *("″", "ｶ", "．", "क\u093c", "\u0958", "ö̲", "A\u030a", "Å", "a", ".", " ", "\n", "\r\n", "“", "\u0301"),
]
"""Characters with a compatible form, or that are one, and some that neighbours might join."""
FORM_TEXTS = st.lists(st.sampled_from(FORMS), max_size=8).map("".join)


def compatible_form_is_found(replacing: Replacing) -> None:
    """A passage asked for in its compatible form gives way, and exactly its own characters do."""

    @settings(max_examples=250, database=None, derandomize=True, phases=[Phase.generate])
    @given(FORM_TEXTS, FORM_TEXTS, FORM_TEXTS)
    def check(head: str, inside: str, tail: str) -> None:
        # The brackets occur nowhere else; the space keeps marks of the tail from joining the last one.
        passage = f"[{inside}x]"
        result = replacing(f"{head}{passage} {tail}", normalize("NFKC", passage), "new")
        assert result.after == f"{head}new {tail}"

    check()


def forms_written_back(text: str, old: str, new: str) -> Replacement:
    """Bug: the whole file takes the compatible form."""
    return replace_once(normalize("NFKC", text), old, new)


def places_of_the_form(text: str, old: str, new: str) -> Replacement:
    """Bug: takes places in the compatible form for places in the file."""
    found = replace_once(normalize("NFKC", text), old, new)
    return Replacement(text, found.start, found.end, new, tolerant=True)


@pytest.mark.slow
def test_compatible_form_of_a_passage_is_found() -> None:
    """Full-width, half-width and decomposed characters lead back to the original ones."""
    compatible_form_is_found(replace_once)


@pytest.mark.parametrize("bug", [forms_written_back, places_of_the_form])
def test_planted_form_bug_is_found(bug: Replacing) -> None:
    """The property fails on each broken variant."""
    with pytest.raises((AssertionError, ExecutionError)):
        compatible_form_is_found(bug)


@pytest.mark.parametrize(
    ("text", "old", "after"),
    [
        ("你好，世界 ＡＢＣ！", "你好,世界 ABC!", "x"),
        ("你好,世界", "你好，世界", "x"),
        ("cafe\u0301 “y”\r\n", 'café "y"', "x\r\n"),
        ("café\n", "cafe\u0301", "x\n"),
        ("ａ ｂ\u3000\r\nｃ", "a b\nc", "x"),
        ("．．．ＡＢ", "...A", "xＢ"),
        ("ﾊﾟﾝ屋", "パン", "x屋"),
        ("ﬁne", "fine", "x"),
    ],
)
def test_known_forms(text: str, old: str, after: str) -> None:
    """What writers of Chinese, Japanese and Korean and users of macOS have in their files."""
    result = replace_once(text, old, "x")
    assert (result.after, result.tolerant) == (after, True)


@pytest.mark.parametrize(
    ("text", "old", "words"),
    [
        ("ＡＢ\nＡB", "AB", "found 2 times, in lines 1, 2"),
        ("ﬁ", "i", "not found"),
        ("e\u0301", "\u00e8", "not found"),
        ("Ａ\u0303", "A", "not found"),
        ("ｱﾞ", "ア", "not found"),
    ],
)
def test_part_of_a_character_is_no_match(text: str, old: str, words: str) -> None:
    """A match begins and ends between characters of the file, and there is one."""
    with pytest.raises(ExecutionError, match=words):
        replace_once(text, old, "x")


@pytest.mark.slow
def test_every_mark_that_composes_joins_its_letter() -> None:
    """Whatever the second half of a composed character may be, it is no boundary."""
    for point in range(0x110000):
        parts = decomposition(chr(point)).split()
        if len(parts) == 2 and parts[0][0] != "<" and is_normalized("NFC", chr(point)):
            assert is_mark(chr(int(parts[1], 16))), hex(point)
