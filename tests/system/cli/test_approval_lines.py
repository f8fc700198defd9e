"""Asked: a line answers the request that was on the screen when it was typed, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.cli.request_queue import AnsweredLine, Asked, NoAnswer, RequestQueue, get_id, parse_answer
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import (
    QuestionAnswer,
    QuestionItem,
    QuestionOption,
    QuestionReply,
    QuestionRequest,
)

Make: TypeAlias = Callable[[Callable[[str], None]], RequestQueue]
IDS = ["r1", "r2", "r3"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(IDS)),
        st.tuples(st.just("withdraw"), st.sampled_from(IDS)),
        st.tuples(st.just("type"), st.sampled_from(["y", "n", "a", "hello"])),
        st.tuples(st.just("settle"), st.just("")),
    ),
    max_size=25,
)


def request(request_id: str) -> ApprovalRequest:
    """Return a request."""
    return ApprovalRequest(request_id, "main", "sweep", {"place": request_id}, "d", "Elevated", 10**6, "main")


class Glass:
    """A screen, and which request a person in front of it believes to answer."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_screen(self) -> str | None:
        """The request of the last question, None where it was withdrawn or answered since."""
        for index, line in reversed(list(enumerate(self.lines))):
            if line.startswith("(the question was withdrawn"):
                return None
            if line.startswith("  request:"):
                return line.split()[-1] if self.lines[index + 1 :] else None
        return None


def answers_go_to_what_is_shown(make: Make, steps: list[tuple[str, str]]) -> None:
    """An answer is for the request shown last, once each, and never typed right after a withdrawal."""
    glass = Glass()
    asked = make(glass.lines.append)
    answered: list[str] = []
    under_way: AnsweredLine | None = None
    was_withdrawn = False
    gone: set[str] = set()
    for step, what in steps:
        before = glass.on_screen()
        if step == "add" and what not in gone:
            asked.add("t", request(what))
        elif step == "withdraw":
            is_open = what not in gone  # what was answered can't be withdrawn any more
            gone.add(what)
            asked.withdraw("t", what, "approved by somebody")
            was_withdrawn = was_withdrawn or (before == what and under_way is None and is_open)
        elif step == "settle" and under_way is not None:
            gone.add(get_id(under_way.request))
            asked.settle(under_way)
            under_way = None
        elif step == "type":
            taken = asked.take(what)
            if isinstance(taken, AnsweredLine):
                assert under_way is None
                assert not was_withdrawn
                assert taken.answer == parse_answer(what)
                assert get_id(taken.request) == before
                assert get_id(taken.request) not in answered
                answered.append(get_id(taken.request))
                under_way = taken
                assert not asked.is_done
            was_withdrawn = False
    if under_way is not None:
        asked.settle(under_way)
    while not asked.is_done:
        asked.take("hello")
        taken = asked.take("n")
        assert isinstance(taken, AnsweredLine)
        asked.settle(taken)


@pytest.mark.covers("REL-L15")
@given(STEPS)
def test_answer_goes_to_the_request_on_the_screen(steps: list[tuple[str, str]]) -> None:
    """Whatever comes, goes and is typed in between; and everything that waits is asked in the end."""
    answers_go_to_what_is_shown(RequestQueue, steps)


class _Eager(RequestQueue):
    """Never drops a line typed for a request that was withdrawn."""

    def take(self, line: str) -> Any:
        self._late = None
        return super().take(line)


class _Forgets(RequestQueue):
    """Does not go on after an answer."""

    def settle(self, answered: AnsweredLine) -> None:
        super().settle(answered)
        self._shown = None


class _Hasty(RequestQueue):
    """Asks again for a request whose answer is under way."""

    def take(self, line: str) -> Any:
        taken = super().take(line)
        self._answered = None
        return taken

    def settle(self, answered: AnsweredLine) -> None:
        super().settle(answered)
        if self._shown not in self._waiting:
            self._shown = None
            self._show()


class _NewestFirst(RequestQueue):
    """Takes a line for the request that came last."""

    def add(self, tree_id: str, request: Asked) -> None:
        super().add(tree_id, request)
        if self._answered is None:
            self._shown = next(reversed(self._waiting))


@pytest.mark.covers("REL-L15")
@pytest.mark.parametrize("bug", [_Eager, _Forgets, _Hasty, _NewestFirst])
def test_answer_to_another_request_is_found(bug: Make) -> None:
    """The property fails where a late line answers, a request is never asked, or another one is answered."""

    @settings(max_examples=500, database=None, derandomize=True, phases=[Phase.generate])
    @given(STEPS)
    def found(steps: list[tuple[str, str]]) -> None:
        answers_go_to_what_is_shown(bug, steps)

    with pytest.raises(AssertionError):
        found()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", ApprovalAnswer(approve=True)),
        (" YES ", ApprovalAnswer(approve=True)),
        ("a", ApprovalAnswer(approve=True, always=True)),
        ("Always", ApprovalAnswer(approve=True, always=True)),
        ("n", ApprovalAnswer(approve=False, reason="said no at the terminal")),
        ("no  wet paint ", ApprovalAnswer(approve=False, reason="wet paint")),
        ("a nice day", None),
        ("yes, but", None),
        ("nope", None),
        ("", None),
    ],
)
def test_only_a_clear_word_is_a_yes(line: str, answer: ApprovalAnswer | None) -> None:
    """Yes needs no reason; no may say why; anything else is no answer."""
    assert parse_answer(line) == answer


def test_later_and_an_empty_always_answer_nothing() -> None:
    """*Later* leaves the request open and shows the next; an *always* that covers nothing asks again."""
    lines: list[str] = []
    asked = RequestQueue(lines.append)
    first, second = request("r1"), replace(request("r2"), covers=())
    asked.add("t1", first)
    asked.add("t1", second)
    assert isinstance(asked.take("l"), NoAnswer)
    assert "(left open: r1)" in lines
    assert isinstance(asked.take("a"), NoAnswer)
    assert any("always would cover no later call" in line for line in lines)
    assert asked.take("y") == AnsweredLine("t1", second, ApprovalAnswer(approve=True))
    assert asked.take("y") is None


def test_later_is_never_for_a_question_that_was_withdrawn() -> None:
    """Such a line leaves the next request on the screen."""
    asked = RequestQueue(lambda _: None)
    asked.add("t1", request("r1"))
    asked.add("t1", request("r2"))
    asked.withdraw("t1", "r1", "approved by ada")
    assert isinstance(asked.take("later"), NoAnswer)
    assert asked.take("y") == AnsweredLine("t1", request("r2"), ApprovalAnswer(approve=True))


@pytest.mark.covers("A14", "REL-L2")
def test_arguments_are_shown_whole_and_visible() -> None:
    """What is decided on is on the screen, every invisible character escaped, and named with its tree."""
    lines: list[str] = []
    asked = RequestQueue(lines.append, names_tree=True)
    shown = request("r\u202e1")
    asked.add("t1", shown)
    assert lines[0] == "main wants to call sweep (Elevated)"
    assert '{"place":"r\\u{202e}1"}' in lines[1]
    assert lines[3].split() == ["tree:", "t1"]
    assert isinstance(asked.take("what?"), NoAnswer)
    assert asked.take("y") == AnsweredLine("t1", shown, ApprovalAnswer(approve=True))
    assert asked.take("y") is None


def _question(question_id: str, *items: QuestionItem) -> QuestionRequest:
    return QuestionRequest(question_id, "main", items, 1, 10**6, "main")


COLOUR = QuestionItem(
    question="Which?", options=tuple(QuestionOption(label=name) for name in ("red", "blue"))
)
WHY = QuestionItem(question="Why?")


def test_questions_are_answered_one_by_one_among_requests() -> None:
    """The parts of a question come in turn; then the next request is shown and answered."""
    lines: list[str] = []
    asked = RequestQueue(lines.append)
    asked.add("t", _question("q1", COLOUR, WHY))
    asked.add("t", request("r1"))
    assert isinstance(asked.take("2"), NoAnswer)
    assert any("Why?" in line for line in lines)
    taken = asked.take("I like it")
    assert isinstance(taken, AnsweredLine)
    assert get_id(taken.request) == "q1"
    assert taken.answer == QuestionReply((QuestionAnswer(("blue",)), QuestionAnswer(text="I like it")))
    asked.settle(taken)
    taken = asked.take("y")
    assert isinstance(taken, AnsweredLine)
    assert get_id(taken.request) == "r1"


def test_line_for_a_withdrawn_question_answers_nothing_else() -> None:
    """Neither the next question nor an approval; plain text after that answers nothing."""
    lines: list[str] = []
    asked = RequestQueue(lines.append)
    asked.add("t", _question("q1", COLOUR))
    asked.add("t", _question("q2", WHY))
    asked.withdraw("t", "q1", "answered by somebody")
    assert isinstance(asked.take("teal"), NoAnswer)
    taken = asked.take("because")
    assert isinstance(taken, AnsweredLine)
    assert get_id(taken.request) == "q2"
    asked.settle(taken)
    asked.add("t", _question("q3", COLOUR))
    asked.withdraw("t", "q3", "answered by somebody")
    assert asked.take("hello") is None
