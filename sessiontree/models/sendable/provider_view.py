"""A conversation in the form that its model's provider accepts: ids, names, and one result for each call.

The journal keeps its own ids and names; only what a model sees changes. A provider refuses a conversation in
which a call has no result, or two. The runtime's own transcripts always pair them. A conversation from
elsewhere, or one whose results were changed on the way, may not.
Sources, read in autumn 2026: Mistral's message "Tool call id was … but must be a-z, A-Z, 0-9, with a length
of 9"; Anthropic's pattern ``^[a-zA-Z0-9_-]+$`` of ``tool_use.id``, and 64 characters as its other names;
OpenAI's message "string too long. Expected a string with maximum length 40". Gemini has no rule.
Names: OpenAI's and Anthropic's message "String does not match pattern … ``^[a-zA-Z0-9_-]+$``", and 64
characters, the smallest of their limits; Gemini's must begin with a letter or an underscore.
Seed 000, section 4: ids pass unchanged wherever the provider accepts them.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    ReplyContent,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.whole_text import repair_text
from sessiontree.models.sendable.sendable_message import repair_message

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class IdGrammar:
    """The ids that one provider accepts."""

    pattern: re.Pattern[str]
    make: Callable[[bytes], str]
    """Makes a fitting id from a digest of 32 bytes."""

    def fits(self, call_id: str) -> bool:
        """Whether the provider accepts an id unchanged."""
        return self.pattern.fullmatch(call_id) is not None


def _spell_digest(digest: bytes) -> str:
    number = int.from_bytes(digest, "big")
    made = ""
    for _ in range(9):
        number, rest = divmod(number, len(_LETTERS))
        made += _LETTERS[rest]
    return made


def _make_call_id(digest: bytes) -> str:
    return f"call_{digest[:16].hex()}"


_LONG = IdGrammar(re.compile(r"[^\ud800-\udfff]{1,40}"), _make_call_id)
GRAMMARS: Final = {
    "anthropic": IdGrammar(re.compile(r"[a-zA-Z0-9_-]{1,64}"), _make_call_id),
    "mistral": IdGrammar(re.compile(r"[a-zA-Z0-9]{9}"), _spell_digest),
    "openai": _LONG,
    "openai-strict": _LONG,
}
"""By the name of a schema dialect; other providers accept any id."""
NAMES: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names that every provider accepts, except those below; also used for unknown providers."""
_GEMINI: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
NAMES_OF: Final = {"gemini": _GEMINI, "gemini-openapi": _GEMINI}
"""By the name of a schema dialect."""
_NAME_PARTS: Final = re.compile(r"[a-zA-Z0-9]+")
_MAX_KEPT: Final = 40
_DIGITS: Final = 12


class CallNames:
    """The names of one conversation's calls, in both forms. Grows with its names.

    A model may call a tool by any name, and a provider refuses the whole conversation if it refuses one name.
    A fitting name is shown unchanged, any other name as its fitting characters and a digest: one form
    for each name, the same everywhere, and after a restart.
    """

    __slots__ = ("_pattern", "_shown")

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._shown: dict[str, str] = {}

    def shown(self, own: str) -> str:
        """Return the provider's form of a name."""
        known = self._shown.get(own)
        if known is not None:
            return known
        form = own
        attempt = 0
        while form in self._shown.values() or self._pattern.fullmatch(form) is None:
            attempt += 1
            words = f"{attempt}.{own}"
            digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()
            kept = "_".join(_NAME_PARTS.findall(own))[:_MAX_KEPT]
            form = f"{kept if kept[:1].isalpha() else f'tool_{kept}'}_{digest[:_DIGITS]}"
        self._shown[own] = form
        return form


class CallIds:
    """The ids of one conversation's calls, in both forms. Grows with its calls.

    A fitting id that is not in use is shown unchanged, any other as a digest of itself. A provider may
    give the same id to calls of two replies, and refuse a conversation that has it twice, so every call has
    an id of its own here. The same calls in the same order give the same ids, so ids are stable from turn to
    turn and after a restart. Ids that were already converted do not change when they are converted again.
    """

    __slots__ = ("_grammar", "_own", "_times")

    def __init__(self, grammar: IdGrammar) -> None:
        self._grammar = grammar
        self._times: dict[str, int] = {}
        self._own: dict[str, str] = {}

    def shown(self, own: str) -> str:
        """Return the provider's form of the id of a conversation's next call."""
        times = self._times[own] = self._times.get(own, 0) + 1
        form = own
        attempt = 0
        # A digest can be an id that the conversation already has, since a model may give any id; so it is
        # tried again.
        while form in self._own or not self._grammar.fits(form):
            attempt += 1
            # How often the id was used is part of it: the same id in two replies must give two forms.
            words = f"{times}.{attempt}.{own}"
            form = self._grammar.make(hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest())
        self._own[form] = own
        return form

    def own(self, shown: str) -> str:
        """Return the id behind a shown one; an id that was never shown is returned as it is."""
        return self._own.get(shown, shown)


class EncodableIds:
    """The ids of one conversation's calls for a provider that accepts any text that can be encoded.

    Grows with the ids that are replaced.
    """

    __slots__ = ("_own",)

    def __init__(self) -> None:
        self._own: dict[str, str] = {}

    def shown(self, own: str) -> str:
        """Return an id as it can be sent."""
        if repair_text(own) is own:
            return own
        form = _make_call_id(hashlib.sha256(own.encode("utf-8", "surrogatepass")).digest())
        self._own[form] = own
        return form

    def own(self, shown: str) -> str:
        """Return the id behind a shown one; an id that was not replaced is returned as it is."""
        return self._own.get(shown, shown)


NO_RESULT: Final = "No result provided"
"""The result of a call that has none; the seeds' source uses the same text."""


@dataclass(frozen=True, slots=True)
class Repairs:
    """How a conversation was changed to pair calls and results."""

    missing: int = 0
    dropped: int = 0
    moved: int = 0


NO_REPAIRS: Final = Repairs()


@dataclass(slots=True)
class _PairedCall:
    """A call of the conversation, and its result once that is found."""

    call: ToolCall
    reply: int
    """Index of its reply among the messages."""
    result: ToolResultMessage | None = None
    at: int = 0
    """Index of its result."""
    behind: int = 0
    """Index of the nearest message before its result that is not a result itself."""


def pair_calls(messages: Sequence[Message]) -> tuple[Sequence[Message], Repairs]:
    """Return the conversation with exactly one result after every call, in the order of the calls.

    A result belongs to the nearest reply before it with an unanswered call of its id, and there to the first
    such call. Results without a call and second results are left out; a call without a result gets an error.

    Returns:
        The messages, the same object if nothing is wrong, and what was changed. Linear in the messages.
    """
    asked: list[_PairedCall] = []
    open_calls: dict[str, list[list[_PairedCall]]] = {}
    dropped = 0
    behind = -1
    for at, message in enumerate(messages):
        if not isinstance(message, ToolResultMessage):
            behind = at
            if isinstance(message, AssistantMessage):
                asked.extend(_open_calls(message, at, open_calls))
            continue
        groups = open_calls.get(message.tool_call_id)
        if not groups:
            dropped += 1
            continue
        # The nearest reply first, because a provider may use an id again after it was answered.
        found = groups[-1].pop()
        if not groups[-1]:
            groups.pop()
        found.result, found.at, found.behind = message, at, behind
    missing = sum(found.result is None for found in asked)
    moved = _count_moved(asked)
    if not missing and not dropped and not moved:
        return messages, NO_REPAIRS
    return _reorder(messages, asked), Repairs(missing, dropped, moved)


def _open_calls(
    message: AssistantMessage, at: int, open_calls: dict[str, list[list[_PairedCall]]]
) -> list[_PairedCall]:
    """Return a reply's calls in order, and register them by id as open, the first of an id on top."""
    asked = [_PairedCall(call, at) for call in message.tool_calls]
    mine: dict[str, list[_PairedCall]] = {}
    for each in reversed(asked):
        mine.setdefault(each.call.id, []).append(each)
    for call_id, group in mine.items():
        open_calls.setdefault(call_id, []).append(group)
    return asked


def _count_moved(asked: list[_PairedCall]) -> int:
    """Return how many results do not directly follow their reply, in the order of its calls."""
    moved = 0
    reply, last = -1, -1
    for each in asked:
        if each.reply != reply:
            reply, last = each.reply, -1
        if each.result is None:
            continue
        if each.behind != reply or each.at < last:
            moved += 1
        else:
            last = each.at
    return moved


def _reorder(messages: Sequence[Message], asked: list[_PairedCall]) -> list[Message]:
    ordered: list[Message] = []
    results = iter(asked)
    for message in messages:
        if isinstance(message, ToolResultMessage):
            continue
        ordered.append(message)
        if isinstance(message, AssistantMessage):
            for _ in message.tool_calls:
                each = next(results)
                ordered.append(each.result or _make_missing_result(each.call, message.timestamp))
    return ordered


def _make_missing_result(call: ToolCall, at_ms: int) -> ToolResultMessage:
    return ToolResultMessage(call.id, call.name, (TextContent(NO_RESULT),), is_error=True, timestamp=at_ms)


class ProviderView:
    """One conversation, in its own form and as it is shown. Adding takes time linear in what is added.

    Args:
        grammar: The ids that its provider accepts; None = any.
        names: The names of tools that it accepts.
    """

    __slots__ = ("_given", "_grammar", "_ids", "_names", "_pattern", "shown")

    def __init__(self, grammar: IdGrammar | None, names: re.Pattern[str] = NAMES) -> None:
        self._grammar = grammar
        self._pattern = names
        self._given: list[Message] = []
        self._ids: CallIds | EncodableIds
        self._names: CallNames
        self.shown: list[Message]
        """What the model sees; grows in place, read only."""
        self._begin()

    def __len__(self) -> int:
        """Return how many messages were added."""
        return len(self._given)

    def take(self, base: int, messages: Sequence[Message]) -> Repairs:
        """Add messages after the first ``base`` given ones.

        Returns:
            What was repaired in the whole conversation; nothing if the new messages are in order.
        """
        overtaken = base < len(self._given)
        # The conversation goes on from an earlier message than it did before; what came after that no longer
        # counts.
        if overtaken:
            del self._given[base:]
        self._given.extend(messages)
        sound, repairs = pair_calls(messages)
        if overtaken or repairs is not NO_REPAIRS:
            # Rare: a new result may belong to a call that was shown as unanswered before.
            sound, repairs = pair_calls(self._given)
            self._begin()
        self._show(sound)
        return repairs

    def own(self, reply: AssistantMessage) -> AssistantMessage:
        """Return a reply with the conversation's own ids, if any of its ids were shown differently.

        Names do not change: they are what the model said.
        """
        return _rewrite_calls(reply, [(self._ids.own(call.id), call.name) for call in reply.tool_calls])

    def _begin(self) -> None:
        self._ids = EncodableIds() if self._grammar is None else CallIds(self._grammar)
        self._names = CallNames(self._pattern)
        self.shown = []

    def _show(self, messages: Sequence[Message]) -> None:
        """Add paired messages in shown form: results follow their calls and take their ids in turn."""
        ids, names = self._ids, self._names
        open_calls: deque[tuple[str, str]] = deque()
        for message in messages:
            if isinstance(message, AssistantMessage):
                calls = [(ids.shown(call.id), names.shown(call.name)) for call in message.tool_calls]
                open_calls.extend(calls)
                self.shown.append(repair_message(_rewrite_calls(message, calls)))
            elif isinstance(message, ToolResultMessage):
                call_id, name = open_calls.popleft()
                is_so = (call_id, name) == (message.tool_call_id, message.tool_name)
                sent = message if is_so else replace(message, tool_call_id=call_id, tool_name=name)
                self.shown.append(repair_message(sent))
            else:
                self.shown.append(repair_message(message))


def _rewrite_calls(reply: AssistantMessage, calls: Sequence[tuple[str, str]]) -> AssistantMessage:
    """Return a reply whose calls have these ids and names, in order; the same object if nothing changes.

    A changed reply has no replay, because the provider's form contains other names for the calls.
    """
    if all((call.id, call.name) == pair for call, pair in zip(reply.tool_calls, calls, strict=True)):
        return reply
    fresh = iter(calls)
    content: list[ReplyContent] = [
        _rename(block, *next(fresh)) if isinstance(block, ToolCall) else block for block in reply.content
    ]
    return replace(reply, content=tuple(content), replay=None)


def _rename(call: ToolCall, call_id: str, name: str) -> ToolCall:
    return replace(call, id=call_id, name=name)
