"""How long a notebook's kernel takes to answer a ping while sessions of a tree stream in it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager

from benchmarks.report import percentile

CELL: Final = """
import asyncio, random
from sessiontree import AsyncFunctionModel, Limits, SessionTree, script_call

async def look(request):
    await asyncio.sleep(1.0 if request.turn > 1 else random.random())
    return [script_call("read", path="a.txt")] if request.session_id != "main" else "ready"

tree = await SessionTree(
    "workspace", model=AsyncFunctionModel(look), backend="local", state_dir="state", slots={sessions} + 1,
    limits=Limits(max_children={sessions}, max_turns=100_000, max_repeats=None),
).start()
"""
BEGIN: Final = 'for _ in range({sessions}): await tree.main.spawn("worker", "look")'
"""Main's loop is that of the cells: what the sessions do there delays a ping."""
WARM_S: Final = 2.0


async def measure_kernel(sessions: int, pings: int) -> dict[str, Any]:
    """Return how long pings take: without sessions, and while so many of them work."""
    with tempfile.TemporaryDirectory(prefix="sessiontree-view-") as place:
        await asyncio.to_thread(_prepare, Path(place))
        manager = AsyncKernelManager()
        await manager.start_kernel(cwd=place, env={**os.environ, "IPYTHONDIR": place})
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=60)
            await _run(client, CELL.format(sessions=sessions))
            alone = await _pings(client, pings)
            await _run(client, BEGIN.format(sessions=sessions))
            await asyncio.sleep(WARM_S)
            busy = await _pings(client, pings)
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)
    return {
        "sessions": sessions,
        "ping_alone_p95_ms": percentile(alone, 95),
        "ping_p50_ms": percentile(busy, 50),
        "ping_p95_ms": percentile(busy, 95),
    }


def _prepare(place: Path) -> None:
    (place / "workspace").mkdir()
    (place / "workspace" / "a.txt").write_text("one\ntwo\nthree\n", "utf-8")


async def _run(client: AsyncKernelClient, cell: str) -> None:
    reply = await client.execute_interactive(cell, timeout=120, output_hook=lambda told: None)
    assert reply["content"]["status"] == "ok", reply["content"]


async def _pings(client: AsyncKernelClient, count: int) -> list[float]:
    """Ask the kernel who it is, again and again; return the milliseconds of each answer."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await client.kernel_info(reply=True, timeout=60)
        took.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.05)
    return took
