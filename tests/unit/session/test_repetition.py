"""Loops: the model is warned of calls repeated with the same end, then its run ends; news resets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, Timeout, ToolError
from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.results import make_error_message
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import Message, TextContent, ToolResultMessage, UserMessage
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree.session.decide import react
from sessiontree.session.repetition import Repetition, find_repetition
from sessiontree.session.state import SessionState, make_initial_state
from tests.unit.session.session_fixtures import TOOLS, call, reply, spec

SEARCH = settings(max_examples=2_000, derandomize=True, database=None, phases=[Phase.generate])
MOST = 5
ROUNDS = st.lists(st.tuples(st.sampled_from(("ab", "b", "a")), st.sampled_from("xxxy")), max_size=14)
"""Rounds: the tools that a reply calls, and how all of them end."""
Find = Callable[[Sequence[Message], int], Repetition | None]


def said(text: str) -> ToolResultMessage:
    """Return a result."""
    return ToolResultMessage("c1", "look", (TextContent(text),))


def failed(error: ToolError) -> ToolResultMessage:
    """Return a failed result."""
    return make_error_message("c1", "look", error, 0)


def conversation(rounds: Sequence[tuple[str, str]]) -> list[Message]:
    """Return a conversation of these rounds."""
    found: list[Message] = [UserMessage((TextContent("go"),), 0, "parent")]
    for tools, end in rounds:
        found.append(reply(*(call(name) for name in tools)))
        found.extend(ToolResultMessage("c1", name, (TextContent(end),)) for name in tools)
    return found


def begun(most: int | None = MOST) -> SessionState:
    """Return a session that asks its model for the first time."""
    state = make_initial_state(spec(), Limits(max_repeats=most))
    react(state, stimuli.Adopted(0, tuple(TOOLS), "model", "You work."))
    return state


def one_round(state: SessionState, *results: ToolResultMessage) -> list[Any]:
    """Let the model call once for each result, and return the facts of the last of them."""
    turn = state.turn
    told: list[facts.SessionFact] = []
    react(state, stimuli.ModelAnswered(turn, turn, reply(*(call("look") for _ in results))))
    for index, result in enumerate(results):
        key = f"{turn}.{index}"
        react(state, stimuli.CallPrepared(turn, CheckedCall(key, "look", {"n": 0}, "", 0, True), False))
        told, _ = react(state, stimuli.CallFinished(turn, key, "ok", result))
    return told


def ended_after(most: int, results: Sequence[ToolResultMessage]) -> int | None:
    """Return the number of rounds after which the run ended; None = it went on."""
    state = begun(most)
    for number, result in enumerate(results, 1):
        if any(isinstance(fact, facts.RunFinished) for fact in one_round(state, result)):
            return number
    return None


def counts_what_is_repeated(find_loop: Find, rounds: Sequence[tuple[str, str]]) -> None:
    """Property: a loop is found exactly where the last rounds are some rounds, three times over or more."""
    ends = [(frozenset(tools), end) for tools, end in rounds]

    def times(period: int) -> int:
        kept = next((i for i in range(len(ends) - period) if ends[-1 - i] != ends[-1 - i - period]), None)
        alike = max(0, len(ends) - period) if kept is None else kept
        return min(MOST, 1 + (alike + period - 1) // period)

    def expected_count() -> int | None:
        for period in (1, 2, 3):
            if len(ends) > period and ends[-1 - period][0] == ends[-1][0]:
                if ends[-1 - period] != ends[-1]:
                    return None  # the same calls ended otherwise: a new count
                if times(period) >= MOST - 2:
                    return times(period)
        return None

    expected = expected_count()
    found = find_loop(conversation(rounds), MOST)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.count == expected


@given(ROUNDS)
@example([("b", "x"), ("b", "x"), ("ab", "x"), ("b", "x"), ("b", "x"), ("ab", "x"), ("b", "x")])
def test_loops_are_counted(rounds: Sequence[tuple[str, str]]) -> None:
    """For any rounds, against a plain second opinion."""
    counts_what_is_repeated(find_repetition, rounds)


def _ignores_ends(transcript: Sequence[Message], most: int) -> Repetition | None:
    same = [said("same") if isinstance(each, ToolResultMessage) else each for each in transcript]
    return find_repetition(same, most)


def _forgets_rounds(transcript: Sequence[Message], most: int) -> Repetition | None:
    return find_repetition(transcript[-7:], most)


@pytest.mark.parametrize("broken", [_ignores_ends, _forgets_rounds])
def test_wrong_count_is_found(broken: Find) -> None:
    """Planted: results don't matter; only the newest messages do."""

    def is_wrong(rounds: Sequence[tuple[str, str]]) -> bool:
        try:
            counts_what_is_repeated(broken, rounds)
        except AssertionError:
            return True
        return False

    find(ROUNDS, is_wrong, settings=SEARCH)


def test_model_is_told_once_and_then_the_run_ends() -> None:
    """After three identical calls a notice, after five the end, with the tool and its last result."""
    state = begun()
    told = [one_round(state, said("no such file")) for _ in range(MOST)]
    notices = [
        [fact.message.text for fact in each if isinstance(fact, facts.MessageReceived)] for each in told
    ]
    assert [len(each) for each in notices] == [0, 0, 1, 0, 0]
    assert "look 3 times in a row" in notices[2][0]
    (end,) = [fact for fact in told[-1] if isinstance(fact, facts.RunFinished)]
    assert end.error is not None
    assert "look returned the same 5 times in a row; last: no such file" in end.error
    assert not state.asking


@pytest.mark.parametrize(
    ("results", "after"),
    [
        ([said("running")] * 4 + [said("done")] + [said("gone")] * 4, None),
        ([said(f"running for {seconds} s") for seconds in range(20)], None),
        ([failed(PermissionDenied(PermissionTier.ELEVATED, f"said {n}")) for n in range(9)], 5),
        ([failed(Timeout(n / 7, "look")) for n in range(9)], 5),
        ([failed(ExecutionError(f"status {400 + n}")) for n in range(9)], None),
        ([failed(ExecutionError("status 500"))] * 9, 5),
        ([said(wrap_untrusted("a page", kind="web", source="x")) for _ in range(9)], 5),
        ([said(text) for text in "abababababab"], None),
    ],
    ids=["reset", "poll", "refused", "timeout", "errors", "error", "page", "turns"],
)
def test_what_counts_as_ended_alike(results: Sequence[ToolResultMessage], after: int | None) -> None:
    """A refusal is a refusal and a time-out a time-out; other results are alike if they say the same."""
    assert ended_after(MOST, results) == after


def test_parallel_repeats_count_once_and_a_message_begins_a_new_count() -> None:
    """Four identical calls in one reply are one round; a message of the parent resets the count."""
    state = begun()
    assert not any(isinstance(fact, facts.MessageReceived) for fact in one_round(state, *[said("x")] * 4))
    one_round(state, said("x"))
    react(state, stimuli.Incoming(9, "m1", "go on", "follow_up", "parent"))
    for _ in range(5):  # the reply that was asked for before the message is the first
        assert not any(isinstance(fact, facts.RunFinished) for fact in one_round(state, said("x")))
    assert any(isinstance(fact, facts.RunFinished) for fact in one_round(state, said("x")))


def test_without_a_bound_nothing_ends() -> None:
    """``max_repeats=None``."""
    state = begun(None)
    for _ in range(12):
        one_round(state, said("x"))
    assert state.asking
