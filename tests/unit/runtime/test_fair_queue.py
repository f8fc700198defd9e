"""Trees take turns for hosts; in a tree, sessions that have begun go first, but not forever."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import SessionKind
from sessiontree.runtime.scheduling.fair_queue import MAX_BEGUN_IN_A_ROW, FairQueue
from sessiontree.runtime.scheduling.live_session import LiveSession

if TYPE_CHECKING:
    from sessiontree.runtime.scheduling.live_session import Controller

TREES, SESSIONS = 4, 30
STEPS = st.lists(
    st.one_of(
        st.just((0, 0, 0)),
        st.tuples(st.sampled_from((1, 2, 2)), st.integers(0, TREES - 1), st.integers(0, SESSIONS - 1)),
    ),
    max_size=120,
)


class Tree:
    """Stands for a tree's controller, of which a queue needs the identity."""


def sessions() -> list[list[LiveSession]]:
    """Return the sessions of some trees; every second one has begun."""
    return [
        [
            LiveSession(cast("Controller", tree), f"w{at}", SessionKind.WORKER, False, journaled=at % 2 == 0)
            for at in range(SESSIONS)
        ]
        for tree in [Tree() for _ in range(TREES)]
    ]


class Turns:
    """A queue, and what it must do."""

    def __init__(self) -> None:
        self.sessions = sessions()
        self.queue = FairQueue()
        self.waiting: list[list[LiveSession]] = [[] for _ in range(TREES)]
        self.passed: list[set[int]] = [set() for _ in range(TREES)]
        """By tree, the others that were served since it was, or since it began to wait."""
        self.in_a_row = [0] * TREES

    def wait(self, tree: int, at: int) -> None:
        """Let a session wait."""
        live = self.sessions[tree][at]
        self.queue.add(live)
        if live not in self.waiting[tree]:
            self.waiting[tree].append(live)

    def leave(self, tree: int, at: int) -> None:
        """Let a session wait no longer."""
        live = self.sessions[tree][at]
        self.queue.discard(live)
        if live in self.waiting[tree]:
            self.waiting[tree].remove(live)

    def serve(self) -> None:
        """Give a host to the next session, which must be one whose turn it is."""
        if not len(self.queue):
            return
        live = self.queue.first()
        self.queue.take(live)
        tree = next(each for each in range(TREES) if live in self.sessions[each])
        assert live is next(each for each in self.waiting[tree] if each.journaled == live.journaled)
        has_new = not all(each.journaled for each in self.waiting[tree])
        self.in_a_row[tree] = self.in_a_row[tree] + 1 if live.journaled and has_new else 0
        assert self.in_a_row[tree] <= MAX_BEGUN_IN_A_ROW
        self.waiting[tree].remove(live)
        self.passed[tree] = set()
        for other in range(TREES):
            if self.waiting[other] and other != tree:
                assert tree not in self.passed[other]
                self.passed[other].add(tree)

    def check(self) -> None:
        """The queue holds who waits; a tree without sessions starts over."""
        for tree in range(TREES):
            if not self.waiting[tree]:
                self.passed[tree], self.in_a_row[tree] = set(), 0
        everybody = [live for tree in self.waiting for live in tree]
        assert len(self.queue) == len(everybody)
        assert set(self.queue) == set(everybody)


@given(STEPS)
def test_trees_take_turns(steps: list[tuple[int, int, int]]) -> None:
    """PRC26: no tree is served twice while another one waits, and its groups are served in order."""
    turns = Turns()
    for action, tree, at in steps:
        match action:
            case 0:
                turns.serve()
            case 1:
                turns.leave(tree, at)
            case _:
                turns.wait(tree, at)
        turns.check()


@pytest.mark.parametrize("begun", [1, 100])
def test_session_that_has_begun_goes_first(begun: int) -> None:
    """PRC26: what has begun is finished before something new starts, but a new one lets only eight pass."""
    tree = sessions()[0][0].controller
    queue = FairQueue()
    new = LiveSession(tree, "new", SessionKind.WORKER, False)
    queue.add(new)
    for at in range(begun):
        queue.add(LiveSession(tree, f"b{at}", SessionKind.BRANCH, False, journaled=True))
    served = []
    while len(queue):
        served.append(queue.first())
        queue.take(served[-1])
    assert served.index(new) == min(begun, MAX_BEGUN_IN_A_ROW)
