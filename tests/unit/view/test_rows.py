"""Rows: whoever takes snapshots and deltas in any rhythm holds what a snapshot of the end holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.facts.tree_facts import ApprovalWaiting, TreeFact
from sessiontree.view.live_tree import LiveTree
from sessiontree.view.rows import COLUMNS, build_delta, find_way_up, format_argument, snapshot
from tests.unit.view.live_strategies import charged, ended, record, records, requested, spawned, tree_facts
from tests.unit.view.view_fixtures import config_of

View = dict[str, Any]
Delta = Callable[[LiveTree, int], View]


def _delta(tree: LiveTree, since: int) -> View:
    return build_delta(tree, since, feed="f", is_live=True)


def _snapshot(tree: LiveTree) -> View:
    return snapshot(tree, config_of(), feed="f", is_live=True)


def _applied(view: View, change: View) -> View:
    rows = list(view["rows"])
    for number, row in change["rows"]:
        assert number <= len(rows), "a row came before those above it"
        rows[number : number + 1] = [row]
    return {
        **view,
        "rows": rows,
        **{name: change[name] for name in ("revision", "seq", "at_ms", "totals")},
        "tree": {**view["tree"], "is_over": change["is_over"], "is_live": change["is_live"]},
        "approvals": change.get("approvals", view["approvals"]),
    }


def every_viewer_agrees(make: Delta, facts: list[TreeFact], looks: set[int]) -> None:
    """A viewer that looks at times of its own holds the newest snapshot after its last look."""
    tree = LiveTree()
    view = json.loads(json.dumps(_snapshot(tree)))
    for number, one in enumerate(records(facts)):
        tree.take(one)
        if number in looks:
            view = _applied(view, json.loads(json.dumps(make(tree, view["revision"]))))
    assert _applied(view, json.loads(json.dumps(make(tree, view["revision"])))) == json.loads(
        json.dumps(_snapshot(tree))
    )


@pytest.mark.slow
@given(tree_facts(), st.sets(st.integers(0, 40)))
def test_deltas_lead_to_the_snapshot(facts: list[TreeFact], looks: set[int]) -> None:
    """Whatever happened between two looks, the newest form of each changed row is enough."""
    every_viewer_agrees(_delta, facts, looks)


def _forgets_first(tree: LiveTree, since: int) -> View:
    change = _delta(tree, since)
    return {**change, "rows": change["rows"][1:]}


def _one_late(tree: LiveTree, since: int) -> View:
    return _delta(tree, since + 1)


def _no_requests(tree: LiveTree, since: int) -> View:
    return {name: value for name, value in _delta(tree, since).items() if name != "approvals"}


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_forgets_first, _one_late, _no_requests])
def test_lost_change_is_found(bug: Delta) -> None:
    """The property fails where a row, a revision or the requests are lost."""

    @settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))
    @given(tree_facts(), st.sets(st.integers(0, 40)))
    def found(facts: list[TreeFact], looks: set[int]) -> None:
        every_viewer_agrees(bug, facts, looks)

    with pytest.raises(AssertionError):
        found()


def test_delta_costs_what_changed() -> None:
    """Among a thousand sessions a delta holds the one that changed, and its parent where it ended."""
    tree = LiveTree()
    for one in records([spawned("main"), *(spawned(f"main/w{n}", "main") for n in range(1_000))]):
        tree.take(one)
    revision = tree.revision
    tree.take(record(2_000, charged("main/w7", 5, 0.1)))
    assert [row[1][0] for row in _delta(tree, revision)["rows"]] == ["main", "main/w7"]  # main's account
    assert not _delta(tree, tree.revision)["rows"]


def test_row_says_what_a_session_is_and_waits_for() -> None:
    """Columns, in order; times come from facts; a price that is not known is null."""
    tree = LiveTree()
    tree.take(record(1, spawned("main"), at_ms=5))
    tree.take(record(2, spawned("main/b1", "main", "look\u202e up"), at_ms=6))
    tree.take(record(3, requested("r1", "main/b1", path="a"), at_ms=7))
    tree.take(record(4, charged("main/b1", 10, 0.0, unpriced=10), at_ms=8))
    row = dict(zip(COLUMNS, _snapshot(tree)["rows"][1], strict=True))
    assert row == {
        "path": "main/b1",
        "kind": "branch",
        "label": "look\\u{202e} up",
        "parent": 0,
        "state": "waiting for approval",
        "why": "approval of deploy",
        "call": 'deploy {"path":"a"}',
        "turns": 0,
        "tokens": 10,
        "cost_usd": None,
        "began_ms": 6,
        "ended_ms": None,
        "failures": 0,
        "budget": None,
    }
    tree.take(record(5, ended("main/b1"), at_ms=9))
    assert _snapshot(tree)["rows"][1][4] == "completed"
    assert _snapshot(tree)["rows"][1][11] == 9


def test_request_says_who_asks_through_whom() -> None:
    """The way leads from the session that asks to the one whose channel shows it; long arguments are cut."""
    tree = LiveTree()
    facts = [spawned("main"), spawned("main/b1", "main"), requested("r1", "main/b1", text="x" * 5_000)]
    for one in records([*facts, ApprovalWaiting("r1", "main", "show")]):
        tree.take(one)
    (request,) = _snapshot(tree)["approvals"]
    assert request["through"] == ["main/b1", "main"]
    assert request["arguments"] == [("text", "x" * 4_000, True)]
    assert request["covers"] == "every later call of deploy in this tree"


def test_way_up_ends_where_it_should() -> None:
    """It has every session between, and only the first where the other is not above it."""
    assert find_way_up("main/b1/w2", "main") == ["main/b1/w2", "main/b1", "main"]
    assert find_way_up("main", "main") == ["main"]
    assert find_way_up("main/b1", "") == ["main/b1"]


def test_argument_is_text() -> None:
    """Lines and tabs stay, other control characters are shown, and what is no string is JSON."""
    assert format_argument("a\u200b", "x\n\ty\x1b") == ("a\\u{200b}", "x\n\ty\\u{1b}", False)
    assert format_argument("n", {"a": [1]}) == ("n", '{"a":[1]}', False)
