"""Cost: a spawn and an end cost the same in a small tree and in one of ten thousand live sessions."""

from __future__ import annotations

from statistics import median
from time import thread_time

import pytest

from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.decide import react
from sessiontree.tree.state.protocol import AcceptSpawn, SpawnAsked, TreeOpened
from sessiontree.tree.state.state import TreeState, make_initial_tree
from tests.unit.tree.tree_fixtures import WORKER, config, result, result_offered

LARGE = 10_000
SMALL = 100
FACTOR = 5
"""Allowed between the two sizes, which differ by a hundred: caches grow cold, nothing is walked through."""


def grown(size: int) -> TreeState:
    """Return a tree with so many live Workers, each with a time to live."""
    limits = Limits(max_children=LARGE * 2, max_live=LARGE * 2, max_total=LARGE * 10)
    state = make_initial_tree()
    react(state, TreeOpened(0, config(limits=limits)))
    for number in range(size):
        react(
            state, SpawnAsked(number, "main", WORKER, "task", "handle", label=f"l{number}", key=f"k{number}")
        )
    return state


def lap_s(state: TreeState, name: str) -> float:
    """Spawn a Worker and let it end; return how long a processor took for both."""
    began = thread_time()
    _, told = react(state, SpawnAsked(0, "main", WORKER, "task", "model", label=name, key=name))
    accepted = told[0]
    assert isinstance(accepted, AcceptSpawn) and accepted.started
    react(state, result_offered(0, accepted.session, result(), True))
    return thread_time() - began


@pytest.mark.slow
def test_spawn_and_an_end_do_not_notice_the_size_of_the_tree() -> None:
    """Interleaved, so that whatever else the machine does meets both alike."""
    small, large = grown(SMALL), grown(LARGE)
    laps = [(lap_s(small, f"x{number}"), lap_s(large, f"x{number}")) for number in range(300)]
    assert large.live == LARGE + 1
    assert median(lap for _, lap in laps) < FACTOR * median(lap for lap, _ in laps)
