"""Every invariant finds the bug it is there for: broken machines do not pass."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.tree.broken_machine_fakes import PLANTED
from tests.unit.tree.harness_fixtures import Harness, Machine
from tests.unit.tree.story_fixtures import STORIES
from tests.unit.tree.tree_strategies import rules_for

SEARCH = settings(
    max_examples=600,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
"""Finds each of them, and the same way every time; nothing is made smaller, for nobody is to read it."""


LATE = frozenset(
    {
        "a cancel is kept quiet",
        "a decision is taken twice",
        "a denial outlives its lifting",
        "a life begins again with each host",
        "a model may own a channel",
        "a refusal tells what there is",
        "a session stops its siblings",
        "a session stops what it does not know",
        "an expiry is kept quiet",
        "an interrupt is heard by its head alone",
        "an interrupt stops what is below",
        "children are not informed that a parent stops",
        "decide changes the state",
        "nothing is returned at the end",
        "one child too few",
    }
)
"""Bugs that take many histories to find; `make test-long` looks for them, `make test` for the others."""
NAMES = [pytest.param(name, marks=pytest.mark.long) if name in LATE else name for name in PLANTED]


def try_everything(machine: Machine) -> None:
    """Tell a machine every story, then leave it to chance."""
    for story in STORIES:
        story(Harness(machine))
    run_state_machine_as_test(rules_for(machine), settings=SEARCH)


@pytest.mark.short(13)
@pytest.mark.covers("REL-P9", "REL-S13", "REL-S14", "REL-S15", "REL-S17", "REL-S19", "REL-L49")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_planted_bug_is_found(name: str) -> None:
    """The invariant named alongside a bug, and no accident, fails on it."""
    machine, invariants = PLANTED[name]
    with pytest.raises(AssertionError, match=f"^({invariants}): "):
        try_everything(machine)
