"""The usage of a session: turns and calls as counted, everything else as the model reported it."""

from __future__ import annotations

from dataclasses import fields, replace

from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import Usage
from sessiontree.session.state import make_initial_state
from tests.unit.session.session_fixtures import spec


def test_usage_has_every_amount_that_was_reported() -> None:
    """Each member of a usage is passed on, also one that is added later."""
    state = make_initial_state(spec(), Limits())
    for at, each in enumerate(fields(Usage), 1):
        state.reported = replace(state.reported, **{each.name: at * 10})
    state.replies, state.calls_made = 3, 7
    assert state.usage == replace(state.reported, turns=3, tool_calls=7)
