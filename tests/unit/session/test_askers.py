"""Whom a session acts for, in examples; the rule itself is ``asker_books``."""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.facts.session_facts import ActsFor
from sessiontree.contracts.facts.stimuli import Adopted
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.settings import Limits
from tests.unit.session.session_fixtures import TOOLS, spec
from tests.unit.session.session_strategies import BOB, OLGA
from tests.unit.session.world_fakes import World, opened


def test_child_acts_for_those_its_parent_acted_for() -> None:
    """Its task is theirs; who speaks to it besides joins them."""
    world = World(replace(spec(SessionKind.BRANCH), asked_by=(BOB,)), Limits())
    world.give(Adopted(0, tuple(TOOLS), "scripted", ""))
    assert world.found(ActsFor) == [ActsFor((BOB,))]
    world.hear("m1", "and that", "steer", by=(OLGA,))
    assert world.found(ActsFor) == [ActsFor((BOB, OLGA))]


def test_program_is_not_named() -> None:
    """A tree that hears the program alone has no fact about askers."""
    world = opened()
    world.hear("m1", "and that")
    world.replies(text="done")
    assert world.live.asked_by == ()
    assert not world.found(ActsFor)
