"""Output is kept within bounds, from both ends, without ever cutting a character in two."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.sandbox.commands import command_process
from sessiontree.sandbox.commands.command_process import Decoder, OutputKeeper, decode_output
from tests.example_fixtures import examples

TEXTS = st.text(max_size=120)
PIECES = st.lists(st.one_of(st.binary(max_size=40), TEXTS.map(str.encode)), max_size=12)


def kept_of(pieces: list[bytes], keep_bytes: int) -> tuple[str, str, int]:
    """Return what is kept of output that comes in pieces."""
    keeper = OutputKeeper(keep_bytes)
    for piece in pieces:
        keeper.add(piece)
    return keeper.kept()


def whole_output_is_told_whole(keep: Callable[[list[bytes], int], tuple[str, str, int]]) -> None:
    """What fits is reported as it is."""

    @settings(max_examples=200, derandomize=True, database=None)
    @given(pieces=PIECES)
    def check(pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        assert keep(pieces, max(8, 2 * len(data))) == (decode_output(data), "", 0)

    check()


def text_is_cut_between_characters(keep: Callable[[list[bytes], int], tuple[str, str, int]]) -> None:
    """What does not fit is cut between characters, and every byte left out is counted."""

    @settings(max_examples=400, derandomize=True, database=None, report_multiple_bugs=False)
    @given(
        text=st.text(min_size=1, max_size=200).map(lambda text: text.replace("\0", "0")),
        size=st.integers(8, 80),
    )
    def check(text: str, size: int) -> None:
        data = text.encode()
        head, tail, dropped = keep([data[at : at + 3] for at in range(0, len(data), 3)], size)
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head.encode()) + len(tail.encode()) + dropped == len(data)
        assert len(head.encode()) + len(tail.encode()) <= size
        assert dropped == 0 or len(head.encode()) + len(tail.encode()) > size - 8

    check()


@pytest.mark.slow
def test_output_that_fits_is_whole() -> None:
    """Any bytes, in any pieces."""
    whole_output_is_told_whole(kept_of)


@pytest.mark.covers("REL-P36")
@pytest.mark.slow
def test_characters_are_never_cut() -> None:
    """Beginning and end are the text's own, and what is missing is counted."""
    text_is_cut_between_characters(kept_of)


@pytest.mark.covers("REL-P36")
def test_planted_cut_is_found() -> None:
    """A keeper that cuts bytes where they fall breaks the property."""

    def careless(pieces: list[bytes], keep_bytes: int) -> tuple[str, str, int]:
        data, half = b"".join(pieces), keep_bytes // 2
        if len(data) <= keep_bytes:
            return decode_output(data), "", 0
        return decode_output(data[:half]), decode_output(data[-half:]), len(data) - 2 * half

    with pytest.raises(AssertionError):
        text_is_cut_between_characters(careless)


@pytest.mark.covers("REL-L65")
def test_memory_stays_bounded() -> None:
    """However much comes, a few times what is kept is held."""
    keeper = OutputKeeper(1000)
    for _ in range(10_000):
        keeper.add(b"x" * 997)
        assert len(keeper._tail) <= 4 * 500 + 997
    head, tail, dropped = keeper.kept()
    assert (len(head), len(tail), dropped) == (500, 500, 9_970_000 - 1000)


@settings(max_examples=examples(200), derandomize=True, database=None)
@given(data=st.binary(max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_decoder_tells_what_the_whole_would(data: bytes, cuts: list[int]) -> None:
    """Piece by piece or at once, the text is the same."""
    decoder, edges = Decoder(), [0, *sorted(cuts), len(data)]
    pieces = [data[one:two] for one, two in itertools.pairwise(edges)]
    told = "".join(map(decoder.text, pieces)) + decoder.text(b"", last=True)
    assert told == decode_output(b"".join(pieces))


def test_nul_and_stray_bytes_are_shown() -> None:
    """Neither reaches a terminal or a journal as it is."""
    assert decode_output(b"a\0b\xffc") == "a\ufffdb\ufffdc"
    assert command_process.SHOWN_AS == "\ufffd"
