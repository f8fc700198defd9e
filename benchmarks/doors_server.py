"""The server of ``benchmarks.doors``: trees behind every door, in a process of its own.

Its model repeats the last message, or waits with it: ``wait 500`` is answered when 500 such messages wait.
The first lines on standard output are its origin and a token. It ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from sessiontree import AsyncFunctionModel, ModelRequest, Runtime
from sessiontree.doors.conversations import Conversations
from sessiontree.doors.principals import DoorRights
from sessiontree.doors.tokens import TokenFile
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.routes.door_guard import DoorGuard
from sessiontree.serve.routes.door_routes import DoorRoutes

OFTEN = 100_000


class WaitingModel:
    """Answers at once, or all that wait for as many together."""

    def __init__(self) -> None:
        self._waiting = 0
        self._all_wait = asyncio.Event()

    async def reply(self, request: ModelRequest) -> str:
        """Return the last message."""
        text = request.messages[-1].text
        name, _, number = text.partition(" ")
        if name == "wait":
            self._waiting += 1
            if self._waiting == int(number):
                self._all_wait.set()
            await self._all_wait.wait()
        return text


async def serve(place: Path) -> None:
    """Serve until the standard input closes."""
    workspace = place / "workspace"
    workspace.mkdir()
    tokens = TokenFile(place / "state")
    rights = DoorRights(workspace=str(workspace), per_minute=OFTEN, max_open=10_000)
    token = tokens.add("benchmark", rights, read_machine_ms(), None)
    model = AsyncFunctionModel(WaitingModel().reply)

    def options_for(workspace: str, agent: str | None) -> dict[str, Any]:
        return {"model": model, "agent": agent or "default"}

    conversations = Conversations(lambda: Runtime(place / "state", backend="local"), options_for)
    server = PageServer(
        place / "state", Address(), DoorRoutes(DoorGuard(tokens), conversations, ("default",))
    )
    running = asyncio.create_task(server.run(lambda: print(server.origin, token, sep="\n", flush=True)))
    await asyncio.to_thread(sys.stdin.read)
    server.stop()
    await running


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        asyncio.run(serve(Path(folder)))
