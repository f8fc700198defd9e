"""Which bytes a page holds, and how lines are skipped."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree_tools.files.text_file import CHUNK_BYTES, TextPage, cut_first_page, skip_lines

Paging = Callable[[bytes, int, int], TextPage]
Skipping = Callable[[BinaryIO, int], int]

TEXTS = st.lists(st.sampled_from(["a", "\n", "\r\n", "é", "€", "𝄞", "word "]), max_size=40).map("".join)


def real_page(block: bytes, max_lines: int, max_bytes: int) -> TextPage:
    """The function under test, in the properties' shape."""
    return cut_first_page(block, max_lines=max_lines, max_bytes=max_bytes)


def real_skip(stream: BinaryIO, count: int) -> int:
    """The function under test, in the properties' shape."""
    return skip_lines(stream, count, lambda: False)


def pages_are_bounded_and_whole(paging: Paging) -> None:
    """A page is a prefix of the text within both bounds, of whole lines or one cut between code points."""

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(TEXTS, st.integers(1, 5), st.integers(4, 30))
    def check(text: str, max_lines: int, max_bytes: int) -> None:
        data = text.encode()
        page = paging(data[: max_bytes + 1], max_lines, max_bytes)
        assert data.startswith(page.data)
        assert len(page.data) <= max_bytes
        assert page.lines <= max_lines
        assert page.more == (len(page.data) < len(data))
        page.data.decode()
        if page.cut:
            assert page.lines == 1
            assert b"\n" not in page.data
            assert len(page.data) > max_bytes - 4
        else:
            assert page.data.endswith(b"\n") or page.data == data
            assert page.lines == page.data.count(b"\n") + (not page.data.endswith(b"\n") and page.data != b"")
        if data:
            assert page.data

    check()


def skipping_counts_lines(skip: Skipping) -> None:
    """The stream is where the line begins, and the number of lines passed is right."""

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(TEXTS, st.integers(0, 12))
    def check(text: str, count: int) -> None:
        data = text.encode()
        lines = data.splitlines(keepends=True) if b"\r" not in data else io.BytesIO(data).readlines()
        stream = io.BytesIO(data)
        assert skip(stream, count) == min(count, len(lines))
        assert stream.read() == b"".join(lines[count:])

    check()


def split_code_point(block: bytes, max_lines: int, max_bytes: int) -> TextPage:
    """Bug: cuts at the byte limit, wherever that falls."""
    page = real_page(block, max_lines, max_bytes)
    return TextPage(block[:max_bytes], 1, cut=True, more=True) if page.cut else page


def one_line_too_many(block: bytes, max_lines: int, max_bytes: int) -> TextPage:
    """Bug: counts lines from zero."""
    return real_page(block, max_lines + 1, max_bytes)


def no_end_in_sight(block: bytes, max_lines: int, max_bytes: int) -> TextPage:
    """Bug: a page that is full is taken for the last."""
    page = real_page(block, max_lines, max_bytes)
    return TextPage(page.data, page.lines, page.cut, more=False)


def skip_one_more(stream: BinaryIO, count: int) -> int:
    """Bug: reads on to the end of the line."""
    passed = real_skip(stream, count)
    stream.readline()
    return passed


def forget_last_line(stream: BinaryIO, count: int) -> int:
    """Bug: a last line without its end does not count."""
    passed = real_skip(stream, count)
    return passed - 1 if passed < count and passed else passed


@pytest.mark.slow
def test_page_is_bounded_and_whole() -> None:
    """No page is over its limits, tears a line it need not, or a code point ever."""
    pages_are_bounded_and_whole(real_page)


@pytest.mark.parametrize("bug", [split_code_point, one_line_too_many, no_end_in_sight])
def test_planted_paging_bug_is_found(bug: Paging) -> None:
    """The property fails on each broken variant."""
    with pytest.raises((AssertionError, UnicodeDecodeError)):
        pages_are_bounded_and_whole(bug)


def test_skipping_lines_counts_right() -> None:
    """A line begins after each line feed; what follows the last one is a line too."""
    skipping_counts_lines(real_skip)


@pytest.mark.parametrize("bug", [skip_one_more, forget_last_line])
def test_planted_skipping_bug_is_found(bug: Skipping) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        skipping_counts_lines(bug)


def test_skipping_goes_on_over_chunks() -> None:
    """A line end on either side of a chunk's border is seen once."""
    for length in (CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1):
        stream = io.BytesIO(b"x" * length + b"\nsecond\nthird")
        assert real_skip(stream, 2) == 2
        assert stream.read() == b"third"


def test_skipping_ends_when_told() -> None:
    """Nothing is read for a caller that has gone."""
    with pytest.raises(ExecutionError, match="cancelled"):
        skip_lines(io.BytesIO(b"a\n" * 10), 3, lambda: True)


@pytest.mark.parametrize("tail", [b"\x80\x80\x80\x80\x80", b"\xff\xfe\xfd\xfc\xfb"])
def test_cut_in_bytes_that_are_no_text_stays_near_the_limit(tail: bytes) -> None:
    """Without a code point to keep whole, at most three bytes are given up."""
    page = real_page(b"ab" + tail * 4, 1, 9)
    assert page.cut
    assert 6 <= len(page.data) <= 9
