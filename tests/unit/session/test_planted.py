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


LATE = frozenset(
    {
        "a child's report ends the rest",
        "a message counts as often as it comes",
        "a new host goes on though it is to stop",
        "a result may come twice",
        "a stop lets calls run on",
        "a typed result may be tried for ever",
        "aborted calls begin a turn",
        "an approval is decided again",
        "an interrupt ends the session",
        "an interrupt lets calls run on",
        "any text is a typed result",
        "every stop is a cancel",
        "failures of one reply count one by one",
        "held calls are never let go",
        "replay counts otherwise",
        "something changes alongside the facts",
        "steering waits for the model",
        "the model is asked twice",
        "turns are not limited",
        "who spoke before is forgotten",
        "who waits does not hear of an interrupt",
    }
)
"""Bugs that take many histories to find; `make test-long` looks for them, `make test` for the others."""
NAMES = [pytest.param(name, marks=pytest.mark.long) if name in LATE else name for name in PLANTED]


@pytest.mark.short(13)
@pytest.mark.covers("REL-S16", "REL-P26", "REL-P33", "REL-S46", "REL-L51")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_planted_bug_is_found(name: str) -> None:
    """Each rule fails on a machine that breaks it, with only that rule being watched."""
    rule, planted = PLANTED[name]

    class Broken(SessionRules):
        machine = planted
        only: tuple[str, ...] = (rule,)

    with pytest.raises(AssertionError, match=f"^{rule}: "):
        run_state_machine_as_test(Broken, settings=SEARCH)
