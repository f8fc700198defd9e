"""A tree in a cell of a real kernel: it shows itself, and a person answers in it while the cell waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ClientCallEnded
from sessiontree.journal.journal import Journal
from sessiontree.journal.replay import read_fact
from sessiontree.serve.served_trees import ServedTrees
from sessiontree.view.feed import Viewer
from tests.system.notebooks.jupyter_fixtures import CLOSE, OPEN, SEND, WIDGET, Jupyter, jupyter_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One kernel for all tests here."""
    with jupyter_in(tmp_path_factory.mktemp("kernel")) as jupyter:
        yield jupyter


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest, jupyter: Jupyter) -> Iterator[str]:
    """Which classes the cells use; a tree is open."""
    yield request.param
    jupyter.run(CLOSE[request.param])


def open_tree(jupyter: Jupyter, face: str) -> str:
    """Open a tree, and return the id of the widget that it shows itself as."""
    picture, shown = jupyter.run(OPEN[face].format(workspace=str(jupyter.place / "workspace")))[-2:]
    assert "main" in picture["text/plain"]
    assert "<td>main</td>" in picture["text/html"]
    return str(shown[WIDGET]["model_id"])


@pytest.mark.parametrize("where", ["main shell", "subshell"])
def test_request_is_approved_in_the_cell_that_waits(jupyter: Jupyter, face: str, where: str) -> None:
    """On each shell, within a second; a blocking cell holds the main shell, so only a subshell is left."""
    comm = open_tree(jupyter, face)
    shell = jupyter.open_subshell() if where == "subshell" or face == "sync" else None
    waiting = jupyter.begin(SEND[face].format("publish a.txt"))
    request = jupyter.request_in(comm, shell)
    answer, took_s = jupyter.ask(comm, "approve", {"id": request}, shell)
    assert answer["value"] == {}
    assert took_s < 1
    assert "a.txt is published" in jupyter.end(waiting)[-1]["text/plain"]
    assert surfaces_in(jupyter) == {"notebook"}


def surfaces_in(jupyter: Jupyter) -> set[str]:
    """Return where people answered what was asked in the open tree, as the journal of this process's says."""
    tree_id = jupyter.value("tree.tree_id").strip("'")
    with Journal.open(jupyter.state_dir, read_only=True) as journal:
        ends = (read_fact(record.text) for record in journal.read(tree_id))
        return {fact.surface for fact in ends if isinstance(fact, ApprovalDecided | ClientCallEnded)}


def test_question_is_answered_in_the_cell_that_waits(jupyter: Jupyter, face: str) -> None:
    """The cell shows it by itself, in a saved notebook as text; an answer that does not fit is refused."""
    open_tree(jupyter, face)
    waiting = jupyter.begin(SEND[face].format("ask"))
    picture, shown = jupyter.displayed(waiting)
    for text in (picture["text/html"], picture["text/plain"]):
        assert "Which colour?" in text
        assert "like the sea" in text
    comm, shell = shown[WIDGET]["model_id"], jupyter.open_subshell()
    question = jupyter.request_in(comm, shell, kind="questions")
    wrong, _ = jupyter.ask(comm, "answer", {"id": question, "answers": [{"chosen": ["green"]}]}, shell)
    assert "'green' is not an option" in wrong["error"]
    right, _ = jupyter.ask(comm, "answer", {"id": question, "answers": [{"chosen": ["blue"]}]}, shell)
    assert right["value"] == {}
    assert "blue" in jupyter.end(waiting)[-1]["text/plain"]
    assert surfaces_in(jupyter) == {"notebook"}


def test_waiting_cell_shows_its_request_by_itself(jupyter: Jupyter, face: str) -> None:
    """The tree that nobody displayed, a second after the request, as often as a cell waits."""
    open_tree(jupyter, face)
    for name in ("b.txt", "c.txt"):
        waiting = jupyter.begin(SEND[face].format(f"publish {name}"))
        picture, shown = jupyter.displayed(waiting)
        assert "publish" in picture["text/html"]
        comm, shell = shown[WIDGET]["model_id"], jupyter.open_subshell()
        jupyter.ask(comm, "approve", {"id": jupyter.request_in(comm, shell)}, shell)
        jupyter.end(waiting)
        assert "asks for" in picture["text/html"]
        assert "asks for" not in jupyter.renewed(waiting)["text/html"]


def test_answer_elsewhere_is_seen_at_once(jupyter: Jupyter, face: str) -> None:
    """Of another program, through the control socket; the widget is informed at once."""
    comm = open_tree(jupyter, face)
    tree_id, shell = jupyter.value("tree.tree_id").strip("'"), jupyter.open_subshell()
    took_s = []
    for name in ("d1.txt", "d2.txt", "d3.txt"):
        waiting = jupyter.begin(SEND[face].format(f"publish {name}"))
        request = jupyter.request_in(comm, shell)
        before = len(jupyter.heard)
        asyncio.run(approve_from_here(jupyter.state_dir, tree_id, request))
        answered_s = time.monotonic()
        jupyter.news(comm, lambda news: news.get("approvals") == [], before)
        took_s.append(time.monotonic() - answered_s)
        late, _ = jupyter.ask(comm, "deny", {"id": request}, shell)
        assert "already approved" in late["error"]
        jupyter.end(waiting)
    assert min(took_s) < 0.3  # a busy machine may delay one of them


async def approve_from_here(state_dir: Path, tree_id: str, request: str) -> None:
    """Approve as a browser's server does."""
    async with ServedTrees(state_dir).look_at(tree_id) as tree:
        viewer = Viewer(tree.feed)
        while "approve" not in json.loads(await viewer.get_next_news()).get("can", ()):
            pass
        await tree.ask("approve", {"id": request})
        await tree.close()


def test_interrupt_ends_the_turn_and_nothing_else(jupyter: Jupyter, face: str) -> None:
    """The kernel, the tree and the session go on; the request of the turn is gone."""
    comm = open_tree(jupyter, face)
    shell = jupyter.open_subshell()
    waiting = jupyter.begin(SEND[face].format("publish e.txt"))
    jupyter.request_in(comm, shell)
    before = len(jupyter.heard)
    jupyter.manager.interrupt_kernel()
    assert jupyter.fail(waiting) in {"KeyboardInterrupt", "CancelledError"}
    jupyter.news(comm, lambda news: news.get("approvals") == [], before)
    (shown,) = jupyter.run(SEND[face].format("still there?"))
    assert shown["text/plain"] == "'heard still there?'"


def test_time_limit_of_the_program_leaves_the_turn_alone(jupyter: Jupyter) -> None:
    """It is no interrupt of the cell; the wait has ended, and the request is open."""
    comm = open_tree(jupyter, "async")
    limited = "asyncio.wait_for(tree.main.send('publish f.txt'), 0.5)"
    assert jupyter.fail(jupyter.begin(f"await {limited}")) == "TimeoutError"
    jupyter.ask(comm, "deny", {"id": jupyter.request_in(comm)})
    jupyter.run(CLOSE["async"])


def test_cell_that_runs_again_is_harmless(jupyter: Jupyter, face: str) -> None:
    """The former tree is closed, its widget shows it as it was, and the new one works."""
    first = open_tree(jupyter, face)
    second = open_tree(jupyter, face)
    assert first != second
    answer, _ = jupyter.ask(first, "snapshot", {})
    assert answer["value"]["tree"]["id"] != jupyter.value("tree.tree_id").strip("'")
    assert jupyter.run(SEND[face].format("x"))[-1]["text/plain"] == "'heard x'"


def test_what_is_asked_wrongly_is_refused_in_words(jupyter: Jupyter, face: str) -> None:
    """An unknown verb, an unknown session, what is not a question at all."""
    comm = open_tree(jupyter, face)
    assert "not a verb" in jupyter.ask(comm, "explode", {})[0]["error"]
    assert "no session" in jupyter.ask(comm, "transcript", {"session": "main/b9"})[0]["error"]
    assert jupyter.ask(comm, "transcript", {"session": "main"})[0]["value"]["items"] == []
