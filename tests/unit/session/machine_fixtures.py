"""The functions under test, as one value; tests of tests replace some by broken variants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import Incoming, Stimulus
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.settings.settings import Limits
from sessiontree.session import turns
from sessiontree.session.calls import Decision
from sessiontree.session.decide import decide, react
from sessiontree.session.evolve import evolve
from sessiontree.session.instructions import SessionInstruction
from sessiontree.session.state import SessionState, make_initial_state

Decide: TypeAlias = Callable[[SessionState, Stimulus], Decision]
Advance: TypeAlias = Callable[[SessionState, int], Decision | None]
Evolve: TypeAlias = Callable[[SessionState, SessionFact], SessionState]
React: TypeAlias = Callable[[SessionState, Stimulus], tuple[list[SessionFact], list[SessionInstruction]]]
Rebuild: TypeAlias = Callable[[SessionSpec, Limits, Iterable[SessionFact]], SessionState]

MAX_ROUNDS = 40
"""A machine that decides more often than this on one stimulus goes round for ever."""


def through_json(fact: SessionFact) -> SessionFact:
    """Return a fact as it comes back from the journal."""
    back: SessionFact = codec.from_wire(json.loads(codec.pack(fact)))
    return back


def rebuild(spec: SessionSpec, limits: Limits, facts: Iterable[SessionFact]) -> SessionState:
    """Return the state that journaled facts make."""
    state = make_initial_state(spec, limits)
    for fact in facts:
        evolve(state, through_json(fact))
    return state


def assembled(decide: Decide, advance: Advance, evolve: Evolve) -> React:
    """Return what a host calls, made of its parts."""

    def react(state: SessionState, stimulus: Stimulus) -> tuple[list[SessionFact], list[SessionInstruction]]:
        decision: Decision = decide(state, stimulus)
        facts, told = list(decision.facts), list(decision.instructions)
        for fact in facts:
            evolve(state, fact)
        if isinstance(stimulus, Incoming) and stimulus.followed:
            return facts, told
        for _ in range(MAX_ROUNDS):
            more = advance(state, stimulus.at_ms)
            if more is None:
                return facts, told
            for fact in more.facts:
                evolve(state, fact)
            facts.extend(more.facts)
            told.extend(more.instructions)
            if not more.facts:
                return facts, told
        raise AssertionError(f"S20: decides for ever after {stimulus}")

    return react


@dataclass(frozen=True, slots=True)
class Machine:
    """A session machine in its parts; ``react`` is all of them together."""

    react: React = react
    decide: Decide = decide
    advance: Advance = turns.advance
    evolve: Evolve = evolve
    rebuild: Rebuild = rebuild


def broken(
    *,
    decide: Decide = decide,
    advance: Advance = turns.advance,
    evolve: Evolve = evolve,
    rebuild: Rebuild = rebuild,
) -> Machine:
    """Return a machine with some of its parts replaced."""
    return Machine(assembled(decide, advance, evolve), decide, advance, evolve, rebuild)


REAL = Machine()
