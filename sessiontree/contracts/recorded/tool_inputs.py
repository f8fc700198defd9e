"""Input that a running call needs from a person: the questions, and what its tool keeps for later.

A tool raises :class:`InputNeeded`. The call then waits like a question, also over restarts. Once it is
answered, its tool runs again and finds the answers in ``ctx.answered``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.recorded.codec import register_kind
from sessiontree.contracts.recorded.questions import QuestionItem, QuestionsAsked
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_STATE_CHARS: Final = 2**18
"""Longest state of a tool, as JSON."""
MAX_ROUNDS: Final = 64
"""Most times that one call asks."""


@register_kind("tool_input")
@dataclass(frozen=True, slots=True)
class ToolInput:
    """What a call asks a person, and what its tool gets back with the answers."""

    questions: Mapping[str, JsonValue]
    """The members of :class:`~sessiontree.contracts.recorded.questions.QuestionsAsked`."""
    state: JsonValue
    """Only its tool knows what it means."""


@register_kind("answered_input")
@dataclass(frozen=True, slots=True)
class AnsweredInput:
    """A person's answers to what a call asked, and the state that its tool kept."""

    state: JsonValue
    answers: tuple[JsonValue, ...]
    """``{question, chosen, text}`` for each question, in their order."""


class InputNeeded(Exception):
    """Raised by a tool whose call can go on only with a person's answers.

    Args:
        questions: One to three questions.
        state: What the tool gets back with the answers. The journal keeps it.
    """

    def __init__(self, questions: Sequence[QuestionItem], state: JsonValue) -> None:
        super().__init__("a person must answer before the call can go on")
        self.questions = tuple(questions)
        self.state = state

    def to_input(self) -> ToolInput:
        """Return what the journal keeps.

        Raises:
            ExecutionError: the questions do not fit their form, or the state is too long.
        """
        try:
            asked = QuestionsAsked(questions=self.questions)
            chars = len(dump_json(self.state))
        except (TypeError, ValueError, RecursionError) as error:
            raise ExecutionError(f"its questions for a person are not valid: {error}") from error
        if chars > MAX_STATE_CHARS:
            raise ExecutionError(
                f"it keeps a state of {chars:,} characters for its questions; at most {MAX_STATE_CHARS:,} fit"
            )
        return ToolInput(asked.model_dump(mode="json"), self.state)
