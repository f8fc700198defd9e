"""Every invariant finds the bug it is there for: broken machines do not pass."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.tree.harness import Harness, Machine
from tests.tree.planted import PLANTED
from tests.tree.rules import rules_for
from tests.tree.stories import STORIES

SEARCH = settings(
    max_examples=240,
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


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    """The invariant named beside a bug, and no accident, fails on it."""
    machine, invariants = PLANTED[name]
    with pytest.raises(AssertionError, match=f"^({invariants}): "):
        try_everything(machine)
