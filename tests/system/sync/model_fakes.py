"""A model that waits for its test, in whichever process it runs."""

from __future__ import annotations

from sessiontree import AsyncFunctionModel, ModelRequest
from sessiontree.models.answers import Answer
from tests.behaviour.signal_fixtures import Flag, Turnstile
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.system.sync.tree_fixtures import PATIENCE_S


class Gated:
    """A model that answers when it is let."""

    def __init__(self, board: Switchboard) -> None:
        self.asked = Flag(board)
        self.gate = Turnstile(board)
        asked, gate = self.asked, self.gate

        async def reply(request: ModelRequest) -> Answer:
            asked.set()
            await gate.acquire()
            return f"heard {request.messages[-1].text}"

        self.model = AsyncFunctionModel(reply)

    def is_asked(self) -> bool:
        """Block until the model was asked."""
        return self.asked.wait_blocking(PATIENCE_S)
