"""Requests: any line is a request, a withdrawal, or a plain refusal; answers travel in bounded parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.control.call_codec import SocketAnswer
from sessiontree.control.protocol import (
    MAX_LINE_BYTES,
    MAX_PART_CHARS,
    SocketRequest,
    Withdrawal,
    encode_answer,
    encode_error_line,
    encode_line,
    parse_line,
)
from sessiontree.testing.strategies import json_objects, json_values, texts

LINES = st.one_of(
    st.binary(max_size=40),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"id": json_values, "ask": json_values, "given": json_values}).map(
        lambda wire: json.dumps(wire).encode()
    ),
    st.sampled_from(
        [b"[" * 200_000, b'{"id":NaN,"ask":"report"}', b'{"id":' + b"9" * 5000 + b"}", b"\xff{}"]
    ),
)


@given(LINES)
def test_any_line_is_understood_or_refused(line: bytes) -> None:
    """Nothing but a ValueError comes of garbage, and what is understood is sound."""
    try:
        said = parse_line(line)
    except ValueError:
        return
    assert isinstance(said, SocketRequest | Withdrawal)
    assert type(said.id) is int
    assert said.id >= 0


@given(st.integers(0, 2**53), texts, json_objects)
def test_request_is_what_was_said(number: int, ask: str, given_: dict[str, Any]) -> None:
    """Id, question and arguments come through, whatever they hold."""
    line = encode_line({"id": number, "ask": ask, "given": given_})
    assert line.endswith(b"\n")
    assert parse_line(line[:-1]) == SocketRequest(number, ask, given_)
    assert parse_line(encode_line({"withdraw": number})[:-1]) == Withdrawal(number)


def test_long_answer_travels_in_parts_that_fit() -> None:
    """No line of an answer is much longer than a part; together the parts are the answer."""
    items = [f"{number}:" + "x" * 1000 for number in range(2000)]
    lines = list(encode_answer(7, SocketAnswer(value={"all": True}, items=items)))
    assert len(lines) > 4
    assert max(map(len, lines)) < MAX_PART_CHARS + 3000
    wires = [json.loads(line) for line in lines]
    assert [item for wire in wires[:-1] for item in wire["items"]] == items
    assert wires[-1] == {"id": 7, "value": {"all": True}}


def test_answer_that_fits_no_line_is_refused() -> None:
    """One item beyond a line's bound is an error, not a line nobody can take."""
    with pytest.raises(SessionTreeError, match="read the journal"):
        list(encode_answer(1, SocketAnswer(items=["x" * (MAX_LINE_BYTES + 1)])))


def test_error_without_a_question_is_the_last_word() -> None:
    """It travels without an id."""
    assert json.loads(encode_error_line(None, ConfigError("no"))) == {
        "id": None,
        "error": {"type": "ConfigError", "fields": ["no"]},
    }
