"""Lines: however a stream is cut on its way, the same lines come out of it, and never much is held."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.control.protocol import Lines

Make: TypeAlias = Callable[[int], Lines]

MAX_BYTES = 6
STREAMS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b"\r", b"\x00", b"defg"]), max_size=16).map(
    b"".join
)
CUTS = st.lists(st.integers(0, 40), max_size=12)


def chunks_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return the stream cut at these places; some chunks are empty."""
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(places)]


def expected(stream: bytes) -> tuple[list[bytes], bool, bool]:
    """Return the lines of a stream, whether one was too long, and whether the last has no end."""
    *lines, rest = stream.split(b"\n")
    for index, line in enumerate([*lines, rest]):
        if len(line) > MAX_BYTES:
            return lines[:index], True, False
    return lines, False, bool(rest)


def lines_are_those_of_the_stream(make: Make, stream: bytes, cuts: list[int]) -> None:
    """However the stream is cut: its lines in order, up to the first that is too long."""
    lines = make(MAX_BYTES)
    found = [line for chunk in chunks_of(stream, cuts) for line in lines.take(chunk)]
    assert (found, lines.is_overlong, lines.is_within) == expected(stream)


@given(STREAMS, CUTS)
def test_any_cutting_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    """Requests do not depend on how their bytes arrived."""
    lines_are_those_of_the_stream(Lines, stream, cuts)


class _LosesTheRest(Lines):
    def take(self, data: bytes) -> list[bytes]:
        found = super().take(data)
        self._rest.clear()
        return found


class _SearchesFromBehind(Lines):
    def take(self, data: bytes) -> list[bytes]:
        return [] if not data.endswith(b"\n") and b"\n" in data else super().take(data)


class _KeepsEverything(Lines):
    def take(self, data: bytes) -> list[bytes]:
        found = super().take(data)
        self.is_overlong = False
        return found


class _CountsTheEnd(Lines):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes - 1)


class _DropsEmptyLines(Lines):
    def take(self, data: bytes) -> list[bytes]:
        return [line for line in super().take(data) if line]


@pytest.mark.parametrize(
    "bug", [_LosesTheRest, _SearchesFromBehind, _KeepsEverything, _CountsTheEnd, _DropsEmptyLines]
)
def test_framing_that_depends_on_the_cutting_is_found(bug: Make) -> None:
    """The property fails where bytes between chunks are lost, or a bound is off by one or not kept."""

    @settings(max_examples=300, database=None, derandomize=True, phases=[Phase.generate])
    @given(STREAMS, CUTS)
    def found(stream: bytes, cuts: list[int]) -> None:
        lines_are_those_of_the_stream(bug, stream, cuts)

    with pytest.raises(AssertionError):
        found()


def test_no_more_than_a_line_is_held() -> None:
    """A line that never ends is given up once it is too long, and nothing of it is kept."""
    lines = Lines(1000)
    for _ in range(50):
        assert lines.take(b"x" * 64) == []
    assert lines.is_overlong
    assert not lines.is_within
    assert lines.take(b"\nx\n") == []
