"""The second opinion on the session machine notices whatever it is there for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.session.broken_machine_fakes import PLANTED
from tests.unit.session.session_strategies import SessionRules

SEARCH = settings(
    max_examples=1500,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.covers("REL-S16", "REL-P26", "REL-P33", "REL-S46", "REL-L51")
@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    """Each rule fails on a machine that breaks it, with only that rule being watched."""
    rule, planted = PLANTED[name]

    class Broken(SessionRules):
        machine = planted
        only: tuple[str, ...] = (rule,)

    with pytest.raises(AssertionError, match=f"^{rule}: "):
        run_state_machine_as_test(Broken, settings=SEARCH)
