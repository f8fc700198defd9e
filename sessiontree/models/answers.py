"""Making replies: the answer of a script or function becomes the message that a session takes in."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias, get_args

from sessiontree.contracts.errors import (
    ContextOverflow,
    ModelError,
    ModelKeyRefused,
    SessionTreeError,
    describe_error,
)
from sessiontree.contracts.facts.session_facts import FailureCause
from sessiontree.contracts.facts.stimuli import ModelFailed
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.values.jsonable import MAX_INT_BITS, JsonValue, dump_json, to_json_value
from sessiontree.contracts.values.messages import (
    NOTHING_USED,
    UNFINISHED,
    AssistantMessage,
    ProviderForm,
    ReplyContent,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass

Answer: TypeAlias = "str | ToolCall | list[str | ToolCall] | AssistantMessage"
"""Text, a call, several of both in order, or a whole message."""

_PLAIN = frozenset({str, int, bool, type(None)})
_STOP_REASONS = frozenset(get_args(StopReason))
_get_counts = attrgetter(
    "input_tokens",
    "output_tokens",
    "turns",
    "tool_calls",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "unpriced_tokens",
)


def script_call(name: str, /, **arguments: JsonValue) -> ToolCall:
    """Return a call of the tool ``name`` with ``arguments``; it gets its id as part of a reply."""
    return ToolCall("", name, arguments)


def to_message(answer: object, turn: int) -> AssistantMessage:
    """Return the message of an answer; every call has an id and arguments with a JSON form.

    Raises:
        ModelError: the answer has no known shape.
    """
    if isinstance(answer, AssistantMessage):
        blocks: tuple[object, ...] = answer.content if isinstance(answer.content, list | tuple) else (None,)
        usage = answer.usage
    elif isinstance(answer, list | tuple):
        blocks = tuple(answer)
        usage = NOTHING_USED
    else:
        blocks = (answer,)
        usage = NOTHING_USED
    content: list[ReplyContent] = []
    has_calls = False
    for index, block in enumerate(blocks):
        if isinstance(block, ToolCall):
            has_calls = True
            content.append(_clean(block, turn, index))
        elif isinstance(block, TextContent | ThinkingContent) and _is_whole(block):
            content.append(block)
        elif isinstance(block, str):
            content.append(TextContent(block))
        else:
            raise ModelError(
                f"a model replied {type(block).__name__}; give text, a ToolCall or a list of them"
            )
    stop_reason: StopReason = "toolUse" if has_calls else "stop"
    if isinstance(answer, AssistantMessage) and answer.stop_reason in _STOP_REASONS - {"stop"}:
        stop_reason = answer.stop_reason
    reply = AssistantMessage(tuple(content), stop_reason, usage if _is_sound(usage) else NOTHING_USED)
    if not isinstance(answer, AssistantMessage):
        return reply
    reply = replace(reply, **_dump_members(answer, stop_reason))
    return reply if reply.content == answer.content else replace(reply, replay=None)


def _dump_members(answer: AssistantMessage, stop_reason: StopReason) -> dict[str, Any]:
    """Return the members of a message other than its content, as far as they can be serialised."""
    has_replay = stop_reason not in UNFINISHED and _is_replay(answer.replay)
    return {
        "model": answer.model if type(answer.model) is str else "",
        "stop_detail": answer.stop_detail if type(answer.stop_detail) is str else "",
        "replay": answer.replay if has_replay else None,
    }


def check_reply(message: object, turn: int) -> AssistantMessage:
    """Return a model's reply in a form that a session can take in; a valid one is returned unchanged.

    Raises:
        ModelError: it is not a reply.
    """
    if (
        # The exact type and not `isinstance`: a subclass of a program may have members that no journal can
        # hold.
        type(message) is AssistantMessage
        and type(message.content) is tuple
        and all(map(_is_whole, message.content))
        and message.stop_reason in _STOP_REASONS
        and type(message.timestamp) is int
        and (message.usage is NOTHING_USED or _is_sound(message.usage))
        and type(message.model) is str
        and type(message.stop_detail) is str
        and (message.replay is None or (message.stop_reason not in UNFINISHED and _is_replay(message.replay)))
    ):
        return message
    return to_message(message, turn)


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """Why a model did not reply."""

    reason: str
    said: str = ""
    """The text of the reply so far."""
    retryable: bool = False
    """Whether asking again may help."""
    retry_after_s: float | None = None
    """Seconds to wait before asking again; None = the provider does not say."""
    overflow: bool = False
    """Whether the question is longer than the model's context."""
    cause: FailureCause = ""
    account: str = ""
    """The session whose budget the cause names."""
    raised: str = ""
    """Where the model's own code raised it: lines of ``path:line in function: source``."""

    def at(self, at_ms: int, turn: int) -> ModelFailed:
        """Return it as the stimulus of the session that asked at a turn."""
        why = (self.reason, self.said, self.retryable, self.retry_after_s, self.overflow)
        return ModelFailed(at_ms, turn, *why, self.cause, self.account, self.raised)


def make_failure(error: BaseException, session: str, said: str = "") -> ModelFailure:
    """Return the failure that a session gets for a failed model call.

    Args:
        error: What the model raised. Its author gets the traceback, unless it is an error of this package.
        session: The session that asked.
        said: What the model had said before.
    """
    # Something inside the model was cancelled, not the session; it must not look as if the session had been
    # ended.
    if isinstance(error, asyncio.CancelledError):
        return ModelFailure("something it waited for was cancelled", said)
    message = getattr(error, "message", None)
    if not isinstance(error, ModelError) or not isinstance(message, str):
        text = describe_error(error)
        if isinstance(error, SessionTreeError):
            return ModelFailure(text, said)
        frames = report_error(f"a model, asked by session {session},", error, text)
        return ModelFailure(text, said, raised="\n".join(frames))
    # A refused key fails every session alike, so it counts as the provider's failure although it can't be
    # repeated.
    concerns_all = isinstance(error, ModelKeyRefused)
    if concerns_all:  # whoever reads of it knows the kind
        message = f"{ModelKeyRefused.__name__}: {message}"
    # Programs may define subclasses of it in any way.
    retryable = getattr(error, "retryable", False) is True
    after_s: Any = getattr(error, "retry_after_s", None)
    is_time = type(after_s) in {int, float} and after_s >= 0
    overflow = isinstance(error, ContextOverflow)
    cause: FailureCause = "provider" if retryable or concerns_all else ""
    wait_s = after_s if is_time else None
    raised = error.raised if isinstance(error.raised, str) else ""
    return ModelFailure(message, said, retryable, wait_s, overflow, cause, raised=raised)


def _is_whole(block: object) -> bool:
    """Whether a block can be taken in unchanged."""
    if type(block) is TextContent:
        return type(block.text) is str
    if type(block) is ThinkingContent:
        return type(block.thinking) is str and type(block.signature) is str
    return (
        type(block) is ToolCall
        and type(block.name) is str
        and type(block.id) is str
        and block.id != ""
        and (block.unread is None or type(block.unread) is str)
        and _is_plain(block.arguments)
    )


def _is_sound(usage: object) -> bool:
    """Whether a usage can be serialised; an invalid usage of a provider counts as zero."""
    return (
        isinstance(usage, Usage)
        and set(map(type, _get_counts(usage))) == {int}
        and type(usage.cost_usd) in {int, float}
        and math.isfinite(usage.cost_usd)
    )


def _is_replay(replay: object) -> bool:
    """Whether a replay can be serialised."""
    if type(replay) is not ProviderForm or type(replay.version) is not int:
        return False
    if type(replay.provider) is not str or type(replay.system) is not str:
        return False
    try:
        dump_json(replay.payload)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_plain(arguments: Mapping[str, JsonValue]) -> bool:
    """Whether arguments certainly have a JSON form; False if they need a full check."""
    if type(arguments) is not dict:
        return False
    for key, value in arguments.items():
        if type(key) is not str:
            return False
        # Python refuses to write a longer number in decimal, so it has no JSON form.
        if type(value) is int and value.bit_length() > MAX_INT_BITS:
            return False
        if type(value) not in _PLAIN and not (type(value) is float and math.isfinite(value)):
            return False
    return True


def _clean(block: ToolCall, turn: int, index: int) -> ToolCall:
    arguments = block.arguments
    if not isinstance(block.name, str):
        raise ModelError(f"a model called a tool by {block.name!r}; a name is text")
    if not isinstance(arguments, Mapping):
        raise ModelError(f"a model called {block.name} with {type(arguments).__name__} instead of an object")
    if not _is_plain(arguments):
        try:
            cleaned = to_json_value(arguments)
        except RecursionError:
            raise ModelError(f"a model called {block.name} with arguments nested too deeply") from None
        arguments = cleaned if isinstance(cleaned, dict) else {}
    if _is_whole(block) and arguments is block.arguments:
        return block
    call_id = str(block.id) if block.id else f"call_{turn}_{index}"
    return ToolCall(call_id, block.name, arguments, None if block.unread is None else str(block.unread))
