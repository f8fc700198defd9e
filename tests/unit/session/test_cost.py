"""What a turn costs does not depend on how long the conversation is."""

from __future__ import annotations

import statistics
import sys
from types import FrameType
from typing import Any

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.session.decide import react
from sessiontree.session.state import SessionState, make_initial_state
from tests.unit.session.session_fixtures import TOOLS, call, reply, spec

TURNS = 2_000
ASKED = reply(call("look"))


def one_turn(state: SessionState, turn: int) -> None:
    """Take one turn with one reading call."""
    key = f"{turn}.0"
    react(state, stimuli.ModelAnswered(turn, turn, ASKED))
    react(state, stimuli.CallPrepared(turn, CheckedCall(key, "look", {"n": 0}, "", 0, True), False))
    done = ToolResultMessage("c1", "look", (TextContent("seen"),))
    react(state, stimuli.CallFinished(turn, key, "ok", done))


def lines_of(state: SessionState, turn: int) -> int:
    """Return how many lines of code one turn runs through."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        one_turn(state, turn)
    finally:
        sys.settrace(before)
    return count


def test_turn_costs_the_same_at_the_end_of_two_thousand() -> None:
    """Linear: a turn runs through as many lines late as early, and keeps nothing but the transcript."""
    state = make_initial_state(spec(), Limits(max_turns=TURNS + 1, max_repeats=None))
    react(state, stimuli.Adopted(0, tuple(TOOLS), "model", "You work."))
    for turn in range(1, 50):
        one_turn(state, turn)
    early = statistics.median(lines_of(state, turn) for turn in range(50, 70))
    for turn in range(70, TURNS - 20):
        one_turn(state, turn)
    late = statistics.median(lines_of(state, turn) for turn in range(TURNS - 20, TURNS))
    assert late <= 1.1 * early
    assert len(state.transcript) == 2 * (TURNS - 1) + 1
    assert not state.calls
    assert not state.results
    assert not state.reply_keys
