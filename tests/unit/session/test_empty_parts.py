"""The lists and tables of a state that waits: empty ones take no room, and come back empty."""

from __future__ import annotations

import pytest

from sessiontree import Limits
from sessiontree.session.state import _CONTAINERS, make_initial_state
from tests.unit.session.session_fixtures import spec


def test_empty_parts_come_back_for_each_state_alone() -> None:
    """What is in the others stays, and nothing that is written later is lost or shared."""
    one, other = (make_initial_state(spec(), Limits()) for _ in range(2))
    one.unanswered.append("m1")
    kept = one.unanswered
    for state in (one, other):
        state.release_empty()
    gone = [name for name in _CONTAINERS if name != "unanswered"]
    for name in gone:
        with pytest.raises(AttributeError):
            object.__getattribute__(one, name)
    assert one.unanswered is kept
    assert [getattr(one, name) for name in gone] == [_CONTAINERS[name]() for name in gone]
    one.heard["m1"] = None
    assert (one.heard, other.heard) == ({"m1": None}, {})
    one.unanswered.clear()
    one.heard.clear()
    assert one == other == make_initial_state(spec(), Limits())
    with pytest.raises(AttributeError, match="absent"):
        one.absent  # noqa: B018 - asked for
