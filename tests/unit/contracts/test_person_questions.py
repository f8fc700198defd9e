"""Which questions a tool may ask, and which answers fit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError as Invalid

from sessiontree.contracts.errors import ConfigError, ValidationError
from sessiontree.contracts.recorded.questions import (
    MAX_TEXT_CHARS,
    QuestionAnswer,
    QuestionItem,
    QuestionOption,
    QuestionsAsked,
    answer_from,
    check_answers,
)

LABELS = ("red", "blue", "red ", "teal")
ITEMS = st.builds(
    QuestionItem,
    question=st.just("Which?"),
    options=st.sampled_from([(), LABELS[:2], (LABELS[1], LABELS[3])]).map(
        lambda labels: tuple(QuestionOption(label=label) for label in labels)
    ),
    multi_select=st.booleans(),
)
ANSWERS = st.builds(
    QuestionAnswer,
    chosen=st.lists(st.sampled_from(LABELS), max_size=3).map(tuple),
    text=st.sampled_from(["", "  ", "because", "x" * (MAX_TEXT_CHARS + 1)]),
)
Check = Callable[[str, Sequence[QuestionItem], Sequence[QuestionAnswer]], Any]


def fits(item: QuestionItem, answer: QuestionAnswer) -> bool:
    """Whether an answer is one, by the words of the specification."""
    chosen, text = set(answer.chosen), answer.text.strip()
    known = chosen <= {option.label for option in item.options}
    return (
        known
        and bool(chosen or text)
        and (item.multi_select or len(chosen) <= 1)
        and len(text) <= MAX_TEXT_CHARS
    )


def only_fitting_answers_pass(check: Check, item: QuestionItem, answer: QuestionAnswer) -> None:
    """An answer is taken exactly if it fits, and then says what was given."""
    try:
        (taken,) = check("q", [item], [answer])
    except ValidationError as refused:
        assert not fits(item, answer)
        assert "the question still waits" in str(refused)
    else:
        assert fits(item, answer)
        assert (set(taken["chosen"]), taken["text"]) == (set(answer.chosen), answer.text.strip())


@given(ITEMS, ANSWERS)
def test_only_an_answer_that_fits_is_taken(item: QuestionItem, answer: QuestionAnswer) -> None:
    """Unknown labels, too many, nothing, too long a text: each is refused."""
    only_fitting_answers_pass(check_answers, item, answer)


def _any_label(name: str, items: Sequence[QuestionItem], answers: Sequence[QuestionAnswer]) -> Any:
    known = {option.label for option in items[0].options}
    kept = tuple(label for label in answers[0].chosen if label in known)
    return check_answers(name, items, [QuestionAnswer(kept, answers[0].text)])


def _first_label(name: str, items: Sequence[QuestionItem], answers: Sequence[QuestionAnswer]) -> Any:
    return check_answers(name, items, [QuestionAnswer(answers[0].chosen[:1], answers[0].text)])


def _anything(name: str, items: Sequence[QuestionItem], answers: Sequence[QuestionAnswer]) -> Any:
    return [{"chosen": answers[0].chosen, "text": answers[0].text.strip()}]


@pytest.mark.parametrize("bug", [_any_label, _first_label, _anything])
def test_check_that_takes_too_much_is_found(bug: Check) -> None:
    """The property fails where unknown or surplus labels are dropped, or everything is taken."""

    @settings(max_examples=500, database=None, derandomize=True, phases=[Phase.generate])
    @given(ITEMS, ANSWERS)
    def found(item: QuestionItem, answer: QuestionAnswer) -> None:
        only_fitting_answers_pass(bug, item, answer)

    with pytest.raises(AssertionError):
        found()


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"question": "  "}, "only white space"),
        ({"question": "x" * 2_001}, "at most 2000"),
        ({"question": "Q", "options": [{"label": "one"}]}, "one option is not a choice"),
        ({"question": "Q", "options": [{"label": "a"}, {"label": "a "}]}, "the same label"),
        ({"question": "Q", "options": [{"label": letter} for letter in "abcde"]}, "at most 4"),
        ({"question": "Q", "allow_free_text": False}, "without options the answer is text"),
        ({"question": "Q", "colour": "red"}, "Extra inputs"),
    ],
)
def test_question_that_nobody_could_answer_is_refused(item: dict[str, Any], why: str) -> None:
    """The model hears what is wrong before a person is asked."""
    with pytest.raises(Invalid, match=why):
        QuestionsAsked.model_validate({"questions": [item]})


def test_one_to_three_questions_are_asked_at_once() -> None:
    """None and four are refused."""
    for count in (0, 4):
        with pytest.raises(Invalid):
            QuestionsAsked.model_validate({"questions": [{"question": "Q"}] * count})


def test_program_answers_in_short_forms() -> None:
    """A label, a text, several labels, or the answer itself; anything else is refused."""
    item = QuestionItem(question="Q", options=(QuestionOption(label="red"), QuestionOption(label="blue")))
    assert answer_from(item, "red") == QuestionAnswer(("red",))
    assert answer_from(item, "teal") == QuestionAnswer(text="teal")
    assert answer_from(item, ["red", "blue"]) == QuestionAnswer(("red", "blue"))
    given_whole = QuestionAnswer(("red",), "rather")
    assert answer_from(item, given_whole) is given_whole
    wrong: Any = 7
    with pytest.raises(ConfigError, match="an answer is"):
        answer_from(item, wrong)
