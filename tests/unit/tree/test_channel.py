"""Saying something to people: at the nearest channel, by who may."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.facts.tree_facts import ChannelSaid
from sessiontree.contracts.settings.settings import MessagePolicy
from sessiontree.tree.rules import messages as saying
from sessiontree.tree.rules.spawn import has_channel
from sessiontree.tree.state.protocol import ChannelMessageAsked, RefuseChannelMessage
from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.tree_fixtures import BRANCH, WORKER


@pytest.mark.covers("A35")
def test_branch_speaks_on_the_nearest_channel() -> None:
    """Its own, its parent's, or the next above."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH, owns_channel=True)
    inner = harness.spawn(branch, BRANCH)
    for session, channel in (("main", "main"), (branch, branch), (inner, branch)):
        harness.feed(ChannelMessageAsked(0, session, "hello"))
        assert harness.facts == [ChannelSaid(session, channel, "hello", harness.now_ms)]


@pytest.mark.parametrize("name", ["main/w1", "main/b1", "main/b9"])
def test_who_may_not_speak_is_told_so(name: str) -> None:
    """A Worker, an ended session and an unknown one say nothing."""
    harness = Harness().open()
    harness.spawn("main", WORKER)
    harness.offer(harness.spawn("main", BRANCH))
    harness.feed(ChannelMessageAsked(0, name, "hello"))
    assert harness.facts == []
    error = harness.one(RefuseChannelMessage).error
    assert isinstance(error, PermissionDenied) and repr(name) in error.reason


def test_without_a_channel_nobody_hears() -> None:
    """The refusal says what to do."""
    harness = Harness().open(owns_channel=False)
    harness.feed(ChannelMessageAsked(0, "main", "hello"))
    assert "give the tree one with channel=" in str(harness.one(RefuseChannelMessage).error)


BOUND = st.none() | st.integers(1, 3)
SPEAKERS = st.sampled_from(["main", "main/b1", "main/b2"])
POLICIES = st.lists(
    st.builds(
        MessagePolicy,
        agents=st.none()
        | st.lists(st.sampled_from(["default", "reader"]), max_size=2, unique=True).map(tuple),
        per_minute=BOUND,
        max_chars=BOUND,
    ),
    max_size=2,
).map(tuple)
SAYINGS = st.lists(
    st.tuples(
        st.sampled_from(["main", "main/b1", "main/b2"]),
        st.integers(1, 5),
        st.sampled_from([0, 1, 20_000, 30_000, 60_000]),
    ),
    max_size=25,
)
"""Who says how many characters, and how many milliseconds after what was said before."""


def check_sayings(policies: tuple[MessagePolicy, ...], sayings: list[tuple[str, int, int]]) -> None:
    """Check that what reaches people is exactly what every policy lets through, counted again each time."""
    harness = Harness().open(messages=policies)
    agents: dict[str, str | None] = {"main": None, "main/b1": "default", "main/b2": "reader"}
    for name in ("default", "reader"):
        harness.spawn("main", BRANCH, agent=name)
    sent: list[tuple[str, int]] = []
    for session, chars, passes in sayings:
        harness.now_ms += passes
        harness.feed(ChannelMessageAsked(harness.now_ms, session, "x" * chars))
        recent = sum(who == session and at_ms > harness.now_ms - 60_000 for who, at_ms in sent)
        fits = session == "main" or all(
            (policy.agents is None or agents[session] in policy.agents)
            and (policy.max_chars is None or chars <= policy.max_chars)
            and (policy.per_minute is None or recent < policy.per_minute)
            for policy in policies
        )
        assert bool(harness.facts) == fits
        if fits:
            assert harness.facts == [ChannelSaid(session, "main", "x" * chars, harness.now_ms)]
            sent.append((session, harness.now_ms))
        else:
            assert "message policy" in str(harness.one(RefuseChannelMessage).error)
    for session, agent in agents.items():
        left_out = agent is not None and any(
            each.agents is not None and agent not in each.agents for each in policies
        )
        assert has_channel(harness.state, session) is not left_out


@pytest.mark.covers("A38")
@pytest.mark.slow
@given(POLICIES, SAYINGS)
def test_branches_keep_to_the_message_policies(
    policies: tuple[MessagePolicy, ...], sayings: list[tuple[str, int, int]]
) -> None:
    """Who may send, how often and how long; Main is not bound."""
    check_sayings(policies, sayings)


BUGS: dict[str, dict[str, Any]] = {
    "no bound is looked at": {"_find_exceeded_limit": lambda *_: None},
    "every agent may": {"explain_left_out": lambda *_: None},
    "a minute is half a minute": {"MINUTE_MS": 30_000},
    "a minute is longer": {"MINUTE_MS": 60_001},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=pytest.mark.long) if bug == "a minute is longer" else bug for bug in BUGS],
)
def test_property_notices_planted_bugs(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """Bounds that are not looked at, and minutes that are not valid."""
    for name, planted in BUGS[bug].items():
        monkeypatch.setattr(saying, name, planted)

    @settings(derandomize=True, database=None, max_examples=500, phases=[Phase.generate])
    @given(POLICIES, SAYINGS)
    def search(policies: tuple[MessagePolicy, ...], sayings: list[tuple[str, int, int]]) -> None:
        check_sayings(policies, sayings)

    with pytest.raises(AssertionError):
        search()
