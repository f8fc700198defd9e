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


def try_everything(machine: Machine) -> None:
    """Tell a machine every story, then leave it to chance."""
    for story in STORIES:
        story(Harness(machine))
    run_state_machine_as_test(rules_for(machine), settings=SEARCH)


@pytest.mark.covers("REL-P9", "REL-S13", "REL-S14", "REL-S15", "REL-S17", "REL-S19", "REL-L49")
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    """The invariant named alongside a bug, and no accident, fails on it."""
    machine, invariants = PLANTED[name]
    with pytest.raises(AssertionError, match=f"^({invariants}): "):
        try_everything(machine)
