"""Untrusted text in a session: a fact, once, whatever it comes by, and for life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import TaintReported
from sessiontree.contracts.settings.settings import Limits
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.state import SessionState, make_initial_state
from tests.unit.session.machine_fixtures import rebuild
from tests.unit.session.session_fixtures import call, finished, reply, spec

React = Callable[[SessionState, Any], Any]


def running(react_: React, state: SessionState, *, untrusted: bool, outside: bool = False) -> list[Any]:
    """Let one call of a session end; return the facts and instructions of the step."""
    asked = call("look")
    if outside:
        react_(state, stimuli.CallAsked(1, "c1", "look", {}))
        key = "call.c1"
    else:
        react_(state, stimuli.Incoming(1, f"m{state.turn}", "go", "follow_up", "user"))
        react_(state, stimuli.ModelAnswered(2, state.turn, reply(asked)))
        key = f"{state.turn}.0"
    ended = replace(finished(3, key, asked, "ok"), untrusted=untrusted)
    new, told = react_(state, ended)
    return [*new, *told]


def is_a_fact_for_life(react_: React) -> None:
    """Property: the first untrusted result is one fact and one report, and replay says the same."""
    state = make_initial_state(spec(), Limits())
    assert facts.Tainted not in map(type, running(react_, state, untrusted=False))
    assert state.taint == ""
    running(react_, state, untrusted=True, outside=True)
    assert state.taint == "", "the model never sees what the program asked for"
    step = running(react_, state, untrusted=True)
    assert [each for each in step if isinstance(each, facts.Tainted | todo.ToTree)] == [
        facts.Tainted("look"),
        todo.ToTree(TaintReported("look")),
    ]
    again = running(react_, state, untrusted=True)
    assert not [each for each in again if isinstance(each, facts.Tainted | todo.ToTree)]
    assert state.taint == "look"
    _, told = react_(state, stimuli.Recovered(9))
    assert todo.ToTree(TaintReported("look")) in told


def test_untrusted_text_is_a_fact_for_life() -> None:
    """Of a model's call, not of the program's; said again after a loss."""
    is_a_fact_for_life(react)


@pytest.mark.parametrize(
    "change",
    [
        lambda stimulus: replace(stimulus, untrusted=False) if hasattr(stimulus, "untrusted") else stimulus,
        lambda stimulus: replace(stimulus, untrusted=True) if hasattr(stimulus, "untrusted") else stimulus,
    ],
    ids=["never", "always"],
)
def test_planted_bugs_are_found(change: Callable[[Any], Any]) -> None:
    """A machine that takes in nothing, or everything."""
    with pytest.raises(AssertionError):
        is_a_fact_for_life(lambda state, stimulus: react(state, change(stimulus)))


@pytest.mark.parametrize("source", ["", "session main/b1"])
def test_message_brings_the_taint_of_who_sent_it(source: str) -> None:
    """A child's result, as the tree says of it; replayed it is the same."""
    state = make_initial_state(spec(), Limits())
    said = stimuli.Incoming(1, "m1", "done", "follow_up", "child", taint=source)
    new, _ = react(state, said)
    assert state.taint == source
    assert rebuild(spec(), Limits(), new).taint == source


def test_child_of_a_tainted_parent_is_tainted_from_its_first_moment() -> None:
    """By its spec, which is journaled."""
    assert make_initial_state(replace(spec(), taint="session main"), Limits()).taint == "session main"
