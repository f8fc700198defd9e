"""What a model is shown of a conversation that grows: paired, ids in form, at the cost of what is new."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.values.messages import AssistantMessage, Message, ProviderForm, ToolResultMessage
from sessiontree.models.sendable.provider_view import GRAMMARS, NO_REPAIRS, ProviderView, Repairs, pair_calls
from tests.unit.models.conversation_strategies import is_paired, messages, reply, result, sound, turns, user

providers = pytest.mark.parametrize("provider", [None, "mistral", "anthropic"])


def grown(provider: str | None, parts: list[list[Message]]) -> ProviderView:
    """Return a conversation that came in these parts."""
    told = ProviderView(GRAMMARS[provider] if provider else None)
    for part in parts:
        told.take(len(told), part)
    return told


def call_ids(conversation: list[Message]) -> list[str]:
    """Return the ids of all calls, in order."""
    return [call.id for m in conversation if isinstance(m, AssistantMessage) for call in m.tool_calls]


@pytest.mark.slow
@providers
@given(parts=st.lists(messages(), max_size=5))
def test_in_parts_or_as_a_whole_the_model_is_shown_the_same(
    provider: str | None, parts: list[list[Message]]
) -> None:
    """Whatever came from wherever: repaired over the parts' borders, single ids, nothing given is changed."""
    whole = [message for part in parts for message in part]
    told = grown(provider, parts)
    assert told.shown == grown(provider, [whole]).shown
    assert is_paired(told.shown)
    assert len(told) == len(whole)
    if provider is None:
        plain = all(own.isprintable() for own in call_ids(whole))
        assert not plain or told.shown == list(pair_calls(whole)[0])
    else:
        assert len(set(call_ids(told.shown))) == len(call_ids(told.shown))


@providers
@given(conversation=turns(), data=st.data())
def test_turn_by_turn_only_what_is_new_is_looked_at(
    provider: str | None, conversation: list[list[Message]], data: st.DataObject
) -> None:
    """The beginning keeps its very objects; a turn asked again shows the same; a reply's ids lead back."""
    told = ProviderView(GRAMMARS[provider] if provider else None)
    for turn in conversation:
        before = list(told.shown)
        assert told.take(len(told), turn) is NO_REPAIRS
        assert all(old is new for old, new in zip(before, told.shown, strict=False))
        own = [call.id for m in turn if isinstance(m, AssistantMessage) for call in m.tool_calls]
        shown = call_ids(told.shown[len(before) :])
        assert [call.id for call in told.own(reply(*shown)).tool_calls] == own
    after = list(told.shown)
    base = data.draw(st.integers(0, len(conversation)))
    told.take(
        sum(map(len, conversation[:base])), [message for turn in conversation[base:] for message in turn]
    )
    assert told.shown == after


def test_result_that_comes_late_takes_the_place_of_the_made_up_one() -> None:
    """The one case in which what was shown before is shown differently; reported as counts of the whole."""
    told = ProviderView(GRAMMARS["mistral"])
    assert told.take(0, [reply("call_1_0"), user("and?")]) == Repairs(missing=1)
    assert told.take(2, [result("call_1_0", "at last"), user("so?")]) == Repairs(moved=1)
    (shown,) = [message for message in told.shown if isinstance(message, ToolResultMessage)]
    assert shown.text == "at last"
    assert [shown.tool_call_id] == call_ids(told.shown)
    assert told.take(4, [user("well")]) is NO_REPAIRS


def test_conversation_of_many_turns_makes_each_id_once() -> None:
    """Whatever a turn costs, it costs for its own calls alone."""
    made: list[bytes] = []
    rule = GRAMMARS["mistral"]

    def make(digest: bytes) -> str:
        made.append(digest)
        return rule.make(digest)

    told = ProviderView(replace(rule, make=make))
    for turn in range(200):
        told.take(len(told), [user("go"), *sound(f"call_{turn}_0", f"call_{turn}_1")])
    assert len(made) == len(call_ids(told.shown)) == 400


def test_without_a_rule_ids_pass_untouched() -> None:
    """Also repeated ones, and the messages are the very objects."""
    conversation: list[Message] = [user("go"), reply("x"), result("x"), reply("x"), result("x")]
    told = grown(None, [conversation])
    assert all(old is new for old, new in zip(conversation, told.shown, strict=True))
    answer = reply("x", "é")
    assert told.own(answer) is answer


def test_replay_of_a_reply_that_is_shown_otherwise_is_dropped() -> None:
    """Its provider's form names the calls by the ids they had; where they are shown so, it is shown too."""
    told = ProviderView(GRAMMARS["mistral"])
    replay = ProviderForm(1, "mistral", "mistral", {"id": "r1"})
    fits, other = (replace(reply(name), replay=replay) for name in ("abcdefghi", "call_1_0"))
    told.take(0, [fits, result("abcdefghi", "one"), other, result("call_1_0", "two")])
    shown = [message.replay for message in told.shown if isinstance(message, AssistantMessage)]
    assert shown == [replay, None]
