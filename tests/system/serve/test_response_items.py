"""Items of a response: what the tree ran itself, in the order of the journal, and never for a second run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from sessiontree import AsyncFunctionModel, FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, Usage, UserMessage
from tests.system.serve.door_fixtures import open_door
from tests.system.serve.response_oracle import check_events, check_response


async def test_what_the_tree_ran_itself_is_shown_as_that(tmp_path: Path) -> None:
    """Calls and children have types of their own; stream, response and later look say the same."""

    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text == "go":
            return ["I append.", script_call("append", text="x")]
        if request.turn == 2 and request.session_id == "main":
            return script_call("sessions_spawn", kind="branch", task="look around", wait="all")
        return "done"

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        token = door.make_token(tier="Workspace")
        events = await door.stream(token, {"model": "default", "input": "go", "stream": True})
        check_events(events)
        whole = events[-1]["response"]
        kinds = [each["type"] for each in whole["output"]]
        assert kinds[:2] == ["message", "sessiontree:tool_call"]
        assert set(kinds[2:]) >= {"sessiontree:spawn", "sessiontree:tool_call", "message"}
        assert "function_call" not in kinds
        assert json.loads(whole["output"][1]["arguments"]) == {"text": "x"}
        async with door.bare(token) as client:
            later = (await client.get(f"/v1/responses/{whole['id']}")).json()
            assert later["output"] == whole["output"]
            again = await client.get(f"/v1/responses/{whole['id']}?stream=true")
            replayed = [
                json.loads(line[6:]) for line in again.text.splitlines() if line.startswith("data: {")
            ]
            check_events(replayed)
            assert [each["type"] for each in replayed][-1] == "response.completed"
            numbers = {each["sequence_number"]: each["type"] for each in events}
            assert all(numbers[each["sequence_number"]] == each["type"] for each in replayed)
            half = replayed[len(replayed) // 2]["sequence_number"]
            rest = await client.get(f"/v1/responses/{whole['id']}?stream=true&starting_after={half}")
            left = [json.loads(line[6:]) for line in rest.text.splitlines() if line.startswith("data: {")]
            assert left == [each for each in replayed if each["sequence_number"] > half]
            assert (
                await client.get(f"/v1/responses/{whole['id']}?stream=true&starting_after=x")
            ).status_code == 400


async def test_request_that_waits_is_an_item_until_it_is_decided(tmp_path: Path) -> None:
    """It is seen at once, decided by an inbox of the owner, and its last state is in the response."""

    def reply(request: ModelRequest) -> Any:
        return script_call("launch") if isinstance(request.messages[-1], UserMessage) else "done"

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        token = door.make_token(tier="Elevated", approves=True)
        async with door.bare(token) as client:
            body = {"model": "default", "input": "go", "background": True}
            begun = (await client.post("/v1/responses", json=body)).json()
            check_response(begun)
            assert (begun["status"], begun["background"]) == ("in_progress", True)
            async with asyncio.timeout(30):
                while not (shown := (await client.get(f"/v1/responses/{begun['id']}")).json())["output"]:
                    check_response(shown)
            (asked,) = shown["output"]
            assert (asked["type"], asked["name"], asked["decision"]) == (
                "sessiontree:approval",
                "launch",
                None,
            )
            ended = (await client.post(f"/v1/responses/{begun['id']}/cancel")).json()
            check_response(ended)
            assert ended["status"] == "failed"
            assert ended["output"][0]["decision"] == "cancelled"


async def test_usage_is_that_of_the_response(tmp_path: Path) -> None:
    """Children included, earlier turns not."""

    def reply(request: ModelRequest) -> Any:
        used = Usage(input_tokens=100 if request.session_id == "main" else 7, output_tokens=1)
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text == "spawn":
            call = script_call("sessions_spawn", kind="worker", task="look", wait="all")
            return AssistantMessage((call,), "toolUse", used)
        return AssistantMessage((TextContent("done"),), "stop", used)

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        client = door.client(door.make_token(tier="Workspace"))
        first = await client.responses.create(model="default", input="hello")
        assert first.usage is not None
        assert (first.usage.input_tokens, first.usage.output_tokens) == (100, 1)
        second = await client.responses.create(model="default", input="hello", previous_response_id=first.id)
        assert second.usage is not None
        assert (second.usage.input_tokens, second.usage.output_tokens) == (100, 1)
        kept = await client.responses.retrieve(first.id)
        assert kept.usage == first.usage


async def test_text_comes_as_it_is_written(tmp_path: Path) -> None:
    """The pieces are the text, and a client that comes later gets what is left of it."""
    goes_on = asyncio.Event()

    async def reply(request: ModelRequest) -> str:
        await goes_on.wait()
        return "one two three"

    async with open_door(tmp_path, AsyncFunctionModel(reply)) as door:
        token = door.make_token()
        async with door.bare(token) as client:
            body = {"model": "default", "input": "go", "background": True}
            begun = (await client.post("/v1/responses", json=body)).json()
            following = asyncio.create_task(client.get(f"/v1/responses/{begun['id']}?stream=true"))
            goes_on.set()
            lines = (await following).text.splitlines()
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            check_events(events)
            deltas = [each["delta"] for each in events if each["type"].endswith("text.delta")]
            assert deltas == ["one two three"]
            after = (
                next(each for each in events if each["type"].endswith("text.delta"))["sequence_number"] - 5
            )
            rest = await client.get(f"/v1/responses/{begun['id']}?stream=true&starting_after={after}")
            first = json.loads(next(line for line in rest.text.splitlines() if line.startswith("data: "))[6:])
            assert first["delta"] == "three"
