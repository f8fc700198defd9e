"""Saying something to people: at the nearest channel, by who may."""

from __future__ import annotations

import pytest

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.tree_facts import ChannelSaid
from sessiontree.tree.instructions import RefuseSay
from sessiontree.tree.stimuli import SayAsked
from tests.tree.harness import Harness
from tests.tree.words import BRANCH, WORKER


@pytest.mark.covers("A35")
def test_a_branch_speaks_on_the_nearest_channel() -> None:
    """Its own, its parent's, or the next above."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, owns_channel=True)
    inner = harness.spawn(branch, BRANCH)
    for session, channel in (("main", "main"), (branch, branch), (inner, branch)):
        harness.feed(SayAsked(0, session, "hello"))
        assert harness.facts == [ChannelSaid(session, channel, "hello")]


@pytest.mark.parametrize("name", ["main/w1", "main/b1", "main/b9"])
def test_who_may_not_speak_is_told_so(name: str) -> None:
    """A Worker, an ended session and an unknown one say nothing."""
    harness = Harness().open()
    harness.spawn("main", WORKER)
    harness.offer(harness.spawn("main", BRANCH))
    harness.feed(SayAsked(0, name, "hello"))
    assert harness.facts == []
    error = harness.one(RefuseSay).error
    assert isinstance(error, PermissionDenied) and repr(name) in error.reason


def test_without_a_channel_nobody_hears() -> None:
    """The refusal says what to do."""
    harness = Harness().open(owns_channel=False)
    harness.feed(SayAsked(0, "main", "hello"))
    assert "give the tree one with channel=" in str(harness.one(RefuseSay).error)
