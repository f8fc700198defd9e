"""What a tool returned, as a message: bounded whatever it is, and planted bugs are found."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.settings.settings import MAX_IMAGES
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.dispatch.results import MAX_DETAILS_WEIGHT, make_result_message

Finalize = Callable[..., ToolResultMessage]

IMAGE = ImageContent("QQ==", "image/png")
texts = st.builds(lambda text, times: text * times, st.text(max_size=20), st.integers(1, 100))
"""Many are longer than the limit."""
outputs = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)


def message_is_bounded(finalize: Finalize) -> None:
    """Always a text block, first; within the limit; what fits is whole; images stand behind, in order."""

    @settings(max_examples=150, database=None, derandomize=True)
    @given(outputs, st.integers(0, 3), st.integers(200, 900), texts)
    def check(output: Any, images: int, max_chars: int, display: str) -> None:
        given_images = tuple(ImageContent("QQ==", f"image/{number}") for number in range(images))
        result = ToolResult(output, display=display, details={"n": 1}, images=given_images)
        message = finalize("c", "t", result, 7, max_chars=max_chars)
        text, *others = message.content
        assert isinstance(text, TextContent)
        assert tuple(others) == given_images
        whole = result.text_for_model()
        room = max_chars - min(400, max_chars // 2) if images else max_chars
        assert len(text.text) <= room
        assert (text.text == whole) == (len(whole) <= room)
        assert isinstance(message.details, dict)
        assert message.details["details"] == {"n": 1}
        shown = str(message.details["display"])
        assert len(shown) <= 400
        assert len(shown.splitlines()) <= 1
        assert not message.is_error

    check()


def uncut(call_id: str, tool: str, result: ToolResult, at_ms: int, *, max_chars: int) -> ToolResultMessage:
    """Bug: the limit is not asked for."""
    return make_result_message(call_id, tool, result, at_ms, max_chars=10**9)


def roomless(call_id: str, tool: str, result: ToolResult, at_ms: int, *, max_chars: int) -> ToolResultMessage:
    """Bug: no room is kept for what is said about images."""
    message = make_result_message(
        call_id,
        tool,
        ToolResult(result.output, result.display, details=result.details),
        at_ms,
        max_chars=max_chars,
    )
    return ToolResultMessage(
        call_id, tool, (*message.content, *result.images), message.details, timestamp=at_ms
    )


def disordered(
    call_id: str, tool: str, result: ToolResult, at_ms: int, *, max_chars: int
) -> ToolResultMessage:
    """Bug: images come first."""
    message = make_result_message(call_id, tool, result, at_ms, max_chars=max_chars)
    return ToolResultMessage(call_id, tool, message.content[::-1], message.details, timestamp=at_ms)


@pytest.mark.slow
def test_every_message_is_bounded() -> None:
    """I29 and I40: at least one block, never more than the limit."""
    message_is_bounded(make_result_message)


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize("bug", [uncut, roomless, disordered])
def test_planted_message_is_found(bug: Finalize) -> None:
    """Each bug breaks a promise."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        message_is_bounded(bug)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (ToolResult("x", images=(IMAGE,) * (MAX_IMAGES + 1)), "21 images; at most 20"),
        (ToolResult("x", artifacts=(Artifact("file", "a"),) * 1_001), "1001 artifacts; at most 1000"),
        (ToolResult("x", artifacts=(Artifact("blob", "a", data="x" * 2**16),)), "artifact of 65,537 char"),
        (ToolResult("x", artifacts=(Artifact("file", "x" * 2**16),)), "artifact of 65,536 char"),
    ],
)
def test_more_than_a_result_may_hold_is_an_error(result: ToolResult, words: str) -> None:
    """Images and artifacts are counted, artifacts weighed."""
    with pytest.raises(ExecutionError, match=words):
        make_result_message("c", "t", result, 7, max_chars=1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "details",
    [
        "x" * (MAX_DETAILS_WEIGHT + 1),
        ["x"] * MAX_DETAILS_WEIGHT,
        [[]] * (MAX_DETAILS_WEIGHT + 1),
        {"x" * MAX_DETAILS_WEIGHT: 1},
        10 ** (MAX_DETAILS_WEIGHT * 2),
        {"a": {"b": ["y" * 300_000, "z" * 300_000]}},
    ],
    ids=["text", "texts", "lists", "name", "number", "nested"],
)
def test_details_that_weigh_too_much_are_left_out(details: Any) -> None:
    """The result stays as it is, and says that they were left out."""
    message = make_result_message("c", "t", ToolResult("x", details=details), 7, max_chars=1000)
    assert message.text == "x"
    assert isinstance(message.details, dict)
    assert message.details["details"] == {
        "omitted": True,
        "reason": "they weigh more than 400,000 characters and members",
    }


def test_details_up_to_the_limit_are_kept() -> None:
    """One character below."""
    details: JsonValue = {"x": "y" * (MAX_DETAILS_WEIGHT - 2)}
    message = make_result_message("c", "t", ToolResult("x", details=details), 7, max_chars=1000)
    assert isinstance(message.details, dict)
    assert message.details["details"] == details
    assert len(dump_json(message.details)) < MAX_DETAILS_WEIGHT + 100


def test_giant_text_costs_no_more_than_its_head() -> None:
    """200 MiB in one line: nothing of it is copied, and it takes no time."""
    text = "x" * (200 * 2**20)
    tracemalloc.start()
    began = time.thread_time()
    try:
        message = make_result_message("c", "t", ToolResult(text, details=text), 7, max_chars=40_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.thread_time() - began < 1
    assert peak < 2**20
    assert len(message.text) <= 40_000
    assert message.text.endswith("… cut: 40000 of 209715200 characters shown")
