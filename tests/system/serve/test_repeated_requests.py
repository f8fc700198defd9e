"""A request that is sent again with its key begins one turn, and has the answer of that turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from sessiontree import AsyncFunctionModel, FunctionModel, ModelRequest
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.serve.door_fixtures import Door, open_door
from tests.system.serve.killed_fixtures import killed_door

KEY = {"Idempotency-Key": "one-of-mine"}


async def post(door: Door, token: str, headers: dict[str, str] = KEY, **body: Any) -> httpx.Response:
    """Send a request with a key."""
    async with door.bare(token) as client:
        return await client.post("/v1/responses", json={"model": "default", **body}, headers=headers)


async def test_request_with_a_key_is_heard_once(tmp_path: Path) -> None:
    """A new conversation, its next turn and a fork; also over a restart, and whether it is kept or not."""
    heard: list[str] = []

    def reply(request: ModelRequest) -> str:
        heard.append(request.messages[-1].text)
        return f"answer {len(heard)}"

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        token = door.make_token()
        first = (await post(door, token, input="one")).json()
        assert (await post(door, token, input="one")).json() == first
        given: dict[str, Any] = {"input": "two", "previous_response_id": first["id"]}
        given["headers"] = {"Idempotency-Key": "n"}
        second = (await post(door, token, **given)).json()
        assert (await post(door, token, **given)).json() == second
        fork = {"input": "three", "previous_response_id": first["id"], "headers": {"Idempotency-Key": "f"}}
        third = (await post(door, token, **fork)).json()
        assert third["id"].split("_")[0] != first["id"].split("_")[0]
        assert (await post(door, token, **fork)).json() == third
        passing: dict[str, Any] = {"input": "four", "store": False, "headers": {"Idempotency-Key": "p"}}
        assert (await post(door, token, **passing)).json() == (await post(door, token, **passing)).json()
        theirs = (await post(door, door.make_token("theirs"), input="one")).json()
        assert theirs["id"] != first["id"]
        assert heard == ["one", "two", "three", "four", "one"]
    async with open_door(tmp_path, FunctionModel(reply)) as door:
        assert (await post(door, token, input="one")).json() == first
        assert (await post(door, token, **fork)).json() == third
        assert len(heard) == 5


async def test_key_belongs_to_one_request(tmp_path: Path) -> None:
    """Another request with it is refused, and so is what can't be a key."""
    async with open_door(tmp_path, FunctionModel(lambda request: "done")) as door:
        token = door.make_token()
        first = (await post(door, token, input="one")).json()
        other = await post(door, token, input="other")
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_used")
        assert other.headers["x-should-retry"] == "false"
        given: dict[str, Any] = {"previous_response_id": first["id"]}
        assert (await post(door, token, input="two", **given)).status_code == 422
        given["headers"] = {"Idempotency-Key": "two"}
        assert (await post(door, token, input="two", **given)).status_code == 200
        assert (await post(door, token, input="three", **given)).status_code == 422
        for wrong in ("", "a b", "x" * 256):
            refused = await post(door, token, {"Idempotency-Key": wrong}, input="one")
            assert (refused.status_code, "Idempotency-Key" in refused.text) == (400, True)
        async with door.bare(token) as client:
            two = httpx.Headers([("Idempotency-Key", "1"), ("Idempotency-Key", "2")])
            body = {"model": "default", "input": "one"}
            assert (await client.post("/v1/responses", json=body, headers=two)).status_code == 400


async def test_request_is_repeated_while_its_turn_goes_on(tmp_path: Path) -> None:
    """All that are sent at once have one answer, as JSON and as a stream; so do chat completions."""
    goes_on = asyncio.Event()
    heard: list[str] = []

    async def reply(request: ModelRequest) -> str:
        heard.append(request.messages[-1].text)
        await goes_on.wait()
        return "done"

    async with open_door(tmp_path, AsyncFunctionModel(reply)) as door:
        token = door.make_token()
        async with asyncio.TaskGroup() as group:
            sent = [group.create_task(post(door, token, input="one")) for _ in range(4)]
            while not heard:
                await asyncio.wait(sent, timeout=0.01)
            goes_on.set()
        assert len({each.result().json()["id"] for each in sent}) == 1
        streamed: dict[str, Any] = {"input": "s", "stream": True, "headers": {"Idempotency-Key": "s"}}
        texts = [(await post(door, token, **streamed)).text for _ in range(2)]
        assert all("response.completed" in each and "done" in each for each in texts)
        said = {"model": "default", "messages": [{"role": "user", "content": "chat"}]}
        async with door.bare(token) as client:
            path = "/v1/chat/completions"
            chat_key = {"Idempotency-Key": "c"}
            chats = [(await client.post(path, json=said, headers=chat_key)).json() for _ in range(2)]
        assert chats[0] == chats[1]
        assert heard == ["one", "s", "chat"]


@pytest.mark.slow
@pytest.mark.long
async def test_kill_before_the_answer(tmp_path: Path) -> None:
    """The client sends the request again to the next server, and it is the same response."""
    asked = asyncio.Event()

    def reply(request: Any) -> FakeReply:
        first_s = 0.0 if asked.is_set() else 600.0
        asked.set()
        return FakeReply("All is done.", first_s=first_s)

    async with FakeProvider(reply) as provider, killed_door(tmp_path, provider) as door:
        body = {"model": "default", "input": "go"}
        async with door.client() as client:
            sent = asyncio.create_task(client.post("/responses", json=body, headers=KEY))
            await asyncio.wait([sent, asyncio.create_task(asked.wait())], return_when="FIRST_COMPLETED")
            await door.kill()
            await asyncio.wait([sent])
            assert sent.exception() is not None
        await door.start()
        async with door.client() as client:
            answers = [(await client.post("/responses", json=body, headers=KEY)).json() for _ in range(2)]
        assert answers[0] == answers[1]
        assert answers[0]["output"][-1]["content"][0]["text"] == "All is done."
        heard = [each.body["messages"] for each in provider.requests]
        assert [[one["content"] for one in each if one["role"] == "user"] for each in heard] == [["go"]] * 2
