"""A body is bounded whatever pieces it comes in."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree.web.client import MAX_MEMBERS, SPARE_WIRE_BYTES, STEP_BYTES, Body

CUTS = st.lists(st.integers(0, 4000), max_size=8)


def taken(body: Body, data: bytes, cuts: list[int]) -> bytes:
    """Feed data in pieces until no more is wanted, and return what was kept."""
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    start = 0
    for end in ends:
        if not body.take(data[start:end]):
            break
        start = end
    return body.whole()


@given(
    st.lists(st.binary(max_size=3000), max_size=4), CUTS, st.integers(0, 9000), st.booleans(), st.booleans()
)
def test_body_is_the_beginning_of_what_was_sent(
    parts: list[bytes], cuts: list[int], most: int, packed: bool, padded: bool
) -> None:
    """However it is cut, packed, in however many members, padded or not: the first ``most`` bytes."""
    said = b"".join(parts)
    wire = (
        b"".join(gzip.compress(part) for part in parts) + bytes(9 * padded * bool(parts)) if packed else said
    )
    body = Body("gzip" if packed else "", max_bytes=most)
    assert taken(body, wire, cuts) == said[:most]
    assert body.truncated == (len(said) > most)


@given(st.binary(min_size=100, max_size=3000), CUTS, st.data())
def test_gzip_that_breaks_off_is_no_body(said: bytes, cuts: list[int], data: st.DataObject) -> None:
    """Half a page is not taken for a page."""
    wire = gzip.compress(said)
    end = data.draw(st.integers(1, len(wire) - 1))
    with pytest.raises(ExecutionError, match="ended in the middle"):
        taken(Body("gzip", max_bytes=10_000), wire[:end], cuts)


@pytest.mark.slow
def test_no_step_makes_more_than_it_may() -> None:
    """One piece of a bomb is taken apart in steps, and only until the limit."""
    bomb = gzip.compress(bytes(100_000_000))
    body = Body("gzip", max_bytes=STEP_BYTES * 3 + 1)
    assert not body.take(bomb)
    assert len(body.whole()) == STEP_BYTES * 3 + 1


def test_wire_that_says_nothing_is_given_up() -> None:
    """Empty blocks of gzip don't count against the body; they count against the wire."""
    body = Body("gzip", max_bytes=1000)
    body.take(gzip.compress(b"")[:10])
    pieces = 0
    while body.take(b"\0\0\0\xff\xff" * 1000):
        pieces += 1
    assert pieces * 5000 <= SPARE_WIRE_BYTES + 1000
    assert body.truncated


def test_members_are_counted() -> None:
    """As many as are usual, and no more."""
    member = gzip.compress(b"x")
    assert taken(Body("gzip", max_bytes=1000), member * MAX_MEMBERS, []) == b"x" * MAX_MEMBERS
    with pytest.raises(ExecutionError, match="gzip members"):
        taken(Body("gzip", max_bytes=1000), member * (MAX_MEMBERS + 1), [])


@pytest.mark.parametrize("tail", [b"\0" * 9, b"trailing", b"\r\n", b"\0\0<html>"])
def test_bytes_behind_gzip_are_ignored(tail: bytes) -> None:
    """As browsers do, wherever the pieces are cut."""
    wire = gzip.compress(b"said") + tail
    for cut in range(len(wire)):
        body = Body("gzip", max_bytes=100)
        body.take(wire[:cut])
        body.take(wire[cut:])
        assert body.whole() == b"said"
