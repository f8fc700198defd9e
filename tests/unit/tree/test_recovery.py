"""After a crash: what is owed is read from the state, and a snapshot behaves as what it was taken of."""

from __future__ import annotations

import json

from sessiontree.contracts.settings.settings import Budget
from sessiontree.tree.decide import react
from sessiontree.tree.report import collect_owed
from sessiontree.tree.state.protocol import (
    ClockRang,
    Deliver,
    PostsConsumed,
    ReleaseSession,
    SpawnAsked,
    WakeTreeAt,
)
from sessiontree.tree.state.state import make_initial_tree
from tests.unit.tree.harness_fixtures import Harness, as_json
from tests.unit.tree.tree_fixtures import BRANCH, WORKER, approval_asked, checked
from tests.unit.tree.tree_state_oracle import restore, snapshot


def busy() -> Harness:
    """Return a tree in which everything is owed that can be."""
    harness = Harness().open(budget=Budget(tokens=100))
    wise = harness.spawn("main", BRANCH, approver="house:rules", ttl_s=50)
    asker = harness.spawn(wise, BRANCH, label="asker", key="k", budget=Budget(tokens=9, wall_s=9))
    harness.embody(wise)
    harness.ask(asker, "consulted", digest="d0")
    harness.ask(wise, "shown", digest="d1")
    harness.ask("main", "refused", digest="d2")
    harness.answer("refused", approve=False)
    harness.ask("main", "allowed", tool="write", digest="d3")
    harness.answer("allowed", always=True)
    harness.offer(harness.spawn("main", WORKER, via="model"))
    harness.offer(wise)
    harness.spawn("main", BRANCH)
    harness.stop("main/b2")
    return harness


def test_nothing_is_owed_before_the_beginning() -> None:
    """There is nobody to owe anything to."""
    assert collect_owed(make_initial_tree()) == []


def test_everything_owed_is_carried_out_again() -> None:
    """Ends, posts in their order, and one timer for each time."""
    harness = busy()
    told = collect_owed(harness.state)
    kinds = [type(each) for each in told]
    assert kinds == sorted(kinds, key=[ReleaseSession, Deliver, WakeTreeAt].index)
    assert [each.session for each in told if isinstance(each, ReleaseSession)] == ["main/w1"]
    delivered = [(each.session, each.post_id) for each in told if isinstance(each, Deliver)]
    assert delivered == [
        ("main/b1", "main/b1#1"),
        ("main", "main#1"),
        ("main", "main#2"),
        ("main", "main#3"),
        ("main/b2", "main/b2#1"),
    ]
    bells = [each.at_ms for each in told if isinstance(each, WakeTreeAt)]
    assert bells == [9000, 30_000, 50_000, 900_000]


def test_what_was_taken_is_owed_no_more() -> None:
    """Reading what is owed changes nothing, taking it does."""
    harness = busy()
    assert collect_owed(harness.state) == collect_owed(harness.state)
    harness.feed(PostsConsumed(0, "main", ("main#1", "main#2", "main#3")))
    posts = [each.post_id for each in collect_owed(harness.state) if isinstance(each, Deliver)]
    assert posts == ["main/b1#1", "main/b2#1"]


def test_leaves_are_released_before_what_was_above_them() -> None:
    """Whoever waits for a whole branch hears of its end last."""
    harness = Harness().open()
    branch = harness.spawn("main", BRANCH)
    harness.offer(harness.spawn(branch, WORKER))
    harness.offer(branch)
    assert [each.session for each in collect_owed(harness.state) if isinstance(each, ReleaseSession)] == [
        "main/b1/w1",
        "main/b1",
    ]


def test_snapshot_is_json_and_comes_back_whole() -> None:
    """Through text and back, everything owed and everything known is the same."""
    harness = busy()
    again = restore(json.loads(json.dumps(snapshot(harness.state))))
    assert as_json(again) == as_json(harness.state)
    assert collect_owed(again) == collect_owed(harness.state)
    for state in (again, harness.state):
        assert sorted(filter(state.is_still_valid, again.alarms)) == sorted(
            filter(state.is_still_valid, harness.state.alarms)
        )


def test_snapshot_goes_on_as_the_tree_would() -> None:
    """The same stimuli lead to the same facts and instructions, ids included."""
    harness = busy()
    again = restore(snapshot(harness.state))
    for stimulus in (
        SpawnAsked(1, "main/b1", WORKER, "task", "model", key="k"),
        SpawnAsked(1, "main/b1", WORKER, "task", "model", label="asker"),
        SpawnAsked(1, "main", BRANCH, "task", "model"),
        approval_asked(1, "main", "r7", checked("1.0", "write", {}, "d7")),
        approval_asked(1, "main", "r8", checked("1.1", "deploy", {}, "d2")),
        ClockRang(10_000),
        ClockRang(1_000_000),
        ClockRang(2_000_000),
    ):
        assert repr(react(again, stimulus)) == repr(react(harness.state, stimulus))
    assert as_json(again) == as_json(harness.state)


def test_empty_tree_has_a_snapshot() -> None:
    """Nothing is something to come back to."""
    assert as_json(restore(snapshot(make_initial_tree()))) == as_json(make_initial_tree())
