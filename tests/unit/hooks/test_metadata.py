"""Adding metadata: into details alone, alongside what is there."""

from __future__ import annotations

import pytest

from sessiontree import AddMetadata
from sessiontree.contracts.tools.hooks import KeptResult
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import TextContent

ADDED = {"suite": "night", "keptAt": "then"}


@pytest.mark.covers("Z5")
@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (None, {"metadata": ADDED}),
        ({"display": "x"}, {"display": "x", "metadata": ADDED}),
        ([1], {"details": [1], "metadata": ADDED}),
    ],
)
def test_metadata_stands_beside_the_details(details: JsonValue, expected: JsonValue) -> None:
    """The model's part is untouched."""
    hook = AddMetadata({"suite": "night"}, clock=lambda: "then")
    result = KeptResult("1", "t", (TextContent("text"),), details, is_error=False)
    kept = hook.tool_result_persist(result)
    assert kept.details == expected
    assert kept.content == result.content


def test_progress_stays_as_it_is_and_the_clock_can_be_left_out() -> None:
    """Progress has no content to tell it by."""
    progress = KeptResult("1", "t", (), {"done": 3}, is_error=False)
    assert AddMetadata({"a": 1}).tool_result_persist(progress) == progress
    result = KeptResult("1", "t", (TextContent(""),), None, is_error=False)
    assert AddMetadata({"a": 1}, clock=None).tool_result_persist(result).details == {"metadata": {"a": 1}}
    stamped = AddMetadata().tool_result_persist(result).details
    assert isinstance(stamped, dict)
    assert str(stamped["metadata"]).endswith("+00:00'}")
