"""What a session is follows from its journaled facts alone, after every one of them.

S38: replay makes the same state. FORK: another tree can begin from it, and no effect is begun there again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any

from sessiontree.contracts.facts.session_facts import CallResolved, SessionFact
from sessiontree.contracts.facts.stimuli import Forked, Stimulus
from sessiontree.contracts.recorded.codec import from_wire, list_parts, pack_joined
from sessiontree.session.state import SessionState, make_initial_state
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.machine_fixtures import Machine, through_json

NEWEST = 6
_FROZEN = {"spec", "limits"}
_FIELDS = [
    field.name for field in dataclasses.fields(SessionState) if field.name not in {*_FROZEN, "transcript"}
]


def normal_form(state: SessionState, newest: int = 0) -> str:
    """Return all of a state as text, in order; of the transcript the newest messages, or all of them.

    A transcript only grows and its messages are frozen, so that steps need to compare what is new.
    """
    rest = ", ".join(f"{name}={getattr(state, name)!r}" for name in _FIELDS)
    return f"{len(state.transcript)} {state.transcript[-newest:]!r} {rest}"


class Replay:
    """Three more states: of facts as the journal gives them back, as they were decided, and joined."""

    def __init__(self, judge: Judge, machine: Machine, state: SessionState) -> None:
        """Start from a state nothing has happened to."""
        self.judge = judge
        self.machine = machine
        self.rebuilt([], state)

    def rebuilt(self, facts: Iterable[SessionFact], live: SessionState) -> None:
        """Start from facts."""
        facts = list(facts)
        self.state = self.machine.rebuild(live.spec, live.limits, facts)
        self._beside = make_initial_state(live.spec, live.limits)
        self._joined = make_initial_state(live.spec, live.limits)
        for fact in facts:
            self.machine.evolve(self._beside, fact)
            self.machine.evolve(self._joined, fact)

    def step(self, live: SessionState, stimulus: Stimulus, facts: list[SessionFact]) -> None:
        """Judge one step the live state took."""
        if self.judge.watches("FORK"):
            self._forks(live, stimulus.at_ms)
        if not self.judge.watches("S38"):
            return
        decided = self._unchanged(self.machine.decide, stimulus)
        same = decided.facts == facts[: len(decided.facts)]
        self.judge.require(same, "S38", f"decides {decided.facts} and does {facts}")
        for fact in facts:
            self.machine.evolve(self.state, through_json(fact))
            self.machine.evolve(self._beside, fact)
            same = self._form(self._beside) == self._form(self.state)
            self.judge.require(same, "S38", f"replay differs after {fact}")
        whole = [from_wire(json.loads(text)) for text in pack_joined(facts)]
        parts = [part for fact in whole for part in list_parts(fact)]
        self.judge.require(parts == facts, "S38", f"{whole} holds {parts} and not {facts}")
        for fact in whole:
            self.machine.evolve(self._joined, fact)
        same = self._form(self._joined) == self._form(self.state)
        self.judge.require(same, "S38", f"replay of joined facts differs after {stimulus}")
        self._unchanged(self.machine.advance, stimulus.at_ms)
        self.judge.require(
            self._form(live) == self._form(self.state), "S38", f"the live state differs after {stimulus}"
        )

    def _forks(self, live: SessionState, at_ms: int) -> None:
        decided = self.machine.decide(live, Forked(at_ms, 0))
        settled = {fact.key for fact in decided.facts if isinstance(fact, CallResolved)}
        gone = {key for key, call in live.calls.items() if call.phase == "intended" or call.outside}
        self.judge.require(gone <= settled, "FORK", f"a fork would wait for {sorted(gone - settled)}")

    def _unchanged(self, decide: Callable[[SessionState, Any], Any], given: object) -> Any:
        before = self._form(self._beside)
        decided = decide(self._beside, given)
        same = self._form(self._beside) == before
        self.judge.require(same, "S38", f"deciding on {given} changed the state")
        return decided

    def _form(self, state: SessionState) -> str:
        return normal_form(state, NEWEST)

    def settled(self, live: SessionState) -> None:
        """Compare everything."""
        if self.judge.watches("S38"):
            same = normal_form(live) == normal_form(self.state)
            self.judge.require(same, "S38", "replay differs at the end")
