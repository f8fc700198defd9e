"""What waits for one person at a terminal: requests and questions, shown one at a time; lines answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from sessiontree.channels.question_text import format_heading, format_item, format_prompt, parse_line
from sessiontree.channels.safe_text import format_approval, format_question, refuse_always
from sessiontree.channels.terminal import LATER
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.questions import (
    QuestionAnswer,
    QuestionItem,
    QuestionReply,
    QuestionRequest,
)

SAID_NO = "said no at the terminal"
_YES = {"y": False, "yes": False, "a": True, "always": True}
"""Words that approve, and whether they also approve every later call of the tool."""
_NO = ("n", "no")
Asked: TypeAlias = ApprovalRequest | QuestionRequest
"""What a person is asked."""


class AnsweredLine(NamedTuple):
    """A line that answered a request, or the last line that answered a question."""

    tree_id: str
    request: Asked
    answer: ApprovalAnswer | QuestionReply


class NoAnswer(NamedTuple):
    """A line that was meant for a request but is not an answer, or not the whole of one."""


def get_id(asked: Asked) -> str:
    """Return the id by which a request or a question is answered."""
    return asked.question_id if isinstance(asked, QuestionRequest) else asked.request_id


class RequestQueue:
    """Requests and questions that wait for one person, shown one at a time in the order they came.

    A line answers only what is on the screen: a line typed for a withdrawn request never answers the next
    one.

    Args:
        say: Shows a line.
        names_tree: Whether to say which tree a request is of.
    """

    def __init__(self, say: Callable[[str], None], *, names_tree: bool = False) -> None:
        self._say = say
        self._names_tree = names_tree
        self._waiting: dict[tuple[str, str], Asked] = {}
        self._shown: tuple[str, str] | None = None
        self._given: list[QuestionAnswer] = []
        """Answers to the first of the questions on the screen."""
        self._answered: tuple[str, str] | None = None
        """The request whose answer was accepted and is in transit."""
        self._late: Asked | None = None
        """What was withdrawn from the screen, if the next line may be meant for it."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to ask."""
        return not self._waiting

    def add(self, tree_id: str, request: Asked) -> None:
        """Add a request or a question; a known one is not asked twice."""
        self._waiting.setdefault((tree_id, get_id(request)), request)
        self._show()

    def withdraw(self, tree_id: str, request_id: str, why: str) -> None:
        """Withdraw a decided request, unless the answer in transit from here decided it."""
        key = (tree_id, request_id)
        # The fact of the decision arrives before the call that made it returns.
        if key == self._answered:
            return  # it was decided from here
        withdrawn = self._waiting.pop(key, None)
        if withdrawn is not None and self._shown == key:
            self._late = self._find_due(withdrawn)
            self._shown = None
            self._given = []
            self._say(f"(the question was withdrawn: {why})")
        self._show()

    def take(self, line: str) -> AnsweredLine | NoAnswer | None:
        """Take a line; return None if it is not for a request."""
        # For one line only: a person looks at the screen before the next one.
        late, self._late = self._late, None
        # A "y" that was typed for a withdrawn request must not approve the next one, which nobody has read.
        if late is not None and self._is_for(late, line):
            self._say("(that line was for the withdrawn question)")
            self._ask()
            return NoAnswer()
        if self._shown is None:
            return None
        if line.strip().lower() in LATER:
            self._leave()
            return NoAnswer()
        key, request = self._shown, self._waiting[self._shown]
        answer = (
            self._reply(request, line)
            if isinstance(request, QuestionRequest)
            else _parse_decision(request, line)
        )
        if isinstance(answer, str):
            if answer:
                self._say(answer)
            self._ask()
            return NoAnswer()
        # Nothing else is shown until this one is settled: a second line would answer what is not on the
        # screen yet.
        self._answered, self._shown, self._given = key, None, []
        return AnsweredLine(key[0], request, answer)

    def _reply(self, question: QuestionRequest, line: str) -> QuestionReply | str:
        """Return the reply that a line completes; else what to say about the line."""
        answer = parse_line(question.items[len(self._given)], line)
        if isinstance(answer, str):
            return answer
        self._given.append(answer)
        if len(self._given) == len(question.items):
            return QuestionReply(tuple(self._given))
        return format_item(question.items[len(self._given)])

    def _find_due(self, asked: Asked) -> Asked:
        """Return what was on the screen of it: of several questions the first that has no answer."""
        if not isinstance(asked, QuestionRequest):
            return asked
        item = asked.items[min(len(self._given), len(asked.items) - 1)]
        return QuestionRequest(
            asked.question_id, asked.session_id, (item,), asked.asked_at_ms, asked.expires_at_ms, asked.asked
        )

    def _is_for(self, late: Asked, line: str) -> bool:
        """Whether a line may be meant for a withdrawn request, and is more than plain text."""
        if line.strip().lower() in LATER:
            return True
        if not isinstance(late, QuestionRequest):
            return parse_answer(line) is not None
        shown = None if self._shown is None else self._waiting[self._shown]
        answer = parse_line(late.items[0], line)
        is_choice = isinstance(answer, QuestionAnswer) and bool(answer.chosen)
        return is_choice or isinstance(shown, QuestionRequest) or parse_answer(line) is not None

    def _leave(self) -> None:
        """Go on to the next request: this one stays open, and is not asked about here again."""
        if self._shown is not None:
            self._say(f"(left open: {get_id(self._waiting.pop(self._shown))})")
        self._shown = None
        self._given = []
        self._show()

    def settle(self, answered: AnsweredLine) -> None:
        """Go on to the next request: this one's answer was given."""
        self._waiting.pop((answered.tree_id, get_id(answered.request)), None)
        self._answered = None
        self._show()

    def _show(self) -> None:
        if self._shown is not None or self._answered is not None or not self._waiting:
            return
        self._shown = next(iter(self._waiting))
        request = self._waiting[self._shown]
        for line in request_text(request, self._shown[0] if self._names_tree else None):
            self._say(line)
        if isinstance(request, QuestionRequest):
            self._say(format_item(request.items[0]))
        self._ask()

    def _ask(self) -> None:
        if self._shown is not None:
            asked = self._waiting[self._shown]
            prompt = (
                format_prompt(self._get_item(asked))
                if isinstance(asked, QuestionRequest)
                else format_question(asked)
            )
            self._say(prompt.rstrip())

    def _get_item(self, question: QuestionRequest) -> QuestionItem:
        return question.items[len(self._given)]


def request_text(request: Asked, tree_id: str | None = None) -> list[str]:
    """Return the text a person decides on, or who asks a question; the tree is named where it is given."""
    text = format_heading(request) if isinstance(request, QuestionRequest) else format_approval(request)
    lines = text.split("\n")
    return lines if tree_id is None else [*lines, f"  tree:      {tree_id}"]


def parse_answer(line: str) -> ApprovalAnswer | None:
    """Return the answer a line gives: ``y``, ``a``, or ``n`` with or without a reason; None for any other."""
    word, _, rest = line.strip().partition(" ")
    if word.lower() in _NO:
        return ApprovalAnswer(approve=False, reason=rest.strip() or SAID_NO)
    if word.lower() in _YES and not rest:
        return ApprovalAnswer(approve=True, always=_YES[word.lower()])
    return None


def _parse_decision(request: ApprovalRequest, line: str) -> ApprovalAnswer | str:
    """Return the answer that a line gives to a request; else what to say about the line."""
    answer = parse_answer(line)
    problem = refuse_always(request, answer)
    return answer if answer is not None and not problem else problem
