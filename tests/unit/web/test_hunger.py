"""REL-L48: no answer, however long or tightly packed, makes the process that reads it grow."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.unit.web.site_fakes import Respond, answer, serving
from tests.unit.web.test_client import (
    empty_blocks,
    endless_headers,
    endless_hints,
    endless_line,
    endless_trailers,
    members,
    slow_loris,
    tiny_chunks,
)

MAX_BYTES = 32 * 2**20
BOMB_BYTES = 256 * 2**20
CHUNKS = 10 * 2**30 // 2**16


async def ten_gigabytes(request: str, writer: asyncio.StreamWriter) -> None:
    """Answer 10 GB in chunks, as far as anybody takes them."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(CHUNKS):
        writer.write(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def packed_for_ever(request: str, writer: asyncio.StreamWriter) -> None:
    """Answer one gzip bomb after another."""
    bomb = gzip.compress(bytes(BOMB_BYTES // 16))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
    while True:
        writer.write(bomb)
        await writer.drain()


@pytest.mark.covers("REL-L48")
@pytest.mark.slow
async def test_hostile_answers_cost_little_memory() -> None:
    """Peak growth below 32 MB for each of them, in a process of its own."""
    bomb = gzip.compress(bytes(BOMB_BYTES), 9)
    assert BOMB_BYTES / len(bomb) > 1000
    hostile: dict[str, Respond] = {
        "warm": answer(gzip.compress(b"x"), headers=["Content-Encoding: gzip"]),
        "ten gigabytes": ten_gigabytes,
        "bomb": answer(bomb, headers=["Content-Encoding: gzip"]),
        "packed for ever": packed_for_ever,
        "empty blocks": empty_blocks,
        "members": members,
        "headers": endless_headers,
        "one line": endless_line,
        "hints": endless_hints,
        "trailers": endless_trailers,
        "tiny chunks": tiny_chunks,
        "slow loris": slow_loris,
    }
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        sites = {name: await stack.enter_async_context(serving(each)) for name, each in hostile.items()}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.unit.web.hungry_program"),
            *(str(site.port) for site in sites.values()),
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0
    measured = json.loads(said)
    found = {name: measured[str(site.port)] for name, site in sites.items()}
    assert all(site.requests for site in sites.values())
    for name, one in found.items():
        assert one["grown_bytes"] < MAX_BYTES, (name, found)
    assert found["warm"]["body_bytes"] == 1
    assert found["bomb"]["body_bytes"] == found["ten gigabytes"]["body_bytes"] == 2 * 2**20
