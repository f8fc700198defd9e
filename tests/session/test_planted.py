"""The second opinion on the session machine notices whatever it is there for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.session.planted import PLANTED
from tests.session.rules import SessionRules

SEARCH = settings(
    max_examples=1500,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


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
