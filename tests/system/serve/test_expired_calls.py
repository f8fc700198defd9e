"""Calls that expired: their turn goes on without the client, which can come back and continue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from sessiontree import AsyncFunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.doors import client_tools
from tests.system.serve.door_fixtures import Door, open_door, refused
from tests.system.serve.test_client_tools import WEATHER, ask, caller, calls_in, output


async def until_ended(door: Door, response_id: str) -> None:
    """Wait for the end of the turn of a response, which no client waits for."""
    principal = door.tokens.all()[0].principal
    conversation = await door.conversations.find(principal, response_id.partition("_")[0])
    assert await conversation.log.wait_until_ended(response_id) is not None


async def test_client_comes_back_while_the_turn_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output is too late, and its message too early; it cancels the turn, and goes on, over a restart."""
    monkeypatch.setattr(client_tools, "CALL_S", 0.3)
    goes_on = asyncio.Event()

    async def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolResultMessage):
            goes_on.set()
            await asyncio.Event().wait()
        if isinstance(last, UserMessage) and last.text == "ask":
            return script_call("weather", place="Rome")
        return "done"

    async with open_door(tmp_path, AsyncFunctionModel(reply)) as door:
        token = door.make_token()
        client = door.client(token)
        first = await ask(door, token, input="ask")
        await goes_on.wait()
        late: list[Any] = [output(calls_in(first)["Rome"], "sun")]
        for given, status, words in ((late, 400, "expired"), ("hello", 409, "goes on")):
            attempt = client.responses.create(model="default", input=given, previous_response_id=first.id)
            found, said = await refused(attempt)
            assert (found, words in said) == (status, True), said
        assert (await client.responses.cancel(first.id)).output == first.output
        await until_ended(door, first.id)
    async with open_door(tmp_path, AsyncFunctionModel(reply)) as door:
        after = await ask(door, token, input="hello", previous_response_id=first.id)
        assert after.output_text == "done"


async def test_chat_goes_on_after_a_call_that_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that is too late is refused; a message after it continues the conversation."""
    monkeypatch.setattr(client_tools, "CALL_S", 0.3)
    function = {each: WEATHER[each] for each in ("name", "description", "parameters")}
    tools: Any = [{"type": "function", "function": function}]
    async with open_door(tmp_path, caller("Rome")) as door:
        client = door.client(door.make_token())

        async def complete(said: list[Any]) -> ChatCompletion:
            return await client.chat.completions.create(model="default", messages=said, tools=tools)

        first = await complete([{"role": "user", "content": "ask"}])
        called = first.choices[0].message
        assert called.tool_calls is not None
        await until_ended(door, first.id.removeprefix("chatcmpl-"))
        said = [
            {"role": "user", "content": "ask"},
            called.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "sun"},
        ]
        status, why = await refused(complete(said))
        assert (status, "expired" in why) == (400, True)
        after = await complete([*said, {"role": "user", "content": "more "}])
        text = after.choices[0].message.content or ""
        assert text.startswith("more heard ")
        assert after.id.partition("_")[0] == first.id.partition("_")[0], "the same conversation"
