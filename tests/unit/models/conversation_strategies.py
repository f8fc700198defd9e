"""Conversations that came from anywhere: calls and results in any order, ids of any form and repeated."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

IDS = ["c1", "c2", "abcdefghi", "call_1_0", "", "x" * 80, "é|.", "\udce9"]
ids = st.sampled_from(IDS) | st.text(st.characters(exclude_categories=[]), max_size=12)


def user(text: str) -> UserMessage:
    """Return something a person said."""
    return UserMessage((TextContent(text),), 1)


def reply(*call_ids: str) -> AssistantMessage:
    """Return a reply with calls of these ids, or with a word."""
    calls = tuple(ToolCall(call_id, "read", {"n": number}) for number, call_id in enumerate(call_ids))
    return AssistantMessage(calls or (TextContent("done"),), "toolUse" if calls else "stop")


def result(call_id: str, text: str = "here") -> ToolResultMessage:
    """Return the result of a call."""
    return ToolResultMessage(call_id, "read", (TextContent(text),), {"shown": text})


def sound(*call_ids: str) -> list[Message]:
    """Return a reply and its results."""
    return [reply(*call_ids), *(result(call_id, f"{n}") for n, call_id in enumerate(call_ids))]


def messages(call_ids: st.SearchStrategy[str] = ids) -> st.SearchStrategy[list[Message]]:
    """Return messages of every sort in any order."""
    few = st.sampled_from(["c1", "c2"]) | call_ids
    every: st.SearchStrategy[Message] = st.one_of(
        st.builds(user, st.text(max_size=3)),
        st.lists(few, max_size=3).map(lambda chosen: reply(*chosen)),
        st.builds(result, few, st.text(max_size=3)),
    )
    return st.lists(every, max_size=14)


def turns(call_ids: st.SearchStrategy[str] = ids) -> st.SearchStrategy[list[list[Message]]]:
    """Return sound conversations, turn by turn."""
    turn = st.lists(call_ids, max_size=3).map(lambda chosen: [user("go"), *sound(*chosen)])
    return st.lists(turn, max_size=6)


def is_paired(conversation: Sequence[Message]) -> bool:
    """Whether each reply is followed by one result for every call, in order, and no other result is there."""
    left = list(conversation)
    while left:
        message = left.pop(0)
        if isinstance(message, ToolResultMessage):
            return False
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                answer = left.pop(0) if left else None
                if not isinstance(answer, ToolResultMessage) or answer.tool_call_id != call.id:
                    return False
    return True
