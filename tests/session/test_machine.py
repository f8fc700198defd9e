"""The session machine through any order of events, judged by a second opinion after every step."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.session.rules import SessionRules


def test_nothing_that_must_never_be_is_ever_found() -> None:
    """P21 to P26, P33, S14 to S20, S38, S42 to S46: after every step of any history, losses included."""
    run_state_machine_as_test(SessionRules, settings=settings(stateful_step_count=40))
