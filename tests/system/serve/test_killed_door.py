"""A server that is killed: clients go on where they were, and nothing runs twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest
from tests.system.serve.killed_fixtures import killed_door
from tests.system.serve.response_oracle import check_response
from tests.system.serve.test_client_tools import WEATHER, output

COUNT = "count.txt"
"""A file of the workspace in which each run of the effect adds one plus sign."""
EFFECT = FakeCall("edit", json.dumps({"path": COUNT, "old_text": "n:", "new_text": "n:+"}))


def has_results(request: FakeRequest) -> bool:
    """Whether the model has results of its calls."""
    return any(each.get("role") == "tool" for each in request.body["messages"])


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_kill_between_a_call_and_its_output(tmp_path: Path, kills: int) -> None:
    """The call is open, its output continues the turn, and a second kill changes nothing."""

    def reply(request: FakeRequest) -> FakeReply:
        if has_results(request):
            return FakeReply("It is sunny.")
        return FakeReply("I look.", calls=(EFFECT, FakeCall("weather", '{"place": "Rome"}')))

    async with FakeProvider(reply) as provider, killed_door(tmp_path, provider) as door:
        (door.workspace / COUNT).write_text("n:")
        first = await door.ask(input="go", tools=[WEATHER])
        check_response(first)
        kinds = [each["type"] for each in first["output"]]
        assert kinds == ["message", "sessiontree:tool_call", "function_call"]
        given: list[Any] = [output(first["output"][-1]["call_id"], "sun")]
        await door.kill()
        await door.start()
        second = await door.ask(input=given, previous_response_id=first["id"])
        assert second["output"][-1]["content"][0]["text"] == "It is sunny."
        if kills > 1:
            await door.kill()
            await door.start()
        again = await door.ask(input=given, previous_response_id=first["id"])
        assert (again["id"], again["output"]) == (second["id"], second["output"])
        async with door.client() as client:
            for each in (first, second):
                assert (await client.get(f"/responses/{each['id']}")).json()["output"] == each["output"]
        assert (door.workspace / COUNT).read_text() == "n:+"
        assert len(provider.requests) == 2


@pytest.mark.slow
@pytest.mark.long
async def test_kill_during_a_stream(tmp_path: Path) -> None:
    """The response is found again by its id, ends, and what had run before the kill does not run again."""
    asked = asyncio.Event()

    def reply(request: FakeRequest) -> FakeReply:
        if not has_results(request):
            return FakeReply("I edit.", calls=(EFFECT,))
        first_s = 0.0 if asked.is_set() else 600.0
        asked.set()
        return FakeReply("All is done.", first_s=first_s)

    async with FakeProvider(reply) as provider, killed_door(tmp_path, provider) as door:
        (door.workspace / COUNT).write_text("n:")
        names: list[str] = []

        async def listen() -> None:
            body = {"model": "default", "input": "go", "stream": True}
            async with door.client() as client, client.stream("POST", "/responses", json=body) as answer:
                async for line in answer.aiter_lines():
                    if '"type":"response.created"' in line:
                        found = json.loads(line.removeprefix("data: "))
                        names.append(found["response"]["id"])

        listening = asyncio.create_task(listen())
        await asyncio.wait([listening, asyncio.create_task(asked.wait())], return_when="FIRST_COMPLETED")
        await door.kill()
        await asyncio.wait([listening])
        assert listening.exception() is not None, "a response goes on when its connection ends"
        await door.start()
        async with door.client() as client:
            answer = await client.get(f"/responses/{names[0]}?stream=true")
            events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        whole = events[-1]["response"]
        check_response(whole)
        assert whole["status"] == "completed"
        assert whole["output"][-1]["content"][0]["text"] == "All is done."
        assert (door.workspace / COUNT).read_text() == "n:+"
