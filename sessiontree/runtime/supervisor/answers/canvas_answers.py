"""What frames that show a session's canvas send, and what they are asked."""

from __future__ import annotations

from collections.abc import Mapping

from sessiontree.contracts.recorded.canvas import CanvasQuestion
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.runtime.supervisor.canvas_viewers import format_action
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.supervisor_api import CanvasApi
from sessiontree.tree.state import protocol as tree_stimuli


class CanvasAnswers(CanvasApi):
    """Answers frames that show canvases."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def act_on_canvas(
        self, tree_id: str, session: str, action: Mapping[str, JsonValue], action_id: str
    ) -> None:
        """Send the session an action of a frame that shows its canvas; durable when this returns."""
        self._supervisor.check_session(tree_id, session)
        text = format_action(session, action)
        controller = self._supervisor.tree(tree_id)
        came = tree_stimuli.CanvasActionSent(controller.now_ms(), session, action_id, text)
        for instruction in await controller.settle(came, f"canvas:{session}"):
            if isinstance(instruction, tree_stimuli.RefuseChannelMessage):
                raise instruction.error

    async def answer_canvas(self, tree_id: str, question_id: str, text: str) -> None:
        """Answer a question to a frame that shows a canvas."""
        self._supervisor.tree(tree_id)
        self._supervisor.canvas_viewers.answer(question_id, text)

    async def leave_canvas(self, tree_id: str, session: str, viewer: str) -> None:
        """Note that a frame no longer shows a session's canvas."""
        self._supervisor.canvas_viewers.leave(tree_id, session, viewer)

    async def await_canvas_question(
        self, tree_id: str, session: str, viewer: str, wait_s: float
    ) -> CanvasQuestion | None:
        """Wait for a question to a frame that shows a session's canvas."""
        self._supervisor.check_session(tree_id, session)
        return await self._supervisor.canvas_viewers.await_question(tree_id, session, viewer, wait_s)
