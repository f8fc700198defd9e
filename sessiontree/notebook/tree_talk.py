"""What a widget and the kernel say to each other about one tree.

The page asks ``{"id", "ask", "given"}`` and is answered ``{"id", "value"}`` or ``{"id", "error"}``; news come
as ``{"news"}``. :meth:`TreeTalk.hear` may be called on any thread, the kernel's main shell or a subshell: it
only hands over. Everything else, sending included, happens on the view thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sessiontree.contracts.errors import SessionTreeError, describe_error
from sessiontree.notebook.view_thread import ViewThread
from sessiontree.view.feed import Viewer

MAX_ASKED: Final = 64
"""Most questions of a page that are open at once."""


class TreeTalk:
    """One widget's side of the talk.

    Args:
        views: The view thread.
        state_dir: The state directory of the tree.
        tree_id: The tree.
        send: Sends a message to the page; called on the view thread alone.
    """

    def __init__(
        self, views: ViewThread, state_dir: Path, tree_id: str, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self._views = views
        self._state_dir = state_dir
        self._tree_id = tree_id
        self._send = send
        self._asked = 0
        self._is_telling = False

    def hear(self, message: object) -> None:
        """Take a message of the page; on any thread."""
        # Messages come from a page; whatever is not a question of it is dropped without an answer.
        if not isinstance(message, dict):
            return
        number, verb, given = message.get("id"), message.get("ask"), message.get("given", {})
        if isinstance(number, int) and isinstance(verb, str) and isinstance(given, dict):
            self._views.submit(lambda: self._answer(number, verb, given))

    async def _answer(self, number: int, verb: str, given: dict[str, Any]) -> None:
        if self._asked >= MAX_ASKED:
            self._send({"id": number, "error": f"{MAX_ASKED} questions are open; wait for their answers"})
            return
        self._asked += 1
        try:
            async with self._views.get_trees(self._state_dir).look_at(self._tree_id) as tree:
                value = await tree.ask(verb, given)
                if verb == "snapshot" and not self._is_telling:
                    # Set before the task begins: two snapshots that are asked for at once must not start two
                    # streams of news.
                    self._is_telling = True
                    self._views.submit(lambda: self._tell(value["feed"], value["revision"]))
            self._send({"id": number, "value": value})
        except SessionTreeError as error:
            self._send({"id": number, "error": describe_error(error)})
        finally:
            self._asked -= 1

    async def _tell(self, feed: str, revision: int) -> None:
        """Tell the page what is new after a revision, as long as the kernel lives."""
        try:
            async with self._views.get_trees(self._state_dir).look_at(self._tree_id) as tree:
                viewer = Viewer(tree.feed, feed, revision)
                while True:
                    self._send({"news": json.loads(await viewer.get_next_news())})
        finally:
            self._is_telling = False
