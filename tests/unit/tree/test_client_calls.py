"""Calls the creating program is to answer, as a tree keeps them: who waits, how the others ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ClientCallEnded,
    ClientCallOpened,
    DecisionRefused,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
    TreeFact,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.tree.decide import decide
from sessiontree.tree.state.protocol import Decided
from sessiontree.tree.state.state import ClosedCall
from tests.unit.tree.harness_fixtures import STRANGER, Harness, Machine
from tests.unit.tree.tree_fixtures import (
    BRANCH,
    WORKER,
    client_call_delegated,
    client_call_withdrawn,
    question_asked,
)
from tests.unit.tree.tree_strategies import TreeRules, picks, ticks


def delegate(harness: Harness, session: str, client_id: str = "c1") -> None:
    """Let a session's call wait for the program."""
    harness.feed(client_call_delegated(harness.now_ms, session, client_id, 900))


def withdraw(harness: Harness, session: str, client_id: str = "c1", how: str = "ok") -> None:
    """Let a session have its result."""
    harness.feed(client_call_withdrawn(harness.now_ms, session, client_id, how, "a1" if how == "ok" else ""))


def test_session_does_not_end_while_its_call_waits() -> None:
    """Its final message is kept; the call's end withdraws that word, for a notice is on its way."""
    harness = Harness().open()
    name = harness.spawn("main", BRANCH)
    delegate(harness, name)
    harness.offer(name)
    assert harness.found(ResultHeld) and not harness.found(SessionEnded)
    withdraw(harness, name)
    assert harness.found(SessionReactivated) and not harness.found(SessionEnded)
    harness.offer(name)
    assert harness.one(SessionEnded).status is SessionStatus.COMPLETED
    assert harness.state.client_ends["c1"] == ClosedCall("ok", "a1")


def test_call_is_handed_over_once() -> None:
    """An id that is known, waiting or ended, changes nothing; nor does one of a session that is gone."""
    harness = Harness().open()
    name = harness.spawn("main", WORKER)
    delegate(harness, name)
    delegate(harness, name)
    assert harness.facts == []
    withdraw(harness, name, how="timeout")
    withdraw(harness, name)
    assert harness.facts == []
    delegate(harness, name)
    assert harness.facts == []
    assert harness.state.client_ends["c1"] == ClosedCall("timeout", "")
    delegate(harness, "main/b9", "c9")
    assert harness.facts == []


@pytest.mark.parametrize("late", [False, True])
def test_session_that_stops_is_owed_nothing(late: bool) -> None:
    """Its calls are taken back at once, and so is one that was handed over just before it heard."""
    harness = Harness().open()
    name = harness.spawn("main", BRANCH)
    if not late:
        delegate(harness, name)
    harness.stop(name)
    if late:
        delegate(harness, name)
    assert harness.one(ClientCallEnded) == ClientCallEnded("c1", "cancelled", "")
    withdraw(harness, name, how="aborted")
    assert harness.facts == []


def test_what_waits_survives_a_snapshot() -> None:
    """Calls that wait, and how others ended, are there after a crash."""
    harness = Harness().open()
    delegate(harness, "main", "c1")
    delegate(harness, "main", "c2")
    withdraw(harness, "main", "c1")
    harness.crash()
    assert [name for name, _ in harness.state.client_calls.items()] == ["c2"]
    assert harness.state.client_ends["c1"].answer_id == "a1"
    assert harness.state.client_calls["c2"].arguments == {"n": 1}


class ClientRules(TreeRules):
    """Everything that can happen to a tree, client calls among it."""

    handed = 0

    @rule(tick=ticks, name=picks)
    def call_is_delegated(self, tick: int, name: int) -> None:
        """A session hands a call over."""
        self.handed += 1
        self.feed(tick, client_call_delegated, self.session(name), f"c{self.handed}", 900)

    @rule(tick=ticks, pick=st.integers(0, 5), how=st.sampled_from(["ok", "timeout", "aborted"]))
    def call_is_withdrawn(self, tick: int, pick: int, how: str) -> None:
        """A call has its result, maybe one that had it before."""
        waiting = [name for name, _ in self.harness.state.client_calls.items()]
        client_id = waiting[pick % len(waiting)] if waiting and pick else f"c{max(1, self.handed - pick)}"
        call = self.harness.state.client_calls.get(client_id)
        session = "main" if call is None else call.session_id
        self.feed(tick, client_call_withdrawn, session, client_id, how, "a1")
        assert client_id not in self.harness.state.client_calls, f"{client_id} has a result and waits"

    @rule(tick=ticks, name=picks)
    def call_is_answered_at_once(self, tick: int, name: int) -> None:
        """A call that is handed over has its result next."""
        self.call_is_delegated(tick, name)
        self.call_is_withdrawn(tick, 0, "ok")

    def teardown(self) -> None:
        """Nothing is owed to anybody once the tree is over."""
        super().teardown()
        if self.harness.is_sound and self.harness.watcher.spawns.specs:
            left = [name for name, _ in self.harness.state.client_calls.items()]
            assert left == [], f"{left} wait after the end"
            opened = [
                each.call.call_id for each in self.harness.history if isinstance(each, ClientCallOpened)
            ]
            closed = [each.client_id for each in self.harness.history if isinstance(each, ClientCallEnded)]
            assert sorted(opened) == sorted(closed), "a call has no end, or two"


SEARCH = settings(
    max_examples=24,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def check(machine: Machine, search: settings = SEARCH) -> None:
    """Run the rules over a machine."""
    run_state_machine_as_test(type("Rules", (ClientRules,), {"machine": machine}), settings=search)


def without(unwanted: Callable[[TreeFact], bool]) -> Machine:
    """Return a machine that never writes some facts."""

    def planted(state: Any, stimulus: Any) -> Any:
        facts, told = decide(state, stimulus)
        return [fact for fact in facts if not unwanted(fact)], told

    return Machine(decide=planted)


@pytest.mark.slow
def test_client_calls_through_any_order_of_events() -> None:
    """What waits is counted, belongs to a living session, and comes to one end."""
    check(Machine())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancelled", "ok"])
def test_call_that_is_not_closed_is_noticed(how: str) -> None:
    """Planted: sessions stop or end, or answer, and their calls stay."""
    with pytest.raises(AssertionError):
        planted = without(lambda fact: isinstance(fact, ClientCallEnded) and fact.how == how)
        check(planted, settings(SEARCH, max_examples=400))  # over with the first that finds it


def test_question_is_shown_by_the_nearest_channel() -> None:
    """A Branch with a channel shows what is asked below it; Main shows the rest; a program's call nobody."""
    harness = Harness().open()
    owner = harness.spawn("main", BRANCH, owns_channel=True)
    below, beside = harness.spawn(owner, BRANCH), harness.spawn("main", BRANCH)
    for number, session in enumerate((owner, below, beside)):
        harness.feed(question_asked(harness.now_ms, session, f"q{number}", 900))
    delegate(harness, beside)
    shown = {name: call.asked for name, call in harness.state.client_calls.items()}
    assert shown == {"q0": owner, "q1": owner, "q2": "main", "c1": ""}


def test_nobody_decides_a_question_and_a_stranger_is_refused() -> None:
    """A decision by its id is too late; one of a stranger is recorded; it waits on."""
    harness = Harness().open()
    name = harness.spawn("main", BRANCH)
    harness.feed(question_asked(harness.now_ms, name, "q1", 900))
    harness.feed(Decided(harness.now_ms, "q1", True, True, "ada", ""))
    harness.feed(Decided(harness.now_ms, "q1", False, False, "bob", "", STRANGER, "browser"))
    assert harness.one(DecisionRefused) == DecisionRefused("q1", STRANGER, False, "browser")
    assert not harness.found(ApprovalDecided)
    assert "q1" in harness.state.client_calls
