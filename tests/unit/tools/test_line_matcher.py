"""Which lines are shown, however the bytes arrive."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree_tools.files.line_matcher import (
    MAX_LINE_CHARS,
    SHOWN_CHARS,
    LineMatcher,
    Shown,
    cut_around,
    make_regex_finder,
    make_text_finder,
    receive,
    send,
    serve,
)

Search = Callable[[list[bytes], int, int], tuple[list[Shown], bool]]

TEXTS = st.text(st.sampled_from("xxab€\r\n\n"), max_size=40)
CUTS = st.lists(st.integers(0, 60), max_size=5)


def real_search(chunks: list[bytes], context: int, limit: int) -> tuple[list[Shown], bool]:
    """Feed the chunks of one file to the class under test, looking for ``x``."""
    matcher = LineMatcher(make_regex_finder("x$", ignore_case=False), context=context, limit=limit)
    shown: list[Shown] = []
    for number, chunk in enumerate(chunks):
        shown += matcher.feed(chunk, last=number == len(chunks) - 1)
    return shown, matcher.more


def plain_search(chunks: list[bytes], context: int, limit: int) -> tuple[list[Shown], bool]:
    """The same for ``xa`` as plain text, passing over what lacks it."""
    matcher = LineMatcher(make_text_finder("xa"), context=context, limit=limit, needed="xa")
    shown: list[Shown] = []
    for number, chunk in enumerate(chunks):
        shown += matcher.feed(chunk, last=number == len(chunks) - 1)
    return shown, matcher.more


def expected(text: str, context: int, limit: int, pattern: str) -> tuple[list[Shown], bool]:
    """Say it the slow way, with the whole text in hand."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not text or text.endswith("\n"):
        lines.pop()
    hits = [at for at, line in enumerate(lines) if re.search(pattern, line)]
    more = len(hits) > limit
    end = hits[limit] if more else len(lines)
    shown = [
        (at + 1, at in hits[:limit], line)
        for at, line in enumerate(lines[:end])
        if any(abs(at - hit) <= context for hit in hits[:limit])
    ]
    return shown, more


def chunks_do_not_matter(search: Search, pattern: str = "x$") -> None:
    """Wherever the bytes are cut, the same lines are shown, and they are the right ones."""

    @settings(max_examples=300, database=None, derandomize=True, phases=[Phase.generate])
    @given(TEXTS, CUTS, st.integers(0, 2), st.integers(1, 4))
    def check(text: str, cuts: list[int], context: int, limit: int) -> None:
        data = text.encode()
        borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        chunks = [data[start:end] for start, end in pairwise(borders)]
        assert search(chunks, context, limit) == expected(text, context, limit, pattern)

    check()


def each_chunk_alone(chunks: list[bytes], context: int, limit: int) -> tuple[list[Shown], bool]:
    """Bug: decodes and splits every chunk for itself."""
    matcher = LineMatcher(make_regex_finder("x$", ignore_case=False), context=context, limit=limit)
    shown = [line for chunk in chunks for line in matcher.feed(chunk, last=True)]
    return shown, matcher.more


def context_twice(chunks: list[bytes], context: int, limit: int) -> tuple[list[Shown], bool]:
    """Bug: lines between two matches are shown for both."""
    shown, more = real_search(chunks, context, limit)
    return [line for line in shown for _ in range(1 if line[1] else 2)], more


def one_match_too_few(chunks: list[bytes], context: int, limit: int) -> tuple[list[Shown], bool]:
    """Bug: the limit is reached one match early."""
    return real_search(chunks, context, limit - 1)


@pytest.mark.slow
def test_shown_lines_do_not_depend_on_chunks() -> None:
    """Lines, context and limit are right at every border."""
    chunks_do_not_matter(real_search)
    chunks_do_not_matter(plain_search, "xa")


def passed_over_lines_uncounted(chunks: list[bytes], context: int, limit: int) -> tuple[list[Shown], bool]:
    """Bug: what lacks the text is not even counted."""
    return plain_search([chunk for chunk in chunks[:-1] if b"x" in chunk] + chunks[-1:], context, limit)


@pytest.mark.parametrize("bug", [each_chunk_alone, context_twice, one_match_too_few])
def test_planted_matching_bug_is_found(bug: Search) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        chunks_do_not_matter(bug)


def test_planted_skipping_bug_is_found() -> None:
    """The property fails where lines passed over quickly are lost."""
    with pytest.raises(AssertionError):
        chunks_do_not_matter(passed_over_lines_uncounted, "xa")


def test_limit_counts_over_files_and_numbers_do_not() -> None:
    """The second file starts at line 1, with what the first left of the limit and no context of it."""
    matcher = LineMatcher(make_text_finder("x"), context=1, limit=2)
    assert matcher.feed(b"a\nx", last=True) == [(1, False, "a"), (2, True, "x")]
    assert matcher.feed(b"\xef\xbb\xbfx\n", last=True) == [(1, True, "x")]
    assert not matcher.more
    assert matcher.feed(b"x", last=True) == []
    assert matcher.more


def test_byte_order_mark_does_not_hide_the_first_letter() -> None:
    """``^`` matches behind it, also where the mark arrives in pieces."""
    matcher = LineMatcher(make_regex_finder("^a", ignore_case=False), context=0, limit=5)
    matcher.feed(b"\xef", last=False)
    matcher.feed(b"\xbb", last=False)
    assert matcher.feed(b"\xbfab", last=True) == [(1, True, "ab")]


def test_head_of_an_overlong_line_is_searched_once() -> None:
    """What goes on over many chunks is one line, and the next one has the right number."""
    matcher = LineMatcher(make_text_finder("x"), context=0, limit=5)
    shown = matcher.feed(b"x" + b"a" * (MAX_LINE_CHARS - 5), last=False)
    for _ in range(4):
        shown += matcher.feed(b"ax" * 200_000, last=False)
    shown += matcher.feed(b"x\nxy\n", last=True)
    assert [(number, text[:2]) for number, _, text in shown] == [(1, "xa"), (2, "xy")]
    assert matcher.overlong == 1


@pytest.mark.parametrize("length", [1, SHOWN_CHARS, SHOWN_CHARS + 1, 5000])
@pytest.mark.parametrize("place", [0, 0.3, 0.5, 0.99])
@pytest.mark.parametrize("width", [0, 1, 3, 499, 501, 2000])
def test_cut_line_shows_where_the_match_begins(length: int, place: float, width: int) -> None:
    """At most 500 characters and two marks, the start of the match among them."""
    start = int(length * place)
    end = min(length, start + width)
    line = "a" * start + "X" * (end - start) + "b" * (length - end)
    shown = cut_around(line, (start, end))
    assert shown.strip("…") in line
    assert len(shown.strip("…")) == min(length, SHOWN_CHARS)
    assert shown.startswith("…") or line.startswith(shown.strip("…"))
    assert shown.endswith("…") or line.endswith(shown.strip("…"))
    assert "X" * min(end - start, 1) in shown


def test_program_answers_each_request() -> None:
    """Greeting, pattern, files: one answer each, in order, until the source ends."""
    source, sink = io.BytesIO(), io.BytesIO()
    order = {"pattern": "b$", "ignore_case": True, "context": 0, "limit": 9, "alarm_s": 60}
    for request in (json.dumps(order).encode(), b"\0a\nB", b"\1\nc", b"\1b"):
        send(source, request)
    source.seek(0)
    serve(source, sink)
    sink.seek(0)
    answers = [json.loads(answer) for answer in iter(lambda: receive(sink), None) if answer is not None]
    assert answers[:2] == [{}, {}]
    assert [answer["shown"] for answer in answers[2:]] == [[], [[2, True, "B"]], [[1, True, "b"]]]


@pytest.mark.parametrize("pattern", ["(", "*a", "[z-a]", "(?P<x>a)(?P<x>b)", "\\", "(?<=a*)b", "a{2,1}"])
def test_program_says_what_is_wrong_with_a_pattern(pattern: str) -> None:
    """An expression that is not valid ends the program with its error."""
    source, sink = io.BytesIO(), io.BytesIO()
    order = {"pattern": pattern, "ignore_case": False, "context": 0, "limit": 9, "alarm_s": 60}
    send(source, json.dumps(order).encode())
    source.seek(0)
    serve(source, sink)
    sink.seek(0)
    receive(sink)
    assert json.loads(receive(sink) or b"{}").get("error")
