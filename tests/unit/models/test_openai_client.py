"""Questions that OpenAI's library sends without its conversion: the same bodies, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from sessiontree.models.providers.openai_client import make_ollama_provider, make_openai_provider
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider

TOOL = {
    "name": "read",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "é ☃ \u0000"}, {"type": "text", "text": ""}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ],
    "tools": [{"type": "function", "function": TOOL}],
    "temperature": 0.0,
}
RESPONSES: dict[str, Any] = {
    "input": [
        {"role": "user", "content": "Read a."},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
    ],
    "tools": [{"type": "function", **TOOL, "strict": False}],
    "instructions": "Be brief.",
}


async def asked(client: AsyncOpenAI, kind: str, given: dict[str, Any]) -> None:
    """Ask, and read the reply to its end."""
    create: Any = client.chat.completions.create if kind == "chat" else client.responses.create
    async for _ in await create(model="m", stream=True, **given):
        pass


@pytest.mark.parametrize("further", [{}, {"extra_body": {"response_format": {"type": "json_object"}}}])
@pytest.mark.parametrize(("kind", "given"), [("chat", CHAT), ("responses", RESPONSES)])
async def test_bodies_are_those_of_the_library(
    kind: str, given: dict[str, Any], further: dict[str, Any]
) -> None:
    """Also with options, which copy the client, and with further members; in the library's order."""
    async with FakeProvider([FakeReply("yes")]) as fake:
        where: dict[str, Any] = {"api_key": "k", "base_url": fake.url("openai"), "max_retries": 0}
        clients = [
            make_openai_provider(**where).client,
            make_ollama_provider(**where).client,
            AsyncOpenAI(**where),
        ]
        for client in (*clients, clients[0].with_options(max_retries=1)):
            await asked(client, kind, {**given, **further})
            await asked(client, kind, {name: value for name, value in given.items() if name != "tools"})
        for client in clients:
            await client.close()
    whole, without = fake.requests[::2], fake.requests[1::2]
    for requests in (whole, without):
        bodies = [list(each.body.items()) for each in requests]
        assert bodies == [bodies[2]] * 4
    (lists,) = {"messages", "input"} & set(whole[0].body)
    assert whole[0].body[lists] == given[lists]
    assert whole[0].body["tools"] == given["tools"]
    assert "tools" not in without[0].body
