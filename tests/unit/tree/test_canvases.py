"""Canvases in the tree machine: who has one, keys, limits, and what an action on it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.contracts.facts.stimuli import Incoming
from sessiontree.contracts.facts.tree_facts import CanvasActed, CanvasChanged, Posted
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.canvas import MAX_CANVAS_BYTES, MAX_CANVASES, MAX_SURFACES
from sessiontree.contracts.settings.settings import Limits
from sessiontree.tree.rules.canvas import MAX_UNREAD
from sessiontree.tree.state.canvas_state import MAX_KEYS, CanvasState, change_state, find_fault
from sessiontree.tree.state.protocol import CanvasActionSent, CanvasAsked, RefuseChannelMessage
from tests.unit.tree.harness_fixtures import Harness

BRANCH, WORKER = SessionKind.BRANCH, SessionKind.WORKER


def opened() -> Harness:
    """Return a tree whose Main has a channel."""
    return Harness().open()


def change(
    harness: Harness, key: str, action: str = "present", session: str = "main", **content: Any
) -> None:
    """Change a canvas."""
    harness.feed(CanvasAsked(0, session, key, action, content))


def refusals(harness: Harness) -> list[str]:
    """Return why the last stimulus was refused."""
    return [str(each.error) for each in harness.told if isinstance(each, RefuseChannelMessage)]


def create(name: str) -> dict[str, Any]:
    """Return the operation that makes a surface."""
    return {
        "op": "create",
        "surface": name,
        "version": "v1.0",
        "root": "root",
        "color": "",
        "sends_data": False,
    }


@pytest.mark.covers("U11")
def test_key_changes_a_canvas_once() -> None:
    """A repeated call changes nothing and is not refused; another key does."""
    harness = opened()
    change(harness, "k1", html="one")
    assert harness.facts == [CanvasChanged("main", "k1", "present", {"html": "one"}, harness.now_ms)]
    for _ in range(2):
        change(harness, "k1", html="two")
        assert harness.facts == []
        assert refusals(harness) == []
    change(harness, "k2", html="two")
    canvas = harness.state.canvases["main"]
    assert (canvas.page, canvas.revision, canvas.keys) == ({"html": "two"}, 2, ("k1", "k2"))


def test_old_keys_are_forgotten() -> None:
    """Only the newest are kept, so that a canvas does not grow with its changes."""
    harness = opened()
    for number in range(MAX_KEYS + 5):
        change(harness, f"k{number}", "hide")
    assert len(harness.state.canvases["main"].keys) == MAX_KEYS


def test_only_sessions_that_speak_to_people_have_one() -> None:
    """Main and a Branch below it; no Worker, nobody unknown, nobody who has ended."""
    harness = opened()
    branch, worker = harness.spawn("main", BRANCH), harness.spawn("main", WORKER)
    change(harness, "k", session=branch, html="x")
    assert branch in harness.state.canvases
    for session in (worker, "main/b9"):
        change(harness, "k", session=session, html="x")
        assert "has no canvas" in refusals(harness)[0]
    harness.offer(branch)
    assert not dict(harness.state.canvases.items())


def test_limits_hold() -> None:
    """Of canvases, of surfaces, and of what one canvas holds."""
    harness = Harness().open(limits=Limits(max_children=MAX_CANVASES + 2))
    for number in range(MAX_CANVASES):
        change(
            harness, f"k{number}", session="main" if not number else harness.spawn("main", BRANCH), html="x"
        )
        assert refusals(harness) == []
    change(harness, "k", session=harness.spawn("main", BRANCH), html="x")
    assert "sessions of this tree have a canvas" in refusals(harness)[0]
    change(harness, "many", "a2ui_push", ops=[create(str(number)) for number in range(MAX_SURFACES + 1)])
    assert f"at most {MAX_SURFACES} surfaces" in refusals(harness)[0]
    change(harness, "long", html="x" * 300_000)
    assert "at most 262,144 go into one change" in refusals(harness)[0]
    change(harness, "make", "a2ui_push", ops=[create("s")])
    data: dict[str, Any] = {"op": "data", "surface": "s"}
    steps = MAX_CANVAS_BYTES // 200_000 + 1
    for number in range(steps):
        op = {**data, "path": f"/{number}", "value": "x" * 200_000}
        change(harness, f"d{number}", "a2ui_push", ops=[op])
    assert f"at most {MAX_CANVAS_BYTES:,} are kept" in refusals(harness)[0]
    assert harness.state.canvases["main"].size <= MAX_CANVAS_BYTES


def test_surfaces_are_made_once_and_updated_only_if_they_exist() -> None:
    """A surface that exists is not made again; one that does not exist is not updated."""
    state = change_state(CanvasState(), "a2ui_push", {"ops": [create("s")]})
    assert "exists already" in find_fault(state, "a2ui_push", {"ops": [create("s")]})
    lost = {"op": "components", "surface": "t", "components": []}
    assert "does not exist" in find_fault(state, "a2ui_push", {"ops": [lost]})
    assert find_fault(state, "a2ui_push", {"ops": [{"op": "delete", "surface": "s"}, create("s")]}) == ""
    assert change_state(state, "a2ui_reset", {}).surfaces == {}


@pytest.mark.parametrize(
    ("path", "value", "data"),
    [
        ("", {"a": 1}, {"a": 1}),
        ("/list/1", "new", {"list": [1, "new"], "deep": {"er": 1}}),
        ("/list/2", "new", {"list": [1, 2, "new"], "deep": {"er": 1}}),
        ("/deep/er", 2, {"list": [1, 2], "deep": {"er": 2}}),
        ("/__proto__/polluted", 1, {"list": [1, 2], "deep": {"er": 1}, "__proto__": {"polluted": 1}}),
        ("/a~1b", 1, {"list": [1, 2], "deep": {"er": 1}, "a/b": 1}),
    ],
)
def test_values_are_put_where_the_path_leads(path: str, value: Any, data: dict[str, Any]) -> None:
    """Members, places in lists, and names that look like something else; the old state stays as it was."""
    before = {"list": [1, 2], "deep": {"er": 1}}
    state = change_state(CanvasState(), "a2ui_push", {"ops": [create("s")]})
    state = change_state(
        state, "a2ui_push", {"ops": [{"op": "data", "surface": "s", "path": "", "value": before}]}
    )
    op = {"op": "data", "surface": "s", "path": path, "value": value}
    assert find_fault(state, "a2ui_push", {"ops": [op]}) == ""
    assert change_state(state, "a2ui_push", {"ops": [op]}).surfaces["s"].data == data
    assert state.surfaces["s"].data == before


@pytest.mark.parametrize("path", ["/list/9", "/list/x", "/list/-1", "/deep/er/x"])
def test_paths_that_lead_nowhere_are_refused(path: str) -> None:
    """Beyond the end of a list, a place that is no number, and below a value without members."""
    state = change_state(CanvasState(), "a2ui_push", {"ops": [create("s")]})
    whole = {"op": "data", "surface": "s", "path": "", "value": {"list": [1], "deep": {"er": 1}}}
    state = change_state(state, "a2ui_push", {"ops": [whole]})
    assert find_fault(state, "a2ui_push", {"ops": [{**whole, "path": path, "value": 1}]})


@pytest.mark.parametrize(
    ("path", "left"), [("/a", {"l": [1, 2]}), ("/l/0", {"a": 1, "l": [2]}), ("/x/y", None)]
)
def test_values_are_removed(path: str, left: dict[str, Any] | None) -> None:
    """A member, a place in a list; what is not there stays away."""
    before = {"a": 1, "l": [1, 2]}
    ops = [create("s"), {"op": "data", "surface": "s", "path": "", "value": before}]
    ops.append({"op": "data", "surface": "s", "path": path})
    assert change_state(CanvasState(), "a2ui_push", {"ops": ops}).surfaces["s"].data == (left or before)


@pytest.mark.covers("U14")
def test_action_becomes_text_from_outside() -> None:
    """It taints, acts for nobody who owns the tree, and is posted once; only while something is shown."""
    harness = opened()
    harness.feed(CanvasActionSent(0, "main", "a1", "pressed"))
    assert refusals(harness) == ["session 'main' shows no canvas"]
    change(harness, "k", html="x")
    harness.feed(CanvasActionSent(0, "main", "a1", "pressed"))
    assert [type(fact) for fact in harness.facts] == [CanvasActed, Posted]
    posted = harness.facts[1]
    assert isinstance(posted, Posted)
    mail = posted.stimulus
    assert isinstance(mail, Incoming)
    assert (mail.text, mail.origin, mail.taint, mail.mode) == ("pressed", "canvas", "canvas", "follow_up")
    assert [each.is_owner for each in mail.asked_by] == [False]
    harness.feed(CanvasActionSent(0, "main", "a1", "pressed"))
    assert harness.facts == []
    for number in range(MAX_UNREAD):
        harness.feed(CanvasActionSent(0, "main", f"b{number}", "pressed"))
    assert "has not read 16 messages yet" in refusals(harness)[0]
    change(harness, "k2", "hide")
    harness.feed(CanvasActionSent(0, "main", "a2", "pressed"))
    assert refusals(harness) == ["session 'main' shows no canvas"]
