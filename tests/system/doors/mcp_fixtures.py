"""Clients of MCP: those of its library, and a bare one that speaks the newest revision and its tasks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from sessiontree.doors.mcp.calls import TASKS
from sessiontree.doors.principals import DoorRights
from sessiontree.doors.tokens import TokenFile
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.routes.door_guard import DoorGuard
from sessiontree.serve.routes.door_routes import DoorRoutes
from sessiontree.serve.routes.door_set import DoorSet
from sessiontree.serve.routes.mcp_routes import McpRoutes, TaskPolls, make_door
from tests.system.doors.mcp_fakes import make_trees
from tests.system.serve.serve_fixtures import running

NEWEST = "2026-07-28"
REVISIONS = (NEWEST, "legacy")
PROGRAM = "tests.system.doors.mcp_program"
Json = dict[str, Any]


def make_token(place: Path, name: str = "client", **rights: Any) -> str:
    """Return a new token of a state directory, which may ask very often."""
    given = {"workspace": str(place / "workspace"), "per_minute": 100_000, **rights}
    return TokenFile(place / "state").add(name, DoorRights(**given), read_machine_ms(), None)


@asynccontextmanager
async def open_mcp(place: Path, polls: TaskPolls | None = None) -> AsyncIterator[str]:
    """Serve MCP on this loop; yield the server's address."""
    trees, guard = make_trees(place), DoorGuard(TokenFile(place / "state"))
    doors = DoorSet([DoorRoutes(guard, trees, ("default",)), McpRoutes(guard, make_door(trees), polls)])
    async with running(PageServer(place / "state", Address(), doors)) as server:
        yield server.origin


@asynccontextmanager
async def http_client(origin: str, token: str, mode: str = NEWEST) -> AsyncIterator[Client]:
    """Connect the library's client with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{origin}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def pipe_client(place: Path, mode: str = NEWEST) -> AsyncIterator[Client]:
    """Start a server and connect the library's client over its pipes."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", PROGRAM, str(place), "stdio"], env=dict(os.environ)
    )
    async with Client(stdio_client(command), mode=mode) as client:
        yield client


@asynccontextmanager
async def http_program(place: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Start a server in a process; yield its address and the process, which is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", PROGRAM, str(place), "http", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip(), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class RpcError(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(f"{status} {error}")
        self.status = status
        self.code: int = error["code"]
        self.message: str = error["message"]


@dataclass
class BareClient:
    """Sends requests of the newest revision one by one."""

    origin: str
    token: str
    capabilities: Json = field(default_factory=lambda: {"elicitation": {}, "extensions": {TASKS: {}}})

    async def ask(self, method: str, **params: Any) -> Json:
        """Return the result of a request.

        Raises:
            RpcError: it is an error.
        """
        meta = {
            "io.modelcontextprotocol/protocolVersion": NEWEST,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": NEWEST,
            "Mcp-Method": method,
            "Mcp-Name": str(params.get("taskId") or params.get("name") or ""),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        async with httpx.AsyncClient(base_url=self.origin, timeout=60) as http:
            answer = await http.post("/mcp", json=body, headers=headers)
        if answer.headers["content-type"].startswith("text/event-stream"):
            raise AssertionError("a stream is not read here")
        found: Json = answer.json()
        if "error" in found:
            raise RpcError(answer.status_code, found["error"])
        result: Json = found["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> Json:
        """Return the result of a call of a tool."""
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def until(self, task_id: str, *statuses: str) -> Json:
        """Ask for a task until it has one of these states."""
        async with asyncio.timeout(60):
            while True:
                task = await self.ask("tasks/get", taskId=task_id)
                if task["status"] in statuses:
                    return task
                await asyncio.sleep(0.05)  # as a client that polls
