"""A provider on loopback for the command, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, Script
from tests.system.cli.command_fixtures import Program

KEY = "sk-sentinel-5Rk8"
Serve = Callable[..., None]


@contextmanager
def serving(program: Program, place: Path) -> Iterator[Serve]:
    """Yield what starts a provider that gives these replies in turn, and has the command ask it."""
    with ExitStack() as stack:

        def start(*replies: dict[str, Any]) -> None:
            script = place / "replies.json"
            script.write_text(json.dumps(replies))
            command = [sys.executable, "-m", "sessiontree.testing.fake_provider", "--script", str(script)]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            program.environment |= {
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            }

        yield start


@contextmanager
def heard_provider(program: Program, script: Script) -> Iterator[FakeProvider]:
    """Yield a provider in a thread of this process, which keeps what it is asked; the command asks it."""
    provider = FakeProvider(script)
    is_ready, is_over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        async with provider:
            loops.append(asyncio.get_running_loop())
            is_ready.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    is_ready.wait()
    program.environment |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": provider.url("openai")}
    try:
        yield provider
    finally:
        loops[0].call_soon_threadsafe(is_over.set)
        thread.join()


def replies(*each: dict[str, Any]) -> tuple[FakeReply, ...]:
    """Return replies as a script file has them."""
    return tuple(map(FakeReply.from_wire, each))
