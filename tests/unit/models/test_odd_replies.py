"""Replies of models in the same process: calls without a name, long numbers; what limits advise."""

from __future__ import annotations

import json

from sessiontree.contracts.errors import LimitExceeded
from sessiontree.contracts.values.jsonable import dump_json, to_json_value
from sessiontree.contracts.values.messages import AssistantMessage, ToolCall
from sessiontree.models.answers import check_reply


def test_call_without_a_name_is_taken_in() -> None:
    """The session answers it as it answers any unknown name."""
    reply = check_reply(AssistantMessage((ToolCall("c1", "", {}),), "toolUse"), 1)
    assert [call.name for call in reply.tool_calls] == [""]


def test_whole_number_of_any_length_can_be_journaled() -> None:
    """Python writes no number of more than 4,300 digits; such a one becomes text."""
    for digits in (4_000, 4_300, 5_001, 100_000):
        for number in (10**digits, -(10**digits)):
            arguments = {"n": number, "deep": [{"m": number}]}
            reply = check_reply(AssistantMessage((ToolCall("c1", "read", arguments),), "toolUse"), 1)
            (call,) = reply.tool_calls
            assert json.loads(call.to_json())["arguments"] == call.arguments
            assert isinstance(call.arguments["n"], int) == (digits < 4_000)
            assert dump_json(to_json_value(number))


def test_limit_names_the_setting_that_raises_it() -> None:
    """A budget is no member of Limits."""
    assert LimitExceeded("main", "budget.sessions", 3, 2).reason.endswith("raise it with Budget(sessions=…)")
    assert LimitExceeded("main", "max_depth", 3, 2).reason.endswith("raise it with Limits(max_depth=…)")
