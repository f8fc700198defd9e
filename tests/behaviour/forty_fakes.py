"""A fan-out of forty children, of whom the last ten wait until their test lets them go."""

from __future__ import annotations

from typing import Any

from sessiontree import ModelRequest, script_call
from sessiontree.contracts.values.messages import ToolResultMessage
from tests.behaviour.signal_fixtures import Flag, Log
from tests.behaviour.switchboard_fixtures import Switchboard

CHILDREN = 40
AT_ONCE = 10
FREE = CHILDREN - AT_ONCE
CODE = f"""
found = await map("worker", [f"task {{at}}" for at in range({CHILDREN})], concurrency={AT_ONCE})
[found[0], found[-1], len(set(found))]
"""
SAID = ["done task 0", f"done task {CHILDREN - 1}", CHILDREN]


class FortyReply:
    """Has Main run the fan-out; a child of the last ten waits, and each child notes that it was answered.

    Args:
        board: Where all processes meet.
    """

    def __init__(self, board: Switchboard) -> None:
        self.gate = Flag(board)
        """Up when the last ten may go on."""
        self.answered = Log(board)
        """The session of each answer that a child got."""

    async def __call__(self, request: ModelRequest) -> Any:
        """Return what a session says next."""
        if request.session_id == "main":
            last = request.messages[-1]
            return last.text if isinstance(last, ToolResultMessage) else script_call("program", code=CODE)
        if int(request.session_id.removeprefix("main/w")) > FREE:
            await self.gate.wait()
        self.answered.append(request.session_id)
        return f"done {request.messages[0].text}"
