"""Questions as text, and typed lines as answers."""

from __future__ import annotations

import pytest

from sessiontree.channels.question_text import format_heading, format_item, parse_line
from sessiontree.contracts.recorded.questions import (
    QuestionAnswer,
    QuestionItem,
    QuestionOption,
    QuestionRequest,
)

OPTIONS = tuple(QuestionOption(label=label) for label in ("red", "blue", "12"))
ONE = QuestionItem(question="Which?", options=OPTIONS)
MANY = QuestionItem(question="Which?", options=OPTIONS, multi_select=True, allow_free_text=False)


@pytest.mark.parametrize(
    ("item", "line", "expected"),
    [
        (ONE, "2\n", QuestionAnswer(("blue",))),
        (ONE, " Red ", QuestionAnswer(("red",))),
        (ONE, "12", QuestionAnswer(("12",))),
        (ONE, "teal", QuestionAnswer(text="teal")),
        (ONE, "1,2", "(choose one of them)"),
        (ONE, "  ", "(the line is empty)"),
        (MANY, "2, 1", QuestionAnswer(("blue", "red"))),
        (MANY, "9", "(the options are numbered 1 to 3)"),
        (MANY, "teal", "(choose one of the options)"),
    ],
)
def test_line_is_an_answer_or_says_why_not(
    item: QuestionItem, line: str, expected: QuestionAnswer | str
) -> None:
    """Numbers choose options, a label chooses its own, other words are text where that is taken."""
    assert parse_line(item, line) == expected


def test_no_character_of_a_question_deceives() -> None:
    """Control and bidirectional characters are spelled out, and words that mix alphabets are named."""
    hostile = "p\u0430y\x1b[2J\u202e now"
    option = QuestionOption(label=hostile, description=hostile)
    item = QuestionItem(question=hostile, header=hostile, options=(option, QuestionOption(label="no")))
    request = QuestionRequest("q1", "main/b1", (item,), 1, 2, "main")
    shown = f"{format_heading(request)}\n{format_item(item)}"
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "beware" in shown
