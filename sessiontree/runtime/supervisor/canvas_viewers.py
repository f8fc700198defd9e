"""Frames that show canvases: what they are asked, and what they answer.

Nothing here is journaled: a question lives as long as the call that asks it, and a frame that went away
answers nothing. A question is handed to one frame, once, because a script may change what the frame shows.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from sessiontree.contracts.errors import ConfigError, ExecutionError
from sessiontree.contracts.recorded.canvas import MAX_ACTION_CHARS, MAX_ANSWER_CHARS, CanvasQuestion
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.untrusted import wrap_untrusted

PRESENT_S: Final = 5.0
"""How long a frame counts as present after it asked last: longer than it takes to ask again."""
MAX_VIEWERS: Final = 64
"""Most frames of one canvas that are known; the one that asked longest ago is forgotten first."""
MAX_WAITING: Final = 16
"""Most questions of one canvas that wait at once."""
MAX_KEPT_KEYS: Final = 1_024
ACTION_HEAD: Final = "Somebody acted on your canvas. It approves nothing."
NO_VIEWER: Final = (
    "no page shows the canvas of this session now: open the tree in `sessiontree serve`, at its tab Canvas, "
    "and call again"
)


@dataclass(slots=True)
class _Canvas:
    seen_s: dict[str, float] = field(default_factory=dict)
    """When each frame asked last, or infinity while it waits; the newest last."""
    waiting: deque[CanvasQuestion] = field(default_factory=deque)
    """Questions that no frame has taken, oldest first."""
    news: asyncio.Event = field(default_factory=asyncio.Event)


class CanvasViewers:
    """The frames of all canvases of one supervisor.

    Args:
        now_s: The time in seconds, from any start.
    """

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._canvases: dict[tuple[str, str], _Canvas] = {}
        self._answers: dict[str, asyncio.Future[str]] = {}
        self._keys: dict[str, None] = {}

    def count(self, tree_id: str, session: str) -> int:
        """Return how many frames show a session's canvas."""
        canvas = self._canvases.get((tree_id, session))
        if canvas is None:
            return 0
        since = self._now_s() - PRESENT_S
        return sum(seen_s >= since for seen_s in canvas.seen_s.values())

    async def ask(self, tree_id: str, session: str, kind: str, code: str, key: str, timeout_s: float) -> str:
        """Return the answer of a frame as JSON text.

        Raises:
            ExecutionError: no frame shows the canvas, it does not answer in time, too many questions wait, or
                a question with this key was asked before.
        """
        # Race: a host that was lost may have asked with this key, and the frame may have run its script.
        if key in self._keys:
            raise ExecutionError(f"{kind} of this call was asked before, and is not run twice")
        canvas = self._canvases.get((tree_id, session))
        if canvas is None or not self.count(tree_id, session):
            raise ExecutionError(NO_VIEWER)
        if len(canvas.waiting) >= MAX_WAITING:
            raise ExecutionError(
                f"{MAX_WAITING} questions to this canvas wait already; ask one after the other"
            )
        question = CanvasQuestion(secrets.token_hex(16), kind, code)
        self._keys[key] = None
        while len(self._keys) > MAX_KEPT_KEYS:
            del self._keys[next(iter(self._keys))]
        answer = self._answers[question.id] = asyncio.get_running_loop().create_future()
        canvas.waiting.append(question)
        canvas.news.set()
        try:
            async with asyncio.timeout(timeout_s):
                text: str = await answer
                return text
        except TimeoutError as error:
            taken = question not in canvas.waiting
            why = "the page that took it did not answer: its script may still run" if taken else NO_VIEWER
            raise ExecutionError(f"{kind} got no answer within {timeout_s:g} s; {why}") from error
        finally:
            del self._answers[question.id]
            if question in canvas.waiting:
                canvas.waiting.remove(question)

    async def await_question(
        self, tree_id: str, session: str, viewer: str, wait_s: float
    ) -> CanvasQuestion | None:
        """Wait for a question to a frame; the frame that waits counts as present.

        Args:
            tree_id: The tree.
            session: The session whose canvas the frame shows.
            viewer: Identifies the frame.
            wait_s: How long to wait; None is returned then.
        """
        canvas = self._canvases.setdefault((tree_id, session), _Canvas())
        canvas.seen_s.pop(viewer, None)
        while len(canvas.seen_s) >= MAX_VIEWERS:
            del canvas.seen_s[next(iter(canvas.seen_s))]
        canvas.seen_s[viewer] = float("inf")
        try:
            async with asyncio.timeout(wait_s):
                # Race: several frames wait for one question; whoever finds it taken waits again.
                while not canvas.waiting and viewer in canvas.seen_s:
                    canvas.news.clear()
                    await canvas.news.wait()
            # Race: the frame may have been closed while it waited, and a question that it took would be lost.
            return canvas.waiting.popleft() if viewer in canvas.seen_s else None
        except TimeoutError:
            return None
        finally:
            if viewer in canvas.seen_s:
                canvas.seen_s[viewer] = self._now_s()

    def leave(self, tree_id: str, session: str, viewer: str) -> None:
        """Forget a frame that was closed."""
        canvas = self._canvases.get((tree_id, session))
        if canvas is not None:
            canvas.seen_s.pop(viewer, None)
            canvas.news.set()

    def answer(self, question_id: str, text: str) -> None:
        """Take the answer of a frame; one that nobody waits for any more is dropped.

        Raises:
            ConfigError: it is too long.
        """
        if len(text) > MAX_ANSWER_CHARS:
            raise ConfigError(f"answer: at most {MAX_ANSWER_CHARS:,} characters")
        waiting = self._answers.get(question_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(text)

    def let_go(self, tree_id: str) -> None:
        """Forget the frames of a tree that was closed."""
        for key in [key for key in self._canvases if key[0] == tree_id]:
            del self._canvases[key]


def format_action(session: str, action: Mapping[str, JsonValue]) -> str:
    """Return what a session reads of an action on its canvas: JSON, marked as text from outside.

    Raises:
        ConfigError: it is too long, or has no JSON form.
    """
    try:
        text = dump_readable(dict(action))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"action: it has no JSON form: {error}") from error
    if len(text) > MAX_ACTION_CHARS:
        raise ConfigError(f"action: at most {MAX_ACTION_CHARS:,} characters")
    return f"{ACTION_HEAD}\n{wrap_untrusted(text, kind='canvas action', source=f'canvas of {session}')}"
