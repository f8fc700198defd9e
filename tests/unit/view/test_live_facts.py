"""The beginning of a fact tells the same as the whole of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import JournalTooNew
from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.recorded.codec import list_parts, pack
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.journal.record import read_kind
from sessiontree.testing.strategies import instances_of
from sessiontree.view.fact_heads import read_first_members, turn_in

First = Callable[[str, str], tuple[Any, ...]]
TOLD = {
    "session_reactivated": (tree_facts.SessionReactivated, ("session",)),
    "result_held": (tree_facts.ResultHeld, ("session",)),
    "session_ended": (tree_facts.SessionEnded, ("session", "status")),
    "approval_decided": (tree_facts.ApprovalDecided, ("request_id",)),
    "turn_started": (session_facts.TurnStarted, ("turn",)),
    "compaction_begun": (session_facts.CompactionBegun, ("turn",)),
    "turn_replied": (session_facts.TurnReplied, ("turn",)),
    "call_parked": (session_facts.CallParked, ("key",)),
    "call_resolved": (session_facts.CallResolved, ("key", "outcome", "message.tool_call_id")),
}
FACTS = st.sampled_from(sorted(TOLD)).flatmap(
    lambda kind: st.tuples(st.just(kind), instances_of(TOLD[kind][0]))
)


def beginning_tells_the_same(first: First, kind: str, fact: Any) -> None:
    """The first members of a fact's text are the fact's own, however the text is spelled."""
    members = tuple(attrgetter(name)(fact) for name in TOLD[kind][1])
    text = pack(fact)
    assert read_kind(text) == kind
    assert first(kind, text) == members
    spaced = json.dumps(json.loads(text), separators=(",", ": "))
    assert first(kind, spaced) == members
    wire = json.loads(text)
    turned = {"kind": wire.pop("kind"), **dict(reversed(wire.items()))}
    assert first(kind, json.dumps(turned, separators=(",", ":"))) == members


@given(FACTS)
def test_beginning_tells_what_the_whole_tells(given_fact: tuple[str, Any]) -> None:
    """Any fact: quotes, backslashes and lone surrogates in its members included."""
    beginning_tells_the_same(read_first_members, *given_fact)


def _stops_at_quotes(kind: str, text: str) -> tuple[Any, ...]:
    return tuple(
        each.partition('"')[0] if isinstance(each, str) else each for each in read_first_members(kind, text)
    )


def _takes_any_order(kind: str, text: str) -> tuple[Any, ...]:
    name = TOLD[kind][1][0]
    first = list(json.loads(text).values())[2]
    return (first, *read_first_members(kind, text)[1:]) if name else ()


@pytest.mark.parametrize("bug", [_stops_at_quotes, _takes_any_order])
def test_wrong_beginning_is_found(bug: First) -> None:
    """The property fails where quotes end a value early, and where members are taken to stand in order."""

    @settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))
    @given(FACTS)
    def found(given_fact: tuple[str, Any]) -> None:
        beginning_tells_the_same(bug, *given_fact)

    with pytest.raises(AssertionError):
        found()


STARTERS = (session_facts.Opened, session_facts.MessageReceived, session_facts.CallResolved)
TURNS = st.tuples(
    st.sampled_from(STARTERS).flatmap(instances_of), st.none() | instances_of(session_facts.TurnStarted)
)


@given(TURNS)
def test_turn_that_a_fact_holds_is_read_from_its_end(given_fact: tuple[Any, Any]) -> None:
    """However the text is spelled, and whatever a result says."""
    fact, turn = given_fact
    whole = replace(fact, turn=turn)
    turns = [part.turn for part in list_parts(whole) if isinstance(part, session_facts.TurnStarted)]
    expected = turns[-1] if turns else None
    assert turn_in(pack(whole)) == expected
    assert turn_in(json.dumps(json.loads(pack(whole)), separators=(",", ": "))) == expected


def test_result_that_looks_like_a_turn_is_none() -> None:
    """Details of a tool may have any form."""
    details: Any = {"turn": {"kind": "turn_started", "v": 1, "turn": 3, "took": 0, "fresh_run": True}}
    message = ToolResultMessage("c", "look", (TextContent(json.dumps(details)),), details)
    assert turn_in(pack(session_facts.CallResolved("1.0", "ok", message))) is None


def test_text_that_is_no_fact_has_no_kind() -> None:
    """What does not begin as a fact is not one."""
    texts = ("", "{}", '{"v":1}', '{"kind":""}', ' {"kind":"run_finished"}')
    assert [read_kind(text) for text in texts] == [""] * 5


def test_fact_of_a_later_release_is_a_typed_error() -> None:
    """A later version is never read by its beginning."""
    with pytest.raises(JournalTooNew):
        read_first_members(
            "turn_started", '{"kind":"turn_started","v":99,"turn":1,"took":0,"fresh_run":true}'
        )
