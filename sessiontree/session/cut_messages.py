"""Rules for showing messages cut, where a conversation is too long and no summary can help.

First, images that the model has seen become a line of text. If no older part is left to summarise, the
longest results that the model has not seen are cut, then the longest messages of people and parents, then the
longest replies. Each cut takes a third off the conversation and says how long the text was. Results of one
reply share the room that the last question left. The journal keeps everything as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.tools.agent import CHARS_PER_TOKEN
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ReplyContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    measure_text,
)
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.contracts.values.untrusted import BEGIN, END
from sessiontree.session.state import SessionState

LEAST_CHARS: Final = 400
"""A message is not cut to less than this, in characters."""
CUT_SHARE: Final = 1 / 3
"""Share of the conversation that one cut takes off."""
LEAST_ROOM_SHARE: Final = 0.1
"""Share of the model's context that the results of one reply may use in any case."""
_UNKNOWN_SHARE: Final = 0.5
"""Share of the context that a question counts as if its model reports no tokens."""
_MARK_CHARS: Final = 80
_MARK: Final = re.compile(rf'<<<({BEGIN}|{END}) id="([0-9a-f]+)"')
_IMAGE_LINE: Final = "(an image was here; it is left out, because the conversation is too long for the model)"


def compute_result_room(context_tokens: int, used_tokens: int, full_share: float) -> int:
    """Return how many characters the results of one reply may have together."""
    used = used_tokens or _UNKNOWN_SHARE * context_tokens
    left = max(full_share * context_tokens - used, LEAST_ROOM_SHARE * context_tokens)
    return int(left * CHARS_PER_TOKEN)


def share_room(state: SessionState, full_share: float) -> facts.MessagesShortened | None:
    """Return how the results of the last reply are cut so that they fit together; None = they fit.

    Args:
        state: The session, whose last reply had several calls if its results share anything.
        full_share: Share of the model's context that one question may use.
    """
    if state.shared_context is None:
        return None
    first = _find_unseen(state.transcript)
    reply = state.transcript[first - 1] if first else None
    used = reply.usage.tokens if isinstance(reply, AssistantMessage) else 0
    room = compute_result_room(state.shared_context, used, full_share)
    sizes = {at: measure_text(state.transcript[at]) for at in range(first, len(state.transcript))}
    results = {at: size for at, size in sizes.items() if isinstance(state.transcript[at], ToolResultMessage)}
    return _shorten_longest(state.transcript, results, sum(results.values()) - room)


def leave_out_seen_images(state: SessionState) -> facts.MessagesShortened | None:
    """Return that images which the model has seen become lines of text; None = no message has any."""
    seen = range(_find_unseen(state.transcript))
    images = tuple([at for at in seen if _has_images(state.transcript[at])])
    return facts.MessagesShortened(images=images) if images else None


def cut_longest(state: SessionState) -> facts.MessagesShortened | None:
    """Return which messages are cut so that the conversation is shorter; None = nothing is left to cut."""
    transcript = state.transcript
    first = _find_unseen(transcript)
    images = [at for at in range(first, len(transcript)) if _has_images(transcript[at])]
    if images and "image" in state.overflow.lower():
        return _drop_older_images(images)
    sizes = [measure_text(message) for message in transcript]
    need = max(1, int(sum(sizes) * CUT_SHARE))
    kinds: tuple[Callable[[int, Message], bool], ...] = (
        lambda at, message: at >= first and isinstance(message, ToolResultMessage),
        lambda at, message: isinstance(message, UserMessage | ToolResultMessage),
        lambda at, message: True,
    )
    for of_kind in kinds:
        chosen = {at: sizes[at] for at, message in enumerate(transcript) if of_kind(at, message)}
        if sum(max(0, size - LEAST_CHARS) for size in chosen.values()) >= need or of_kind is kinds[-1]:
            cut = _shorten_longest(transcript, chosen, need)
            if cut is not None:
                return cut
    return _drop_older_images(images) if images else None


def shorten_messages(transcript: Sequence[Message], fact: facts.MessagesShortened) -> list[Message]:
    """Return the conversation with messages cut."""
    changed = list(transcript)
    for at in fact.images:
        changed[at] = _remove_images(changed[at])
    for at, chars in zip(fact.at, fact.chars, strict=True):
        changed[at] = cut_message(changed[at], chars)
    return changed


def cut_message(message: Message, max_chars: int) -> Message:
    """Return a message with text of about ``max_chars`` characters; cut texts say how long they were."""
    room = max_chars
    content: list[TextContent | ImageContent] = []
    if isinstance(message, AssistantMessage):
        # The provider's own form of the reply would bring the whole text back.
        return replace(message, content=_cut_reply(message.content, max_chars), replay=None)
    for block in message.content:
        if isinstance(block, ImageContent):
            content.append(block)
        elif room > 0:
            content.append(TextContent(_cut(block.text, room)))
            room -= len(block.text)
    return replace(message, content=tuple(content))


def _cut_reply(blocks: Sequence[ReplyContent], max_chars: int) -> tuple[ReplyContent, ...]:
    room = max_chars
    content: list[ReplyContent] = []
    for block in blocks:
        if isinstance(block, TextContent) and room > 0:
            content.append(TextContent(_cut(block.text, room)))
            room -= len(block.text)
        elif isinstance(block, ToolCall):
            cut = _cut_call(block, max(room, LEAST_CHARS // 4))
            content.append(cut)
            room -= len(dump_json(cut.arguments))
        elif not isinstance(block, TextContent):
            content.append(block)
    return tuple(content)


def _cut_call(call: ToolCall, max_chars: int) -> ToolCall:
    """Return a call whose arguments are cut: its long texts, or all of them if that is not enough."""
    if call.unread is not None:
        return replace(call, unread=cut_text(call.unread, max_chars))
    size = len(dump_json(call.arguments))
    if size <= max_chars:
        return call
    arguments: Mapping[str, JsonValue] = {
        name: cut_text(value, max_chars // 4) if isinstance(value, str) else value
        for name, value in call.arguments.items()
    }
    if len(dump_json(arguments)) > max_chars:
        arguments = {"cut": f"{size} characters of arguments are not shown"}
    return replace(call, arguments=arguments)


def _cut(text: str, max_chars: int) -> str:
    """Return a text cut; text from outside keeps the mark of its end."""
    if len(text) <= max_chars:
        return text
    cut = cut_text(text, max(1, max_chars - _MARK_CHARS) if BEGIN in text else max_chars)
    marks = _MARK.findall(cut)
    if marks and marks[-1][0] == BEGIN:
        cut += f'\n<<<{END} id="{marks[-1][1]}">>>'
    return cut


def _shorten_longest(
    transcript: Sequence[Message], sizes: Mapping[int, int], need: int
) -> facts.MessagesShortened | None:
    """Return a cut of the longest of these messages that takes off ``need`` characters, if it can."""
    if need <= 0 or max(sizes.values(), default=0) <= LEAST_CHARS:
        return None
    low, high = LEAST_CHARS, max(sizes.values())
    while low < high:  # the longest length at which enough is cut
        level = (low + high + 1) // 2
        if sum(max(0, size - level) for size in sizes.values()) >= need:
            low = level
        else:
            high = level - 1
    at = tuple([each for each, size in sizes.items() if size > low])
    # The notes that say how much was cut have a length, too. A cut that gains nothing would be made forever.
    before = sum(sizes[each] for each in at)
    if sum(measure_text(cut_message(transcript[each], low)) for each in at) >= before:
        return None
    return facts.MessagesShortened(at, tuple([low] * len(at)))


def _find_unseen(transcript: Sequence[Message]) -> int:
    """Return the index after the last reply: the model has not replied to what is there."""
    for at in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[at], AssistantMessage):
            return at + 1
    return 0


def _has_images(message: Message) -> bool:
    return any(isinstance(block, ImageContent) for block in message.content)


def _drop_older_images(images: Sequence[int]) -> facts.MessagesShortened:
    """Return that the older half of these messages, at least one, loses its images."""
    return facts.MessagesShortened(images=tuple(images[: (len(images) + 1) // 2]))


def _remove_images(message: Message) -> Message:
    if isinstance(message, AssistantMessage):
        return message
    content = [
        TextContent(_IMAGE_LINE) if isinstance(block, ImageContent) else block for block in message.content
    ]
    return replace(message, content=tuple(content))
