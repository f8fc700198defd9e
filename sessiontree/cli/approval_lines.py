"""Asked: requests shown to a person one after the other, and the lines that answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sessiontree.channels.shown import prompt_of
from sessiontree.channels.terminal import QUESTION
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest

SAID_NO = "said no at the terminal"
_YES = {"y": False, "yes": False, "a": True, "always": True}
"""Words that allow, and whether every later call of the tool too."""
_NO = ("n", "no")


class Answered(NamedTuple):
    """A line that answered a request."""

    tree_id: str
    request: ApprovalRequest
    answer: ApprovalAnswer


class NoAnswer(NamedTuple):
    """A line that was meant for a request and answers none."""


class Asked:
    """Requests that wait for one person, shown one at a time in the order they came.

    A line answers the request that is on the screen, and no other: one typed for a request that was
    withdrawn meanwhile never answers the next one.

    Args:
        say: Shows a line.
        names_tree: Whether to say which tree a request is of.
    """

    def __init__(self, say: Callable[[str], None], *, names_tree: bool = False) -> None:
        self._say = say
        self._names_tree = names_tree
        self._waiting: dict[tuple[str, str], ApprovalRequest] = {}
        self._shown: tuple[str, str] | None = None
        self._answered: tuple[str, str] | None = None
        """Its answer was taken and is on its way."""
        self._is_late = False
        """Whether the next answer may be meant for a request that was withdrawn."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to ask."""
        return not self._waiting

    def add(self, tree_id: str, request: ApprovalRequest) -> None:
        """Ask for a request too; one that is known already is not asked twice."""
        self._waiting.setdefault((tree_id, request.request_id), request)
        self._show()

    def withdraw(self, tree_id: str, request_id: str, why: str) -> None:
        """Ask for a request no more: it was decided, unless by the answer that is on its way from here."""
        key = (tree_id, request_id)
        if key == self._answered:
            return  # it was decided from here
        if self._waiting.pop(key, None) is not None and self._shown == key:
            self._shown = None
            self._is_late = True
            self._say(f"(the question was withdrawn: {why})")
        self._show()

    def take(self, line: str) -> Answered | NoAnswer | None:
        """Take a line; None where it is for nobody here."""
        answer = answer_in(line)
        if self._is_late:
            self._is_late = False
            if answer is not None:
                self._say("(that line was for the withdrawn question)")
                self._ask()
                return NoAnswer()
        if self._shown is None:
            return None
        if answer is None:
            self._ask()
            return NoAnswer()
        key = self._answered = self._shown
        self._shown = None
        return Answered(key[0], self._waiting[key], answer)

    def settle(self, answered: Answered) -> None:
        """Go on to the next request: this one's answer was given."""
        self._waiting.pop((answered.tree_id, answered.request.request_id), None)
        self._answered = None
        self._show()

    def _show(self) -> None:
        if self._shown is not None or self._answered is not None or not self._waiting:
            return
        self._shown = next(iter(self._waiting))
        for line in lines_of(self._waiting[self._shown], self._shown[0] if self._names_tree else None):
            self._say(line)
        self._ask()

    def _ask(self) -> None:
        if self._shown is not None:
            self._say(QUESTION.rstrip())


def lines_of(request: ApprovalRequest, tree_id: str | None = None) -> list[str]:
    """Return the text a person decides on, the tree named where it is given."""
    lines = prompt_of(request).split("\n")
    return lines if tree_id is None else [*lines, f"  tree:      {tree_id}"]


def answer_in(line: str) -> ApprovalAnswer | None:
    """Return the answer a line gives: ``y``, ``a``, or ``n`` with or without a reason; None for any other."""
    word, _, rest = line.strip().partition(" ")
    if word.lower() in _NO:
        return ApprovalAnswer(approve=False, reason=rest.strip() or SAID_NO)
    if word.lower() in _YES and not rest:
        return ApprovalAnswer(approve=True, always=_YES[word.lower()])
    return None
