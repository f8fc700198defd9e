"""Trimming: nothing longer than asked for, no character split, and trimming twice is trimming once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ConfigError, ExecutionError, TrimResults
from sessiontree.contracts.recorded.results import make_error_message
from sessiontree.contracts.tools.hooks import KeptResult
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent, TextContent

LETTERS = st.text(st.sampled_from("ab\n é👨‍👩‍👧e\u0301🇩🇪"), min_size=0, max_size=900)


def kept(text: str, details: JsonValue = None, *, is_error: bool = False) -> KeptResult:
    """Return a result of one text and an image."""
    return KeptResult("1", "t", (TextContent(text), ImageContent("aGk=", "image/png")), details, is_error)


@pytest.mark.covers("Z5")
@given(LETTERS, st.integers(200, 500))
def test_texts_and_details_are_cut_and_images_stay(text: str, most: int) -> None:
    """What is left is a beginning of what was there, whole in UTF-8."""
    trim = TrimResults(most)
    trimmed = trim.tool_result_persist(kept(text, {"display": "d", "details": [text]}))
    block, image = trimmed.content
    assert isinstance(block, TextContent)
    assert isinstance(image, ImageContent)
    assert isinstance(trimmed.details, dict)
    assert isinstance(trimmed.details["details"], list)
    for cut in (block.text, str(trimmed.details["details"][0])):
        assert len(cut) <= most
        assert text.startswith(cut.partition("\n… cut:")[0])
        cut.encode("utf-8")
        if len(text) <= most:
            assert cut == text
    assert trim.tool_result_persist(trimmed) == trimmed


def test_envelope_stays_one() -> None:
    """Of an error the words are cut, not the JSON around them; what is no JSON is cut as it is."""
    message = make_error_message("1", "t", ExecutionError("x" * 5_000), 0)
    trimmed = TrimResults(300).tool_result_persist(kept(message.text, is_error=True))
    block = trimmed.content[0]
    assert isinstance(block, TextContent)
    envelope = json.loads(block.text)
    assert (envelope["status"], envelope["tool"], len(envelope["error"])) == ("error", "t", 300)
    for text in ("x" * 5_000, "[" * 5_000):
        odd = TrimResults(300).tool_result_persist(kept(text, is_error=True)).content[0]
        assert isinstance(odd, TextContent)
        assert len(odd.text) == 300


def test_length_without_room_for_the_notice_is_refused() -> None:
    """At construction, not at the first long result."""
    with pytest.raises(ConfigError, match="200"):
        TrimResults(199)
