"""Loops: a model that makes the same calls again and again, though they end alike each time.

A *round* is a reply with its results. Two rounds are the same if they make the same calls, each with the same
arguments, and each call ends alike; a call that a reply repeats counts once. A loop may have several rounds
that take turns. Only what the model sees counts, so that nothing has to be kept besides the conversation. A
message, a result that differs, or another call begins a new count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_line
from sessiontree.contracts.values.untrusted import remove_numbers

NOTICES_BEFORE: Final = 2
"""The model is warned this many rounds before the end."""
MAX_PERIOD: Final = 3
"""Maximum number of different rounds that take turns in a loop."""
MAX_SHOWN_CHARS: Final = 300
_get_name: Callable[[ToolCall], str] = attrgetter("name")
_BEGIN: Final = "You made the same call "
_ALIKE_BY_CODE: Final = frozenset({"permission_denied", "timeout"})
"""Codes of errors that are alike whatever else they say, such as who refused or how long it took."""
_Ended: TypeAlias = tuple[str, str, str]
"""Tool, arguments and how the call ended."""


@dataclass(frozen=True, slots=True)
class _Round:
    """A reply with its results."""

    index: int
    """Index of the reply in the conversation."""
    calls: tuple[ToolCall, ...]
    names: frozenset[str]
    results: Sequence[ToolResultMessage]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A loop at the end of a conversation."""

    count: int
    """How often its last call was made in a row."""
    call: ToolCall
    result: ToolResultMessage
    is_told: bool
    """Whether the model was warned of this loop."""

    @property
    def problem(self) -> str:
        """Why the run ends."""
        how = "was refused" if _get_code(self.result) == "permission_denied" else "returned the same"
        if how != "was refused" and self.result.is_error:
            how = "failed"
        last = cut_line(self.result.text, MAX_SHOWN_CHARS)
        return (
            f"the same call of {self.call.name} {how} {self.count} times in a row; last: {last}; change the "
            "task or the rights, or raise Limits(max_repeats=…)"
        )

    def build_advice(self, most: int) -> str:
        """Return the warning for the model."""
        return (
            f"{_BEGIN}of {self.call.name} {self.count} times in a row, and it ended alike each time. Do not "
            f"repeat it: try another way, or give your final answer and say what is missing. After {most} "
            "times your work ends."
        )


def find_repetition(transcript: Sequence[Message], most: int) -> Repetition | None:
    """Return the loop at the end of a conversation if its model is to be warned of it, or its run is to end.

    Args:
        transcript: The conversation; it ends with results.
        most: Number of repeats that ends a run; the model is warned :data:`NOTICES_BEFORE` before.
    """
    backwards = _iterate_rounds(transcript)
    earlier: list[_Round] = []
    for period in range(1, MAX_PERIOD + 1):
        while len(earlier) <= period:
            one = next(backwards, None)
            if one is None:
                return None
            earlier.append(one)
        # Most conversations end here: none of the rounds before makes the newest round's calls.
        newest, other = earlier[0], earlier[period]
        if newest.names != other.names or not _make_same_calls(newest, other):
            continue
        if _collect_ended(newest) != _collect_ended(other):
            return None
        earlier.extend(islice(backwards, period * most - len(earlier)))
        count, oldest = _count(earlier, period)
        if count >= most - NOTICES_BEFORE:
            is_told = any(_is_advice(each) for each in transcript[oldest:])
            return Repetition(count, newest.calls[-1], newest.results[-1], is_told)
    return None


def _count(backwards: Sequence[_Round], period: int) -> tuple[int, int]:
    """Return how often the newest round was made with the same rounds in between, and where that begins."""
    ended = [_collect_ended(each) for each in backwards]
    alike = 0
    while alike + period < len(ended) and ended[alike] == ended[alike + period]:
        alike += 1
    return 1 + (alike + period - 1) // period, backwards[min(alike + period, len(backwards)) - 1].index


def _iterate_rounds(transcript: Sequence[Message]) -> Iterator[_Round]:
    """Yield the rounds from the newest to the last message before them that is not advice of this room."""
    results: list[ToolResultMessage] = []
    for index in range(len(transcript) - 1, -1, -1):
        message = transcript[index]
        if isinstance(message, ToolResultMessage):
            results.append(message)
        elif isinstance(message, AssistantMessage):
            calls = message.tool_calls
            if not calls or len(results) != len(calls):
                return
            yield _Round(index, calls, frozenset(map(_get_name, calls)), results[::-1])
            results = []
        elif not _is_advice(message):
            return


def _is_advice(message: Message) -> bool:
    is_notice = isinstance(message, UserMessage) and message.origin == "notice"
    return is_notice and message.text.startswith(_BEGIN)


def _make_same_calls(one: _Round, other: _Round) -> bool:
    if len(one.calls) == len(other.calls) == 1 and one.calls[0].arguments != other.calls[0].arguments:
        return False  # the usual case; what is equal here may still differ in its text: 1 == 1.0
    return _collect_calls(one) == _collect_calls(other)


def _collect_calls(one: _Round) -> set[tuple[str, str]]:
    return {(call.name, dump_json(call.arguments)) for call in one.calls}


def _collect_ended(one: _Round) -> frozenset[_Ended]:
    """Return the round's calls, each with its end."""
    return frozenset(
        (call.name, dump_json(call.arguments), _summarize_end(result))
        for call, result in zip(one.calls, one.results, strict=True)
    )


def _summarize_end(result: ToolResultMessage) -> str:
    """Return what makes two results alike: their code where it says all, else the text and the images."""
    code = _get_code(result)
    if code in _ALIKE_BY_CODE:
        return f"error {code}"
    images = "".join(block.data for block in result.content if isinstance(block, ImageContent))
    # Marks around text from outside get a new number each time, so the numbers are not compared.
    return f"{result.is_error} {remove_numbers(result.text)} {images}"


def _get_code(result: ToolResultMessage) -> str:
    code = result.details.get("code") if result.is_error and isinstance(result.details, dict) else None
    return code if isinstance(code, str) else ""
