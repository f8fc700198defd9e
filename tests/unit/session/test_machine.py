"""The session machine through any order of events, judged by a second opinion after every step."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.session.session_strategies import SessionRules

PATIENCE = [0.0, 30.0, None]


@pytest.mark.covers("REL-S16", "REL-P26", "REL-P33", "REL-S38", "REL-L11", "REL-L51", "ORD7")
@pytest.mark.parametrize("patience_s", PATIENCE)
def test_nothing_that_must_never_be_is_ever_found(patience_s: float | None) -> None:
    """P21 to P26, P33, S14 to S20, S38, S42 to S46: after every step of any history, losses included."""

    class Patient(SessionRules):
        patience: tuple[float | None, ...] = (patience_s,)

    share = -(-settings().max_examples // len(PATIENCE))
    run_state_machine_as_test(Patient, settings=settings(max_examples=share, stateful_step_count=40))
