"""A server with doors on this process's loop, its tokens, and clients that hold one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI

from sessiontree import Model, PolicyConfig, Runtime, ToolPolicy
from sessiontree.doors.conversations import Conversations
from sessiontree.doors.principals import DoorRights
from sessiontree.doors.tokens import TokenFile
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.routes.door_guard import DoorGuard
from sessiontree.serve.routes.door_routes import DoorRoutes
from tests.behaviour.effect_fakes import TOOLS
from tests.system.serve.serve_fixtures import running


@dataclass
class Door:
    """A server that programs may ask.

    Args:
        place: Where its state and its workspace are.
        origin: Its address.
        conversations: Those of all its tokens.
    """

    place: Path
    origin: str
    conversations: Conversations
    clients: list[AsyncOpenAI] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        """The directory of all trees."""
        return self.place / "workspace"

    @property
    def tokens(self) -> TokenFile:
        """Its tokens, as their owner changes them."""
        return TokenFile(self.place / "state")

    def make_token(self, name: str = "editor", **rights: Any) -> str:
        """Return a new token."""
        given = DoorRights(workspace=str(self.workspace), **rights)
        return self.tokens.add(name, given, read_machine_ms(), None)

    def client(self, token: str) -> AsyncOpenAI:
        """Return a client that holds a token; it tries nothing twice."""
        made = AsyncOpenAI(api_key=token, base_url=f"{self.origin}/v1", max_retries=0, timeout=60)
        self.clients.append(made)
        return made

    def bare(self, token: str | None = None) -> httpx.AsyncClient:
        """Return a client that sends what it is given, as this token or as nobody."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.origin, headers=headers, timeout=60)

    async def records(self, tree_id: str) -> list[JournalRecord]:
        """Return all that the journal has of a tree of the first token, oldest first."""
        principal = self.tokens.all()[0].principal
        return await (await self.conversations.find(principal, tree_id)).log.feed.list_records()

    async def stream(self, token: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Ask for a stream, and return its events; it ends as the specification says."""
        events: list[dict[str, Any]] = []
        async with self.bare(token) as client, client.stream("POST", "/v1/responses", json=body) as answer:
            lines = [line async for line in answer.aiter_lines() if line and not line.startswith(":")]
        assert answer.status_code == 200, lines
        assert lines.pop() == "data: [DONE]"
        for name, data in zip(lines[::2], lines[1::2], strict=True):
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
        return events


async def refused(attempt: Any) -> tuple[int, str]:
    """Return the status and the message with which an attempt is refused."""
    with pytest.raises(APIStatusError) as caught:
        await attempt
    return caught.value.status_code, caught.value.message


@asynccontextmanager
async def open_door(place: Path, model: Model) -> AsyncIterator[Door]:
    """Serve the doors of a state directory; trees are local."""
    (place / "workspace").mkdir(exist_ok=True)
    policy = PolicyConfig(tools=ToolPolicy(allow=("*",)))

    def options_for(workspace: str, agent: str | None) -> dict[str, Any]:
        return {"model": model, "tools": TOOLS, "policy": policy, "agent": agent or "default"}

    conversations = Conversations(lambda: Runtime(place / "state", backend="local"), options_for)
    routes = DoorRoutes(DoorGuard(TokenFile(place / "state")), conversations, ("default",))
    async with running(PageServer(place / "state", Address(), routes)) as server:
        door = Door(place, server.origin, conversations)
        try:
            yield door
        finally:
            for client in door.clients:
                await client.close()
