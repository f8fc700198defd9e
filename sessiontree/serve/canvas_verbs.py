"""What the frames of a tree's canvases ask and answer, and the watch over the files that they show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.canvas import MAX_ANSWER_CHARS
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.client import ControlClient
from sessiontree.serve.canvas_frames import CanvasPages
from sessiontree.view.feed import TreeFeed

Json = dict[str, Any]
WAIT_S: Final = 15.0
"""How long one question of a frame waits; a page asks again at once."""
LOOK_AT_FILES_S: Final = 0.5
"""How often the files that canvases show are looked at."""
MAX_ID_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class CanvasVerbs:
    """The verbs of the pages that show canvases of one tree.

    Args:
        tree_id: The tree.
        session_in: Returns the session that a viewer names.
    """

    tree_id: str
    session_in: Callable[[Mapping[str, Any]], str]

    async def act(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        """Send a session an action on its canvas; ``id`` makes a repeat do nothing."""
        action = given.get("action")
        if not isinstance(action, dict):
            raise ConfigError("action: give an object")
        session, action_id = self.session_in(given), _read_id(given, "id")
        await client.supervisor.act_on_canvas(self.tree_id, session, action, action_id)
        return {}

    async def answer(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        """Answer a question to a frame."""
        text = given.get("answer")
        if not isinstance(text, str) or len(text) > MAX_ANSWER_CHARS:
            raise ConfigError(f"answer: give a text of at most {MAX_ANSWER_CHARS:,} characters")
        await client.supervisor.answer_canvas(self.tree_id, _read_id(given, "id"), text)
        return {}

    async def leave(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        """Note that a frame was closed."""
        viewer = _read_id(given, "viewer")
        await client.supervisor.leave_canvas(self.tree_id, self.session_in(given), viewer)
        return {}

    async def wait(self, client: ControlClient, given: Mapping[str, Any]) -> Json:
        """Wait for a question to a frame; ``{question: {kind, id, code}}``, or null if none came."""
        session, viewer = self.session_in(given), _read_id(given, "viewer")
        question = await client.supervisor.await_canvas_question(self.tree_id, session, viewer, WAIT_S)
        if question is None:
            return {"question": None}
        return {"question": {"kind": question.kind, "id": question.id, "code": question.code}}


def show_canvas(feed: TreeFeed, session: str) -> Json:
    """Return the surfaces of a session's canvas.

    Raises:
        ConfigError: it has no canvas.
    """
    panel = feed.tree.canvases.get(session)
    if panel is None:
        raise ConfigError(f"session {session!r} has no canvas")
    surfaces = {name: surface.to_json() for name, surface in panel.state.surfaces.items()}
    return {"revision": panel.state.revision, "surfaces": surfaces}


async def watch_pages(feed: TreeFeed, pages: CanvasPages) -> None:
    """Tell viewers of each change of a file that a canvas shows, until this is cancelled."""
    seen: dict[str, tuple[str, tuple[int, int]]] = {}
    while True:
        shown = {
            session: panel.state.page["path"]
            for session, panel in feed.tree.canvases.items()
            if panel.state.is_shown and "path" in panel.state.page
        }
        for session, path in shown.items():
            stamp = path, await asyncio.to_thread(pages.stamp, path)
            # The first look at a file does not count as a change.
            known = seen.get(session, stamp)
            seen[session] = stamp
            # Race: the session may have ended while a thread looked at its file.
            if known[0] == path and known != stamp and session in feed.tree.canvases:
                feed.note_page(session)
        await asyncio.sleep(LOOK_AT_FILES_S)


def _read_id(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        raise ConfigError(f"{name}: give a text of 1 to {MAX_ID_CHARS} characters")
    return value
