"""REL-P33: whatever a conversation looks like, a model is shown one result behind every call."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from sessiontree.contracts.values.messages import Message, ToolResultMessage
from sessiontree.models.sendable.provider_view import NO_REPAIRS, NO_RESULT, Repairs, pair_calls
from tests.unit.models.conversation_strategies import is_paired, messages, reply, result, sound, turns, user
from tests.unit.session.session_strategies import SessionRules

PATIENCE_S = 30.0


@pytest.mark.covers("I13", "REL-P33")
@given(messages())
def test_any_conversation_is_paired_and_loses_nothing_that_fits(given_messages: list[Message]) -> None:
    """Other messages stay as they are, a result is where it was asked for, the counts add up."""
    before = list(given_messages)
    after, repairs = pair_calls(given_messages)
    assert given_messages == before
    assert is_paired(after)
    others = [message for message in before if not isinstance(message, ToolResultMessage)]
    assert [message for message in after if not isinstance(message, ToolResultMessage)] == others
    real = Counter(id(m) for m in before if isinstance(m, ToolResultMessage))
    kept = Counter(id(m) for m in after if isinstance(m, ToolResultMessage) and id(m) in real)
    made = [m for m in after if isinstance(m, ToolResultMessage) and id(m) not in real]
    assert kept <= real
    assert repairs.missing == len(made)
    assert all(message.is_error and message.text == NO_RESULT for message in made)
    assert repairs.dropped == real.total() - kept.total()
    assert (repairs == NO_REPAIRS) == is_paired(before) == (after is given_messages)
    assert pair_calls(after) == (after, NO_REPAIRS)


@given(turns())
def test_sound_conversation_is_passed_on_as_it_is(conversation: list[list[Message]]) -> None:
    """Even where every reply uses the same ids."""
    whole = [message for turn in conversation for message in turn]
    assert pair_calls(whole)[0] is whole


ONE, TWO, LATE = result("c1", "one"), result("c2", "two"), result("c1", "late")


@pytest.mark.parametrize(
    ("before", "after", "repairs"),
    [
        ([reply("c1", "c2"), TWO, ONE], [reply("c1", "c2"), ONE, TWO], Repairs(moved=1)),
        ([reply("c1"), user("u"), ONE], [reply("c1"), ONE, user("u")], Repairs(moved=1)),
        ([reply("c1"), ONE, LATE], [reply("c1"), ONE], Repairs(dropped=1)),
        ([ONE, reply("c2"), TWO], [reply("c2"), TWO], Repairs(dropped=1)),
        ([reply("c1"), user("u"), reply("c1"), ONE], None, Repairs(missing=1)),
        ([reply("c1", "c1"), ONE, LATE], [reply("c1", "c1"), ONE, LATE], NO_REPAIRS),
    ],
    ids=[
        "out of order",
        "behind a message",
        "twice",
        "never asked for",
        "the nearest call",
        "one id for two",
    ],
)
def test_each_repair(before: list[Message], after: list[Message] | None, repairs: Repairs) -> None:
    """One thing wrong at a time."""
    mended, done = pair_calls(before)
    assert done == repairs
    if after is None:
        assert [message.text for message in mended if isinstance(message, ToolResultMessage)] == [
            NO_RESULT,
            "one",
        ]
    else:
        assert list(mended) == after


@pytest.mark.covers("REL-P33")
@pytest.mark.slow
def test_machines_own_transcripts_never_need_it() -> None:
    """Whenever a session asks its model, after any history, losses, steering and parked calls included."""

    class Asking(SessionRules):
        @invariant()
        def what_a_model_is_shown_is_paired(self) -> None:
            if hasattr(self, "world") and self.world.live.asking:
                transcript = self.world.live.transcript
                assert pair_calls(transcript)[0] is transcript

    share = -(-settings().max_examples // 4)
    run_state_machine_as_test(Asking, settings=settings(max_examples=share, stateful_step_count=20))


async def test_long_disorder_costs_what_it_is_long() -> None:
    """Ten thousand calls whose results come last, backwards, between results of nobody."""
    calls = [f"c{number}" for number in range(10_000)]
    disorder: list[Message] = [reply(*calls), user("u"), *(result("nobody") for _ in calls)]
    disorder += [result(call_id) for call_id in reversed(calls)]
    async with asyncio.timeout(PATIENCE_S):
        mended, repairs = await asyncio.to_thread(pair_calls, disorder)
    assert repairs == Repairs(dropped=10_000, moved=10_000)
    assert [m.tool_call_id for m in mended if isinstance(m, ToolResultMessage)] == calls
    assert len(sound(*calls)) == len(mended) - 1
