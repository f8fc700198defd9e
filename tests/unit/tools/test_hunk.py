"""The diff of one replacement says what changed, and stays small."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from sessiontree_tools.files.diff_text import MAX_LINE_CHARS, MAX_LINES
from sessiontree_tools.files.edit import NO_NEWLINE, Replacement, make_unified_diff

Diffing = Callable[[str, Replacement], str]

TEXTS = st.lists(st.sampled_from(["a", "b", "\n", "a\n", "b\r\n"]), max_size=24).map("".join)


def patched(text: str, diff: str) -> str:
    """Return what a patch program makes of a text and a diff of one hunk."""
    head, *body = diff.split("\n")[2:-1]
    ranges = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", head)
    assert ranges
    first, count, new_first, new_count = map(int, ranges.groups())
    lines = text.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    start = first - 1 if count else first
    assert start == (new_first - 1 if new_count else new_first)
    sides: dict[str, list[str]] = {"-": [], "+": []}
    last = ""
    for line in body:
        if line == NO_NEWLINE:
            for mark in last:
                sides[mark][-1] = sides[mark][-1].removesuffix("\n")
            continue
        last = "-+" if line[0] == " " else line[0]
        for mark in last:
            sides[mark].append(line[1:] + "\n")
    assert (len(sides["-"]), len(sides["+"])) == (count, new_count)
    assert lines[start : start + count] == sides["-"]
    return "".join([*lines[:start], *sides["+"], *lines[start + count :]])


def diff_makes_the_change(diffing: Diffing) -> None:
    """Patching the old text with the diff gives the new one; at most three lines of context a side."""

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(TEXTS, TEXTS, TEXTS, TEXTS)
    def check(before: str, old: str, after: str, new: str) -> None:
        assume(old != new)
        change = Replacement(before + old + after, len(before), len(before + old), new, tolerant=False)
        diff = diffing("a", change)
        assert patched(change.before, diff) == change.after
        marks = "".join(line[0] for line in diff.split("\n")[3:-1] if line != NO_NEWLINE)
        assert re.fullmatch(r" {0,3}-*\+* {0,3}", marks)

    check()


def wrong_line(path: str, change: Replacement) -> str:
    """Bug: counts lines from zero."""
    return re.sub(r"@@ -(\d+)", lambda found: f"@@ -{int(found[1]) - 1}", make_unified_diff(path, change))


def no_newline_unsaid(path: str, change: Replacement) -> str:
    """Bug: says nothing about a missing line end."""
    return make_unified_diff(path, change).replace(NO_NEWLINE + "\n", "")


@pytest.mark.slow
def test_diff_makes_the_change() -> None:
    """What people see in the journal is what happened to the file."""
    diff_makes_the_change(make_unified_diff)


@pytest.mark.parametrize("bug", [wrong_line, no_newline_unsaid])
def test_planted_diff_bug_is_found(bug: Diffing) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        diff_makes_the_change(bug)


def test_diff_of_a_huge_change_is_bounded() -> None:
    """Long lines and many lines are cut, and the number left out is reported."""
    text = ("x" * 5000 + "\n") * 1000
    diff = make_unified_diff("a", Replacement(text, 0, len(text), "y\n", tolerant=False))
    lines = diff.split("\n")
    assert len(lines) == 3 + MAX_LINES + 2
    assert max(map(len, lines)) == MAX_LINE_CHARS + 2
    assert lines[-2] == f"… {1001 - MAX_LINES} more lines"
