"""A server with doors in a process of its own, as people start it, which can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sessiontree.doors.principals import DoorRights
from sessiontree.doors.tokens import TokenFile
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.testing.fake_provider.fake_server import FakeProvider

COMMAND = Path(sys.executable).with_name("sessiontree")
CONFIGURED = """
model = "mine"
approvals = "auto"

[models.mine]
model = "openai:gpt-5"
base_url = "{url}"
key = "env:MY_KEY"
"""
_ADDRESS = re.compile(r"ask at (http://[^\s]+)/v1")


@dataclass
class KilledDoor:
    """A server with doors and its state directory.

    Args:
        place: Where its state and its workspace are.
        provider: What its model asks.
    """

    place: Path
    provider: FakeProvider
    token: str = ""
    origin: str = ""
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def workspace(self) -> Path:
        """The directory of all trees."""
        return self.place / "workspace"

    @property
    def state_dir(self) -> Path:
        """Where the journal is."""
        return self.place / "state"

    def prepare(self) -> None:
        """Write the owner's configuration, and make a token."""
        self.workspace.mkdir()
        file = self.place / "sessiontree.toml"
        file.write_text(CONFIGURED.format(url=self.provider.url("openai")))
        file.chmod(0o600)
        rights = DoorRights(workspace=str(self.workspace), tier="Workspace", per_minute=10_000)
        self.token = TokenFile(self.state_dir).add("editor", rights, read_machine_ms(), None)

    async def start(self) -> None:
        """Start the server, and wait until it says where to ask."""
        options = ("--doors", "--backend", "local", "--port", "0")
        places = ("--state-dir", self.state_dir, "--config", self.place / "sessiontree.toml")
        environment = {**os.environ, "HOME": str(self.place), "MY_KEY": "sk-sentinel"}
        self._process = await asyncio.create_subprocess_exec(
            COMMAND,
            "serve",
            *options,
            *places,
            env=environment,
            cwd=self.place,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        said = ""
        while (found := _ADDRESS.search(said)) is None:
            line = await self._process.stdout.readline()
            assert line, f"it ended: {said}"
            said += line.decode()
        self.origin = found[1]

    async def kill(self) -> None:
        """Kill it with SIGKILL, and all that it started."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def client(self) -> httpx.AsyncClient:
        """Return a client with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(base_url=f"{self.origin}/v1", headers=headers, timeout=60)

    async def ask(self, **body: Any) -> Any:
        """Ask, and return the response."""
        async with self.client() as client:
            answer = await client.post("/responses", json={"model": "default", **body})
            assert answer.status_code == 200, answer.text
            return answer.json()


@asynccontextmanager
async def killed_door(place: Path, provider: FakeProvider) -> AsyncIterator[KilledDoor]:
    """Give a server that runs, and end it."""
    door = KilledDoor(place, provider)
    door.prepare()
    await door.start()
    try:
        yield door
    finally:
        await door.kill()
