"""The talk of a widget: whoever hears a message hands over and returns, whatever its thread does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sessiontree.notebook.tree_talk import MAX_ASKED, TreeTalk
from sessiontree.notebook.view_thread import ViewThread


@pytest.fixture
def views() -> Iterator[ViewThread]:
    """A view thread of a test's own."""
    views = ViewThread()
    yield views
    views.end()


class Heard:
    """What was sent to the page, by which thread."""

    def __init__(self) -> None:
        self.first: Future[tuple[dict[str, Any], str]] = Future()
        self.all: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        """Keep a message."""
        self.all.append(message)
        if not self.first.done():
            self.first.set_result((message, threading.current_thread().name))


def test_answer_is_sent_by_the_view_thread_alone(views: ViewThread, tmp_path: Path) -> None:
    """A message of a thread with a loop of its own touches neither that loop nor the caller's."""
    heard = Heard()
    talk = TreeTalk(views, tmp_path, "t" + "0" * 16, heard.send)

    async def hear() -> None:
        before = asyncio.all_tasks()
        talk.hear({"id": 1, "ask": "snapshot", "given": {}})
        assert asyncio.all_tasks() == before

    subshell = threading.Thread(target=asyncio.run, args=[hear()], name="subshell")
    subshell.start()
    subshell.join()
    message, thread = heard.first.result(30)
    assert thread == "sessiontree-view"
    assert message["id"] == 1
    assert "no tree" in message["error"] or "TreeNotFound" in message["error"]


@pytest.mark.parametrize(
    "message",
    [None, 1, "x", [], {}, {"id": "1", "ask": "snapshot"}, {"id": 1}, {"id": 1, "ask": "x", "given": []}],
)
def test_what_is_no_question_is_not_answered(views: ViewThread, tmp_path: Path, message: object) -> None:
    """And starts nothing."""
    heard = Heard()
    TreeTalk(views, tmp_path, "t", heard.send).hear(message)
    assert views.submit(_nothing).result(30) is None
    assert heard.all == []


def test_questions_that_are_open_have_a_bound(views: ViewThread, tmp_path: Path) -> None:
    """A page that asks without end hears so, and holds no memory."""
    heard = Heard()
    talk = TreeTalk(views, tmp_path, "t", heard.send)
    talk._asked = MAX_ASKED
    talk.hear({"id": 7, "ask": "snapshot"})
    assert "open" in heard.first.result(30)[0]["error"]


async def _nothing() -> None:
    """Take a turn of the loop."""
