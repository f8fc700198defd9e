"""Values: what the owner answers is the same after a journey as JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.jsonable import dump_json
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.messages import UserMessage
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.usage import Usage
from sessiontree.control import values
from sessiontree.journal.record import Record
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.runtime.session_reports import ActorRow
from sessiontree.runtime.supervisor_api import SessionRecord
from sessiontree.testing.strategies import floats, instances_of, texts, tool_results
from sessiontree.tree.receipt import ReceiptLine

REPORTS = instances_of(SessionReport).flatmap(
    lambda report: st.dictionaries(texts, floats, max_size=3).map(
        lambda left: replace(report, budget_left=left)
    )
)
LINES = st.builds(
    ReceiptLine,
    texts,
    st.sampled_from(SessionKind),
    st.sampled_from(SessionStatus),
    st.booleans(),
    texts,
    st.integers(0),
    instances_of(Usage),
)
CASES: list[tuple[SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    (REPORTS, values.report_to_wire, values.report_from_wire),
    (instances_of(ApprovalRequest), values.request_to_wire, values.request_from_wire),
    (LINES, values.line_to_wire, values.line_from_wire),
    (instances_of(Record), values.record_to_wire, values.record_from_wire),
    (instances_of(Reply), values.reply_to_wire, values.reply_from_wire),
    (st.builds(CallReply, texts, tool_results), values.call_to_wire, values.call_from_wire),
    (instances_of(ActorRow), values.actor_to_wire, values.actor_from_wire),
    (
        instances_of(SessionRecord),
        lambda record: [values.history_to_wire(record), list(record.facts)],
        lambda wire: values.history_from_wire(*wire),
    ),
]
NAMES = ["report", "request", "receipt", "record", "reply", "call", "actor", "history"]


def comes_back(to_wire: Callable[[Any], Any], from_wire: Callable[[Any], Any], value: Any) -> None:
    """The value that arrives equals the one that was sent."""
    assert from_wire(json.loads(dump_json(to_wire(value)))) == value


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_value_comes_back(case: tuple[Any, Any, Any]) -> None:
    """Values of any content cross unchanged."""
    instances, to_wire, from_wire = case

    @settings(max_examples=30)
    @given(instances)
    def crosses(value: Any) -> None:
        comes_back(to_wire, from_wire, value)

    crosses()


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_value_that_loses_something_is_found(case: tuple[Any, Any, Any]) -> None:
    """The property fails where letters change on the way, for every kind of value."""
    instances, to_wire, from_wire = case

    def shouting(value: Any) -> Any:
        return json.loads(dump_json(to_wire(value)).replace("e", "E"))

    @settings(max_examples=60, database=None, derandomize=True, phases=[Phase.generate])
    @given(instances)
    def crosses(value: Any) -> None:
        try:
            comes_back(shouting, from_wire, value)
        except (KeyError, TypeError, ValueError) as error:
            raise AssertionError from error

    with pytest.raises(AssertionError):
        crosses()


def test_a_message_that_is_no_result_is_refused() -> None:
    """What comes back from a call is a tool's message, or an error."""
    message = UserMessage((), 0)
    with pytest.raises(ValueError, match="no tool's message"):
        values.call_from_wire({"outcome": "ok", "message": message.to_wire()})
