"""Hostile clients: what they send is refused by type and within bounds, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from sessiontree import FunctionModel
from tests.system.serve.door_fixtures import open_door
from tests.system.serve.test_client_tools import WEATHER
from tests.system.serve.test_doors import echo

NOTHING: list[Any] = [None, True, -1, 10**30, 1e308, "", "\x00", "é\ud800", [], {}, [[]], {"type": "message"}]
RESPONSE: dict[str, Any] = {
    "model": "default",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
    "tools": [WEATHER],
    "metadata": {"a": "b"},
    "tool_choice": "auto",
    "previous_response_id": None,
    "stream": False,
}
CHAT: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "stream_options": {"include_usage": True},
}


def spoiled(random: Random, value: Any) -> Any:
    """Return a value in which one place holds something else."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        name = random.choice(list(value))
        return {**value, name: spoiled(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], spoiled(random, value[place]), *value[place + 1 :]]
    return random.choice([*NOTHING, "x" * random.choice((1, 300, 70_000)), [value] * random.choice((2, 200))])


def hostile_body(random: Random) -> tuple[str, bytes]:
    """Return a path and a body that is mostly not valid."""
    path, form = random.choice((("/v1/responses", RESPONSE), ("/v1/chat/completions", CHAT)))
    value = spoiled(random, form)
    while random.random() < 0.4:
        value = spoiled(random, value)
    text = json.dumps(value).encode()
    if random.random() < 0.1:
        text = text.replace(b'"x"', random.choice((b"NaN", b"1e999", b"-Infinity", b'"\\ud800"')))
    if random.random() < 0.2:
        cut = random.randrange(len(text))
        text = text[:cut] + random.choice((b"", b"\xff", b"}", b"[" * 2_000)) + text[cut + 1 :]
    return path, text


@pytest.mark.parametrize(
    "count", [150, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
async def test_malformed_requests_are_refused(tmp_path: Path, count: int) -> None:
    """None of them is an error of the server, and an honest client is served after them."""
    random = Random(31)
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token(per_minute=100_000, max_open=500)
        async with door.bare(token) as client:
            for _ in range(count):
                path, body = hostile_body(random)
                answer = await client.post(path, content=body)
                assert answer.status_code in {200, 400, 404, 409, 413}, (body[:500], answer.text[:500])
                if answer.status_code != 200:
                    assert answer.json()["error"]["message"]
                    assert token not in answer.text
            for name in (
                "..%2f..%2fetc%2fpasswd",
                "%00",
                "t" * 5_000,
                "t0123456789abcdef_" + "0" * 24 + "-1",
            ):
                assert (await client.get(f"/v1/responses/{name}")).status_code in {404, 414}
            answer = await client.post("/v1/responses", json={"model": "default", "input": "x"})
            assert answer.json()["status"] == "completed"


async def test_slow_body_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A client that sends one byte and no more holds its own place alone."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        slow, honest = door.make_token("slow", max_open=2), door.make_token("honest")
        wait = asyncio.Event()

        async def one_byte() -> Any:
            yield b"{"
            await wait.wait()

        async with door.bare(slow) as client:
            sending = [
                asyncio.create_task(client.post("/v1/responses", content=one_byte())) for _ in range(2)
            ]
            async with asyncio.timeout(30):
                while (await client.get("/v1/models")).status_code != 429:
                    pass
            async with door.bare(honest) as other:
                answer = await other.post("/v1/responses", json={"model": "default", "input": "x"})
                assert answer.status_code == 200
            wait.set()
            for each in sending:
                assert (await each).status_code == 400
            async with asyncio.timeout(30):
                while (await client.get("/v1/models")).status_code != 200:
                    pass


async def test_client_that_goes_away_loses_nothing(tmp_path: Path) -> None:
    """Its turn goes on, and another connection gets the response."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        async with door.bare(token) as client:
            body = {"model": "default", "input": "x", "stream": True}
            async with client.stream("POST", "/v1/responses", json=body) as answer:
                lines = answer.aiter_lines()
                while not (line := await anext(lines)).startswith("data: "):
                    pass
            response_id = json.loads(line[6:])["response"]["id"]
        async with door.bare(token) as client, asyncio.timeout(30):
            while True:
                shown: httpx.Response = await client.get(f"/v1/responses/{response_id}")
                if shown.status_code == 200 and shown.json()["status"] == "completed":
                    break
