"""The live tree: whatever facts arrive, it counts what the machines themselves count."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.cli.live_view import Pace, draw_picture
from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    CancelBegun,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
    TreeFact,
    UsageCharged,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.codec import list_parts, pack, pack_joined
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.reports.events import (
    TextDelta,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
)
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from sessiontree.journal.replay import read_fact
from sessiontree.session.evolve import evolve as evolve_session
from sessiontree.session.state import make_initial_state
from sessiontree.tree.state.evolve import evolve as evolve_tree
from sessiontree.tree.state.state import make_initial_tree
from sessiontree.view.live_tree import LiveTree
from sessiontree.view.session_panel import SessionPanel
from tests.unit.view.live_strategies import ended, record, records, requested, spawned, tree_facts

Take = Callable[[LiveTree, Any], None]
SMALL = settings(max_examples=200, deadline=None, database=None, phases=(Phase.generate,))
"""How long a planted bug is looked for; what is found is not made smaller."""


def counts_are_those_of_the_machine(take: Take, facts: list[TreeFact]) -> None:
    """After each fact every count is that of the tree machine's state."""
    tree, state, used = LiveTree(), make_initial_tree(), Usage()
    for one, fact in zip(records(facts), facts, strict=True):
        take(tree, one)
        evolve_tree(state, fact)
        assert (tree.total, tree.live, tree.open_requests) == (state.total, state.live, state.open_requests)
        charges = [part.usage for part in list_parts(fact) if isinstance(part, UsageCharged)]
        used = sum(charges, used)
        assert tree.usage == used
    sessions = dict(state.sessions.items())
    assert list(tree.sessions) == list(sessions)
    assert tree.ended == Counter(each.status for each in _finished(facts))
    for name, session in sessions.items():
        shown = tree.sessions[name]
        assert shown.is_ended == (not session.is_live)
        assert shown.live_below == session.live_below
        assert list(shown.live_children) == state.children.list_members(name)
        below = [
            each for each in sessions.values() if session in list(state.list_chain(each.spec.session_id))[1:]
        ]
        assert shown.live_below + shown.ended_below == len(below)
        if session.is_live:
            assert shown.status is session.status
            assert len(shown.pending) == session.pending
            assert shown.is_stopping == (session.stop is not None)


def _finished(facts: list[TreeFact]) -> list[SessionEnded]:
    """Return for each session that ended the fact that ended it: the first."""
    spawned_ids: set[str] = set()
    seen: dict[str, SessionEnded] = {}
    for fact in facts:
        if isinstance(fact, SessionEnded) and fact.session in spawned_ids:
            seen.setdefault(fact.session, fact)
        elif not isinstance(fact, SessionEnded) and hasattr(fact, "spec"):
            spawned_ids.add(fact.spec.session_id)
    return list(seen.values())


@pytest.mark.slow
@given(tree_facts())
def test_counts_are_those_of_the_tree_machine(facts: list[TreeFact]) -> None:
    """Sessions, live ones, ended ones, those below each, and open requests: all are as evolved."""
    counts_are_those_of_the_machine(LiveTree.take, facts)


def joined(facts: list[Any]) -> list[Any]:
    """Return facts as the journal holds them."""
    return [read_fact(text) for text in pack_joined(facts)]


@pytest.mark.slow
@given(tree_facts())
def test_counts_of_joined_facts_are_those_of_the_tree_machine(facts: list[TreeFact]) -> None:
    """The end of a session may hold its last charge and its report."""
    counts_are_those_of_the_machine(LiveTree.take, joined(facts))


def _ends_twice(tree: LiveTree, one: Any) -> None:
    if one.text.startswith('{"kind":"session_ended"'):
        for session in tree.sessions.values():
            if f'"{session.session_id}"' in one.text:
                session.is_ended = False
    tree.take(one)


def _forgets_decisions(tree: LiveTree, one: Any) -> None:
    if "approval_decided" not in one.text:
        tree.take(one)


def _counts_parents_only(tree: LiveTree, one: Any) -> None:
    tree.take(one)
    for session in tree.sessions.values():
        session.live_below = len(session.live_children)


def _never_stirs(tree: LiveTree, one: Any) -> None:
    if "session_reactivated" not in one.text:
        tree.take(one)


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_ends_twice, _forgets_decisions, _counts_parents_only, _never_stirs])
def test_wrong_count_is_found(bug: Take) -> None:
    """The property fails where an end counts twice, decisions are lost, what is deep or awake is missed."""

    @SMALL
    @given(tree_facts())
    def found(facts: list[TreeFact]) -> None:
        counts_are_those_of_the_machine(bug, facts)

    with pytest.raises(AssertionError):
        found()


CALLS = st.lists(st.builds(ToolCall, st.sampled_from("abc"), st.just("read"), st.just({})), max_size=3)


def _result(call_id: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", (TextContent("ok"),))


@st.composite
def talks(draw: st.DrawFn) -> list[Any]:
    """Return the facts of a session that takes turns: replies follow questions, and calls are settled."""
    facts: list[Any] = []
    open_keys: list[str] = []
    turn, asking = 0, False
    for number in range(draw(st.integers(0, 25))):
        if draw(st.integers(0, 9)) == 0:
            facts.append(said.CallOpened(f"call.{number}", "x", "write", {"path": "p"}))
        elif draw(st.integers(0, 9)) == 0:
            facts.append(said.CallResolved(f"call.{number - 1}", "ok", _result("a")))
        elif open_keys:
            key = open_keys.pop(draw(st.integers(0, len(open_keys) - 1)))
            parked = draw(st.integers(0, 4)) == 0
            facts.append(
                said.CallParked(key, _result("a")) if parked else said.CallResolved(key, "ok", _result("a"))
            )
        elif not asking and draw(st.integers(0, 4)) == 0:
            turn += 1
            facts.append(said.CompactionBegun(turn, 0, ()))
            facts.append(said.CompactionFailed(turn, "no", None))
        elif not asking:
            turn, asking = turn + 1, True
            facts.append(said.TurnStarted(turn, 0, fresh_run=False))
        else:
            asking = False
            calls = draw(CALLS)
            open_keys = [f"{turn}.{index}" for index in range(len(calls))]
            message = AssistantMessage((TextContent("well"), *calls))
            failed = not calls and draw(st.booleans())
            facts.append(said.TurnFailed(turn, "no") if failed else said.TurnReplied(turn, message))
    return facts


def session_is_as_the_machine_says(take: Take, facts: list[Any]) -> None:
    """After each fact the turn, the question and the open calls are those of the session machine."""
    tree = LiveTree()
    spec = spawned("main")
    tree.take(record(1, spec))
    state = make_initial_state(spec.spec, Limits())
    for one, fact in zip(records(facts, "main"), facts, strict=True):
        take(tree, one)
        evolve_session(state, fact)
        shown = tree.sessions["main"]
        assert (shown.turns, shown.is_asking) == (state.turn, state.asking)
        under_way = [call for call in state.calls.values() if not call.parked]
        assert len(shown.calls()) == len(under_way)
        if under_way:
            assert shown.state() == "calling"
        elif state.asking:
            assert shown.state() == "waiting for model"


@given(talks())
def test_calls_under_way_are_those_of_the_session_machine(facts: list[Any]) -> None:
    """What a session calls is what its machine holds open, from facts alone."""
    session_is_as_the_machine_says(LiveTree.take, facts)


@given(talks())
def test_joined_facts_of_a_session_are_shown_as_single_ones(facts: list[Any]) -> None:
    """The result of a call may hold the turn that follows it."""
    session_is_as_the_machine_says(LiveTree.take, joined(facts))


def _overlooks_held_turns(tree: LiveTree, one: Any) -> None:
    tree.take(replace(one, text=pack(list_parts(read_fact(one.text))[0])))


def test_overlooked_turn_is_found() -> None:
    """The property fails where only the first of joined facts is read."""

    @SMALL
    @given(talks())
    def found(facts: list[Any]) -> None:
        session_is_as_the_machine_says(_overlooks_held_turns, joined(facts))

    with pytest.raises(AssertionError):
        found()


def _drops_first_resolved(tree: LiveTree, one: Any) -> None:
    if one.text.startswith('{"kind":"call_resolved"') and '"key":"1.0"' in one.text:
        return
    tree.take(one)


def _keeps_settled(tree: LiveTree, one: Any) -> None:
    kept = set(tree.sessions["main"].settled)
    tree.take(one)
    tree.sessions["main"].settled |= {key.replace("1.", "2.") for key in kept}


@pytest.mark.parametrize("bug", [_drops_first_resolved, _keeps_settled])
def test_wrong_call_is_found(bug: Take) -> None:
    """The property fails where a result is lost, and where one turn's results settle the next one's calls."""

    @SMALL
    @given(talks())
    def found(facts: list[Any]) -> None:
        session_is_as_the_machine_says(bug, facts)

    with pytest.raises(AssertionError):
        found()


def _tree(*facts: Any) -> LiveTree:
    tree = LiveTree()
    for one in records(facts):
        tree.take(one)
    return tree


def test_events_tell_of_calls_before_facts_do() -> None:
    """A call that began is shown until its end or the fact of its result; other events change nothing."""
    tree = _tree(spawned("main"))
    main = tree.sessions["main"]
    tree.see("main", ToolExecutionStart("c1", "read", {"path": "a"}))
    tree.see("main", ToolExecutionStart("c2", "grep", {}))
    tree.see("main", TextDelta("hello"))
    tree.see("main/b7", ToolExecutionStart("c1", "read", {}))
    assert main.calls() == ['read {"path":"a"}', "grep {}"]
    assert main.state() == "calling"
    tree.see("main", ToolExecutionRetry("c2", "grep", 1, 3, "timeout", 0.5))
    tree.see("main", ToolExecutionRetry("c9", "grep", 1, 3, "timeout", 0.5))
    assert main.calls()[1:] == ["attempt 2 of 3: grep {}"]
    tree.see("main", ToolExecutionEnd("c1", "read", "", is_error=False))
    assert main.calls() == ["attempt 2 of 3: grep {}"]
    tree.take(record(2, said.CallResolved("1.0", "ok", _result("c2")), "main"))
    assert (main.calls(), main.state()) == ([], "active")


@pytest.mark.covers("A22")
def test_what_a_tool_said_to_people_is_shown_until_the_next_says_something() -> None:
    """With the tool's name and made visible; a call without a line for people shows none."""
    tree = _tree(spawned("main"))
    main = tree.sessions["main"]
    assert main.get_last_display() == ""
    details: dict[str, JsonValue] = {"display": "3 places\x1b[2J found", "details": None}
    result = ToolResultMessage("c1", "look", (TextContent("{}"),), details, False, 0)
    tree.take(record(2, said.CallResolved("1.0", "ok", result), "main"))
    assert main.get_last_display() == "look: 3 places\\u{1b}[2J found"
    tree.take(record(3, said.CallResolved("1.1", "ok", _result("c2")), "main"))
    assert main.get_last_display() == ""


def test_session_that_ended_shows_nothing_more() -> None:
    """Late facts and events of a session that has ended change nothing."""
    tree = _tree(spawned("main"), requested("r1", "main"), ended("main", SessionStatus.FAILED))
    main = tree.sessions["main"]
    tree.see("main", ToolExecutionStart("c1", "read", {}))
    tree.take(record(4, said.TurnStarted(9, 0, fresh_run=True), "main"))
    assert (main.calls(), main.turns, main.state()) == ([], 0, "failed")
    assert tree.is_over


def test_states_say_what_is_waited_for() -> None:
    """An approval before all else, then the wish to stop, a call, the model, children; else plain words."""
    word: SessionResult[Any] = SessionResult(SessionStatus.COMPLETED, "so far")
    tree = _tree(
        spawned("main"), spawned("main/b1", "main"), ResultHeld("main", word), ResultHeld("main/b1", word)
    )
    main, branch = tree.sessions["main"], tree.sessions["main/b1"]
    assert (main.state(), branch.state()) == ("waiting for children", "suspended")
    tree.take(record(5, SessionReactivated("main/b1")))
    assert branch.state() == "active"
    tree.take(record(6, said.TurnStarted(1, 0, fresh_run=True), "main/b1"))
    assert branch.state() == "waiting for model"
    tree.take(record(7, requested("r1", "main/b1", where="here")))
    assert (branch.state(), branch.calls()) == ("waiting for approval", ['deploy {"where":"here"}'])
    tree.take(record(8, CancelBegun(("main/b1", "main/b9"), "enough", SessionStatus.CANCELLED, 0)))
    assert branch.state() == "waiting for approval"
    tree.take(record(9, ApprovalDecided("r1", "cancelled", "stop", "")))
    assert (branch.state(), branch.calls(), tree.open_requests) == ("stopping", [], 0)


def test_what_is_counted_counts_for_all_above() -> None:
    """A Worker's files are its own, its Branch's, Main's and the tree's."""
    tree = _tree(
        spawned("main"), spawned("main/b1", "main"), spawned("main/b1/w1", "main/b1"), ended("main/b1/w1")
    )
    tree.count("main/b1/w1", 7)
    tree.count("main/b1", 1)
    assert [session.done for session in tree.sessions.values()] == [8, 8, 7]
    assert tree.done == 8


@pytest.mark.slow
@given(tree_facts(), st.integers(0, 30))
def test_chosen_sessions_are_live_few_and_stand_below_chosen_ones(facts: list[TreeFact], most: int) -> None:
    """Never more than asked for; each once, below its parent; and nothing is left out that finds room."""
    tree = _tree(*facts)
    chosen = tree.chosen(most)
    rows = [session for children in chosen.values() for session in children]
    assert len(rows) == len({session.session_id for session in rows}) <= most
    assert all(not session.is_ended or session.session_id == "main" for session in rows)
    for parent, children in chosen.items():
        assert all(session.parent == parent for session in children if parent)
    reachable = sum(1 for name in tree.sessions if _is_reachable(tree, name))
    assert len(rows) == min(most, reachable)


def _is_reachable(tree: LiveTree, name: str) -> bool:
    """Whether a session lives, and all above it; Main is shown either way."""
    session: SessionPanel | None = tree.sessions[name]
    while session is not None:
        if session.is_ended and session.session_id != "main":
            return False
        session = tree.sessions.get(session.parent or "")
    return True


def test_few_lines_tell_of_many_places() -> None:
    """Of ten Branches of ten Workers each, six rows show three Branches and Workers of two."""
    facts = [spawned("main")]
    for branch in range(1, 11):
        facts.append(spawned(f"main/b{branch}", "main"))
        facts += [spawned(f"main/b{branch}/w{worker}", f"main/b{branch}") for worker in range(1, 11)]
    chosen = _tree(*facts).chosen(6)
    rows = [session.session_id for children in chosen.values() for session in children]
    assert sorted(rows) == ["main", "main/b1", "main/b1/w1", "main/b2", "main/b2/w1", "main/b3"]


def _steps_of(work: Callable[[], object]) -> int:
    """Return how many calls Python makes in some work."""
    steps = 0

    def count(_frame: Any, event: str, _more: Any) -> None:
        nonlocal steps
        steps += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return steps


@pytest.mark.slow
def test_picture_of_ten_thousand_costs_what_one_of_a_hundred_costs() -> None:
    """What a fact and a picture cost depends on depth and place, not on the size of the tree."""
    small, large = (
        _tree(spawned("main"), *(spawned(f"main/w{number}", "main") for number in range(size)))
        for size in (100, 10_000)
    )
    pace = Pace(1.0)
    drawn = [_steps_of(partial(draw_picture, tree, pace, 80, 24)) for tree in (small, large)]
    assert drawn[1] <= drawn[0] * 1.1
    fact = record(1, ended("main/w50"))
    taken = [_steps_of(partial(tree.take, fact)) for tree in (small, large)]
    assert taken[0] == taken[1]


def test_long_reply_is_looked_into_once_and_only_when_shown() -> None:
    """Taking a reply in costs the same however long it is."""
    replies = [
        said.TurnReplied(1, AssistantMessage((ToolCall("a", "write", {"text": "x" * size}),)))
        for size in (9, 10**6)
    ]
    steps = []
    for reply in replies:
        tree = _tree(spawned("main"))
        one = record(2, reply, "main")
        steps.append(_steps_of(partial(tree.take, one)))
        (shown,) = tree.sessions["main"].calls()
        assert shown.startswith('write {"text":"x')
        assert len(shown) <= 160
    assert steps[0] == steps[1]
    assert len(pack(replies[1])) > 10**6
