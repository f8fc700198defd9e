"""A person's login at a server on loopback: stored privately, used headless, refreshed by one process."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import urllib.request
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sessiontree.mcp.server_process import ServerProcess, ServerUnavailable, start_server
from sessiontree.mcp.settings import McpServer, reach

pytestmark = pytest.mark.slow


@asynccontextmanager
async def guarded_server() -> AsyncIterator[str]:
    """Run the server; give its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.unit.mcp.guarded_server_program", stdout=PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    finally:
        process.kill()
        await process.wait()


async def ask(address: str) -> Any:
    """Return what an address answers; follows redirects, as a browser does."""
    opened = partial(urllib.request.urlopen, address, timeout=30)
    answer = await asyncio.to_thread(lambda: opened().read())
    try:
        return json.loads(answer)
    except ValueError:
        return answer


async def connect(url: str, tokens: Path) -> dict[str, Any]:
    """Connect headless, and call the tool."""
    process = ServerProcess("guarded")
    try:
        await start_server(reach("guarded", McpServer(url=url), str(tokens)), process)
        return await process.call({"tool": "secret", "arguments": {}}, 30)
    finally:
        await process.close()


async def log_in(url: str, tokens: Path) -> None:
    """Log in as a person who opens the address that is shown."""
    opened: list[asyncio.Task[Any]] = []
    process = ServerProcess("guarded")
    process.shown = lambda address: opened.append(asyncio.create_task(ask(address)))
    await process.start({"do": "login", "url": url, "tokens": str(tokens)}, 60)
    await process.close()
    assert len(opened) == 1
    await opened[0]


async def test_login_is_stored_privately_and_used_headless(tmp_path: Path) -> None:
    """Without one a connection fails typed, and registers nothing."""
    async with asyncio.timeout(90), guarded_server() as base:
        url, tokens = f"{base}/mcp", tmp_path / "tokens"
        with pytest.raises(ServerUnavailable, match="sessiontree mcp login guarded") as raised:
            await connect(url, tokens)
        assert raised.value.needs_login
        assert await ask(f"{base}/count") == {}
        await log_in(url, tokens)
        (file,) = tokens.glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        stored = json.loads(file.read_text())
        assert (stored["issuer"].rstrip("/"), stored["resource"]) == (base, url)
        assert (await connect(url, tokens))["reply"]["text"] == "only with a token"


@pytest.mark.long
async def test_tokens_are_refreshed_once_and_a_refusal_loses_nothing(tmp_path: Path) -> None:
    """Two processes with the same old tokens refresh them once; a refused refresh keeps the registration."""
    async with asyncio.timeout(180), guarded_server() as base:
        url, tokens = f"{base}/mcp", tmp_path / "tokens"
        await log_in(url, tokens)
        await ask(f"{base}/expire")
        both = [asyncio.create_task(connect(url, tokens)) for _ in range(2)]
        assert [(await each)["reply"]["text"] for each in both] == ["only with a token"] * 2
        assert (await ask(f"{base}/count"))["refresh_token"] == 1
        await ask(f"{base}/expire")
        await ask(f"{base}/refuse")
        with pytest.raises(ServerUnavailable, match="needs a login"):
            await connect(url, tokens)
        (file,) = tokens.glob("*.json")
        assert json.loads(file.read_text())["client"]["client_id"] == "client-1"
