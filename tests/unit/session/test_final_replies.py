"""A reply that is not whole is no final message: it fails the run, is gone on with, or is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts.stimuli import ModelAnswered
from sessiontree.contracts.settings.model_settings import OnLength
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ReplyContent,
    StopReason,
    TextContent,
    ThinkingContent,
)
from sessiontree.session import turns
from sessiontree.session.calls import Decision
from tests.unit.session.session_fixtures import RESULT_SCHEMA, call
from tests.unit.session.world_fakes import World, opened

SEARCH = settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])


@dataclass(frozen=True)
class Reply:
    """What a model says, why it stops, and what is to become of a reply that was cut."""

    text: str
    stops: StopReason
    on_length: OnLength


REPLIES = st.lists(
    st.builds(
        Reply,
        st.sampled_from(["one ", "two ", ""]),
        st.sampled_from(["stop", "length", "length", "refusal", "error", "aborted"]),
        st.sampled_from(["fail", "continue", "continue", "accept"]),
    ),
    min_size=1,
    max_size=4,
)
Answered = Callable[[Any, ModelAnswered], Decision]


def given_reply(world: World, said: Reply) -> None:
    """Let the model reply so to the newest question."""
    world.report()
    message = AssistantMessage((TextContent(said.text),) if said.text else (), said.stops)
    world.give(ModelAnswered(world.at_ms, world.live.turn, message, said.on_length))


def only_whole_replies_complete(answered: Answered, said: list[Reply]) -> None:
    """Property: the run completes with a whole or accepted reply, and says all that was gone on with.

    ``answered`` decides on the last reply; those before it are the machine's own.
    """
    world = opened()
    text = ""
    for each in said:
        text += each.text
        message = AssistantMessage((TextContent(each.text),) if each.text else (), each.stops)
        stimulus = ModelAnswered(world.at_ms, world.live.turn, message, each.on_length)
        decided = answered(world.live, stimulus)
        ends = [fact for fact in decided.facts if isinstance(fact, facts.RunFinished)]
        goes_on = each.stops == "length" and each.on_length == "continue"
        assert not (ends and goes_on)
        if not goes_on and not ends:
            is_asked = [type(fact) for fact in decided.facts]
            assert not text
            assert not world.live.asked_again
            assert is_asked == [facts.TurnReplied, facts.ReplyEmpty, facts.MessageReceived]
        elif not goes_on:
            (end,) = ends
            is_whole = each.stops == "stop" or (each.stops == "length" and each.on_length == "accept")
            assert (end.error is None) is is_whole
            assert end.text == text
            assert end.is_empty is (end.error is None and not text)
            assert end.failure == (each.stops if each.stops in {"length", "refusal"} and not is_whole else "")
            return
        given_reply(world, each)


@given(REPLIES)
def test_final_message_is_whole(said: list[Reply]) -> None:
    """Whatever the model's replies end with, and whatever was asked for."""
    only_whole_replies_complete(turns.take_reply, said)


def _bare(state: Any, stimulus: ModelAnswered) -> Decision:
    """Take every reply as whole, as releases before did."""
    return turns.take_reply(state, replace(stimulus, message=replace(stimulus.message, stop_reason="stop")))


def _forgetful(state: Any, stimulus: ModelAnswered) -> Decision:
    """Drop what was said before the cut."""
    decision = turns.take_reply(state, stimulus)
    decision.facts = [
        replace(fact, text=stimulus.message.text) if isinstance(fact, facts.RunFinished) else fact
        for fact in decision.facts
    ]
    return decision


def _accepting(state: Any, stimulus: ModelAnswered) -> Decision:
    """Take a cut reply where the model was to go on."""
    return turns.take_reply(state, replace(stimulus, on_length="accept"))


def _stubborn(state: Any, stimulus: ModelAnswered) -> Decision:
    """Go on after a refusal."""
    refused = stimulus.message.stop_reason == "refusal"
    return turns.take_reply(
        state,
        replace(stimulus, message=replace(stimulus.message, stop_reason="length"), on_length="continue")
        if refused
        else stimulus,
    )


@pytest.mark.parametrize("broken", [_bare, _forgetful, _accepting, _stubborn])
def test_property_of_final_messages_notices_a_broken_rule(broken: Answered) -> None:
    """Planted bugs: a cut reply completes, one loses its beginning, a refusal is gone on with."""

    def fails(said: list[Reply]) -> bool:
        try:
            only_whole_replies_complete(broken, said)
        except (AssertionError, ValueError):
            return True
        return False

    assert find(REPLIES, fails, settings=SEARCH)


def test_new_message_begins_a_new_text() -> None:
    """What was cut before it is no part of the answer to it."""
    world = opened()
    given_reply(world, Reply("half of ", "length", "continue"))
    world.hear("m1", "never mind", "steer")
    world.report()
    given_reply(world, Reply("all right", "stop", "fail"))
    assert [fact.text for fact in world.found(facts.RunFinished)] == ["all right"]


def test_typed_result_is_read_from_all_parts() -> None:
    """A value whose JSON was cut is whole once the model went on."""
    world = opened(result_schema=RESULT_SCHEMA)
    given_reply(world, Reply('{"n"', "length", "continue"))
    given_reply(world, Reply(": 3}", "stop", "continue"))
    assert [fact.result for fact in world.found(facts.RunFinished)] == [{"n": 3}]


def test_model_that_is_always_cut_is_stopped_by_max_turns() -> None:
    """Going on is a turn like any other."""
    world = opened(max_turns=3)
    for _ in range(3):
        given_reply(world, Reply("more ", "length", "continue"))
    (end,) = world.found(facts.RunFinished)
    assert end.error is not None
    assert "max_turns" in end.error


BLANKS: dict[str, tuple[ReplyContent, ...]] = {
    "nothing": (),
    "blanks": (TextContent(" \n\t\u3000"),),
    "invisible": (TextContent("\u200b\ufeff"),),
    "thoughts": (ThinkingContent("I could say something."),),
    "several": (TextContent(""), TextContent(" ")),
}


def say_nothing(world: World, blank: tuple[ReplyContent, ...] = ()) -> None:
    """Let the model reply with nothing that can be seen, and lose the host afterwards."""
    world.report()
    world.give(ModelAnswered(world.at_ms, world.live.turn, AssistantMessage(blank)))
    world.report()
    world.lose_host()


@pytest.mark.covers("LIM14")
@pytest.mark.parametrize("after_work", [False, True])
@pytest.mark.parametrize("blank", BLANKS.values(), ids=BLANKS)
def test_model_that_says_nothing_is_asked_once_more(
    blank: tuple[ReplyContent, ...], *, after_work: bool
) -> None:
    """Then the run completes, and its summary says so; a message begins a new count, a new host does not."""
    world = opened()
    if after_work:
        world.runs(call("look"))
        world.finish("1.0")
    for _ in range(2):
        turn = world.live.turn
        say_nothing(world, blank)
        assert world.live.asking
        assert world.live.transcript[-1].text.startswith("Your last reply was empty")
        say_nothing(world, blank)
        assert (world.live.turn, world.live.asking) == (turn + 1, False)
        assert world.live.offer == ("completed", "(the model said nothing)", None)
        world.hear(f"again {turn}", "go on")
        world.report()


def test_answer_to_the_second_question_is_the_final_message() -> None:
    """Calls may come before it; an empty reply after them is taken."""
    world = opened()
    say_nothing(world)
    given_reply(world, Reply("all right", "stop", "fail"))
    assert world.live.offer == ("completed", "all right", None)
    world.hear("m1", "more")
    say_nothing(world)
    world.runs(call("look"))
    world.finish(f"{world.live.turn}.0")
    say_nothing(world)
    assert world.live.offer == ("completed", "(the model said nothing)", None)


def test_empty_reply_in_the_last_turn_is_taken() -> None:
    """Asking again would end the run failed."""
    world = opened(max_turns=1)
    say_nothing(world)
    assert world.live.offer == ("completed", "(the model said nothing)", None)
