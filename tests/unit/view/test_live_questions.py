"""Questions in the model of a tree: waiting, in the deltas, and gone when they are answered."""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.facts.tree_facts import ClientCallEnded, ClientCallOpened
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.view.live_tree import LiveTree
from sessiontree.view.rows import COLUMNS, build_delta, find_meant_labels, snapshot
from tests.unit.view.live_strategies import record, spawned
from tests.unit.view.view_fixtures import config_of

HOSTILE = "red\u202e"
ARGUMENTS: dict[str, Any] = {
    "questions": [{"question": "Which\x1b?", "options": [{"label": HOSTILE}, {"label": "blue"}]}]
}


def test_question_waits_in_the_model_until_it_is_answered() -> None:
    """The list, the count, the state and its reason; a call of the program is no question."""
    tree = LiveTree()
    tree.take(record(1, spawned("main")))
    tree.take(record(2, ClientCallOpened(ClientCall("c1", "main", "look", {}, 9))))
    assert snapshot(tree, config_of(), feed="f")["questions"] == []
    before = tree.revision
    opened = ClientCall("q1", "main", "ask_user", ARGUMENTS, 9, "main", 3)
    tree.take(record(3, ClientCallOpened(opened)))
    told = snapshot(tree, config_of(), feed="f")
    (question,) = told["questions"]
    assert (question["id"], question["session"], question["through"]) == ("q1", "main", ["main"])
    assert (question["asked_ms"], question["expires_ms"], told["totals"]["questions"]) == (3, 9, 1)
    (item,) = question["items"]
    assert item["text"] == "Which\\u{1b}?"
    shown = [option["label"] for option in item["options"]]
    assert shown == ["red\\u{202e}", "blue"]
    assert find_meant_labels(tree.questions["q1"], 0, shown) == (HOSTILE, "blue")
    row = dict(zip(COLUMNS, told["rows"][0], strict=True))
    assert (row["state"], row["why"]) == ("waiting for an answer", "an answer of a person")
    assert build_delta(tree, before, feed="f")["questions"] == [question]
    after = tree.revision
    assert "questions" not in build_delta(tree, after, feed="f")
    tree.take(record(4, ClientCallEnded("q1", "ok", "a1", "person", "browser")))
    told = snapshot(tree, config_of(), feed="f")
    assert (told["questions"], told["totals"]["questions"]) == ([], 0)
    assert build_delta(tree, after, feed="f")["questions"] == []
