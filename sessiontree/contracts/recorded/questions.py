"""Questions for a person: what a session asks, how it is shown, and which answers fit it.

A question is a call of a client tool whose parameters are :class:`QuestionsAsked`: a person answers it
instead of the program. Nothing can be approved through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Self, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_QUESTIONS: Final = 3
MAX_OPTIONS: Final = 4
MAX_TEXT_CHARS: Final = 2_000
"""Longest question, description of an option, or free text of an answer."""
MAX_LABEL_CHARS: Final = 200
"""Longest header of a question, or label of an option."""

Surface: TypeAlias = Literal["program", "terminal", "notebook", "browser", "socket", "editor"]
"""Where a person or the program answered."""
SURFACES: Final[tuple[Surface, ...]] = get_args(Surface)
PEER_SURFACES: Final[tuple[Surface, ...]] = ("socket", "terminal", "notebook", "browser")
"""What a peer of the control socket may say of itself; the first one is meant if it says nothing."""


class QuestionOption(BaseModel):
    """One answer to choose.

    Args:
        label: What is chosen.
        description: What choosing it means.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = Field(min_length=1, max_length=MAX_LABEL_CHARS)
    description: str = Field(default="", max_length=MAX_TEXT_CHARS)


class QuestionItem(BaseModel):
    """One question: with two to four options, or none; then any text is an answer.

    Args:
        question: The question itself.
        header: A short title.
        options: None, or 2 to 4.
        multi_select: Whether several options may be chosen.
        allow_free_text: Whether text may be the answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    header: str = Field(default="", max_length=MAX_LABEL_CHARS, description="A short title.")
    options: tuple[QuestionOption, ...] = Field(
        default=(), max_length=MAX_OPTIONS, description="None, or 2 to 4."
    )
    multi_select: bool = Field(default=False, description="Whether several options may be chosen.")
    allow_free_text: bool = Field(default=True, description="Whether text may be the answer.")

    @field_validator("question")
    @classmethod
    def _asks_something(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question contains only white space")
        return question

    @model_validator(mode="after")
    def _can_be_answered(self) -> Self:
        labels = [option.label.strip() for option in self.options]
        if not all(labels):
            raise ValueError("the label of an option contains only white space")
        if len(labels) == 1:
            raise ValueError("one option is not a choice: give 2 to 4 options, or none")
        if len(set(labels)) < len(labels):
            raise ValueError("two options have the same label")
        if not labels and not self.allow_free_text:
            raise ValueError("without options the answer is text: leave allow_free_text true")
        return self


class QuestionsAsked(BaseModel):
    """The parameters of a tool whose calls a person answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    questions: tuple[QuestionItem, ...] = Field(
        min_length=1, max_length=MAX_QUESTIONS, description="1 to 3 questions, shown together."
    )


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """Questions that wait for a person."""

    question_id: str
    """Unguessable; the answer refers to it."""
    session_id: str
    """The session that asks."""
    items: tuple[QuestionItem, ...]
    """One to three questions; an answer holds one for each."""
    asked_at_ms: int
    expires_at_ms: int
    asked: str
    """The session whose channel shows it."""


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """A person's answer to one question: labels of options, a text, or both."""

    chosen: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """What a person answered to all the questions of one request."""

    answers: tuple[QuestionAnswer, ...]
    """One for each question, in their order."""
    sender: Sender | None = None
    """Who answered, if several people can; it counts only if the channel lists them as an owner. None = the
    channel itself vouches for the person, as a terminal does."""


AnswerGiven: TypeAlias = QuestionAnswer | str | Sequence[str]
"""An answer to one question as a program may give it: a text is the label of an option if it equals one."""


def read_items(arguments: Mapping[str, JsonValue]) -> tuple[QuestionItem, ...]:
    """Return the questions of a checked call."""
    return QuestionsAsked.model_validate(arguments).questions


def answer_from(item: QuestionItem, given: AnswerGiven) -> QuestionAnswer:
    """Return an answer that a program gave in any form.

    Raises:
        ConfigError: it has none of the forms.
    """
    if isinstance(given, QuestionAnswer):
        return given
    labels = {option.label for option in item.options}
    if isinstance(given, str):
        return QuestionAnswer((given,)) if given in labels else QuestionAnswer(text=given)
    if isinstance(given, Sequence) and all(isinstance(each, str) for each in given):
        return QuestionAnswer(tuple(given))
    raise ConfigError(f"an answer is a QuestionAnswer, a text, or labels of options, not {given!r}")


def reply_from(
    items: Sequence[QuestionItem], given: Sequence[AnswerGiven], sender: Sender | None = None
) -> QuestionReply:
    """Return the answers that a program gave in any form; how many there must be is checked later.

    Raises:
        ConfigError: an answer has none of the forms.
    """
    # What is too much is read by the last question until it is refused.
    known = [items[min(index, len(items) - 1)] for index in range(len(given))]
    return QuestionReply(tuple(map(answer_from, known, given)), sender)


def check_answers(
    question_id: str, items: Sequence[QuestionItem], answers: Sequence[QuestionAnswer]
) -> list[JsonValue]:
    """Return a person's answers as the model gets them: ``{question, chosen, text}`` for each question.

    Raises:
        ValidationError: an answer does not fit its question, which still waits.
    """
    if len(answers) != len(items):
        raise _make_refusal(
            question_id, "", f"it has {len(answers)} answers to {len(items)} questions; give one for each"
        )
    return [
        _check_answer(question_id, index, item, answer)
        for index, (item, answer) in enumerate(zip(items, answers, strict=True))
    ]


def _check_answer(question_id: str, index: int, item: QuestionItem, answer: QuestionAnswer) -> JsonValue:
    labels = [option.label for option in item.options]
    chosen, text = tuple(dict.fromkeys(answer.chosen)), answer.text.strip()
    problem = ""
    if unknown := [label for label in chosen if label not in labels]:
        known = f"the options are {', '.join(map(repr, labels))}" if labels else "it has no options"
        problem = f"{unknown[0][:MAX_LABEL_CHARS]!r} is not an option; {known}"
    elif len(chosen) > 1 and not item.multi_select:
        problem = f"{len(chosen)} options are chosen; choose one"
    elif text and not item.allow_free_text:
        problem = "it takes no text; choose an option"
    elif len(text) > MAX_TEXT_CHARS:
        problem = f"the text has {len(text):,} characters; at most {MAX_TEXT_CHARS:,} fit"
    elif not chosen and not text:
        problem = "it is empty; choose an option" + (" or give a text" if item.allow_free_text else "")
    if problem:
        raise _make_refusal(question_id, f"/{index}", f"answer {index + 1}: {problem}")
    return {"question": item.question, "chosen": [*chosen], "text": text}


def _make_refusal(question_id: str, field: str, reason: str) -> ValidationError:
    return ValidationError(
        f"the answer to question {question_id} is refused: {reason}; the question still waits", field or None
    )
