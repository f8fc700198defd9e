"""Chat completions: each request brings the whole conversation, and the tree goes on with what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError

from sessiontree import FunctionModel, ModelRequest
from tests.system.serve.door_fixtures import open_door, refused
from tests.system.serve.test_client_tools import WEATHER, caller
from tests.system.serve.test_doors import echo

TOOLS: Any = [{"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}]


def user(text: str) -> Any:
    """Return a message of the user."""
    return {"role": "user", "content": text}


async def test_history_that_is_known_goes_on_in_its_tree(tmp_path: Path) -> None:
    """Over a restart; the model sees its own conversation, not a quotation."""
    said: list[Any] = [user("one")]
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        first = await door.client(token).chat.completions.create(model="default", messages=said)
        assert first.choices[0].message.content == "heard one (1)"
        assert first.choices[0].finish_reason == "stop"
        said += [first.choices[0].message.model_dump(exclude_none=True), user("two")]
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        chats = door.client(token).chat.completions
        second = await chats.create(model="default", messages=said)
        assert second.choices[0].message.content == "heard two (3)"
        other = await chats.create(model="default", messages=[*said[:2], user("another")])
        assert other.choices[0].message.content == "heard another (3)"
        theirs = await door.client(door.make_token("theirs")).chat.completions.create(
            model="default", messages=said
        )
        told = theirs.choices[0].message.content or ""
        assert "took place elsewhere" in told
        assert "assistant: heard one (1)" in told
        assert told.endswith("two (1)")


async def test_instructions_come_before_the_message_as_the_client_s_text(tmp_path: Path) -> None:
    """Not as the system prompt, and once."""
    seen: list[tuple[str, str]] = []

    def reply(request: ModelRequest) -> str:
        seen.append((request.system_prompt, request.messages[-1].text))
        return "ok"

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        chats = door.client(door.make_token()).chat.completions
        said: list[Any] = [{"role": "system", "content": "Speak Latin."}, user("one")]
        await chats.create(model="default", messages=said)
        await chats.create(
            model="default", messages=[*said, {"role": "assistant", "content": "ok"}, user("two")]
        )
        assert "Latin" not in seen[0][0]
        assert "Speak Latin." in seen[0][1]
        assert seen[1][1] == "two"


@pytest.mark.parametrize("streams", [False, True])
async def test_calls_of_client_tools_end_the_turn_once(tmp_path: Path, streams: bool) -> None:
    """``finish_reason`` is ``tool_calls``, once, and never followed by ``stop``; the outputs go on."""
    async with open_door(tmp_path, caller("Rome", "Oslo")) as door:
        client = door.client(door.make_token())

        async def ask(said: list[Any]) -> tuple[str, list[Any], list[str], Any]:
            if not streams:
                whole = await client.chat.completions.create(model="default", messages=said, tools=TOOLS)
                message = whole.choices[0].message
                calls: list[Any] = [each.model_dump() for each in message.tool_calls or []]
                return message.content or "", calls, [str(whole.choices[0].finish_reason)], whole.usage
            text, calls = "", []
            reasons: list[str] = []
            usage: Any = None
            stream = await client.chat.completions.create(
                model="default",
                messages=said,
                tools=TOOLS,
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    calls += [each.model_dump() for each in choice.delta.tool_calls or []]
                    reasons += [choice.finish_reason] if choice.finish_reason else []
            return text, calls, reasons, usage

        said = [user("ask")]
        text, calls, reasons, usage = await ask(said)
        assert (text, len(calls), reasons) == ("I look.", 2, ["tool_calls"])
        assert usage is not None
        said.append({"role": "assistant", "content": text, "tool_calls": calls})
        said += [{"role": "tool", "tool_call_id": each["id"], "content": "sun"} for each in calls]
        text, calls, reasons, _ = await ask(said)
        assert (text, calls, reasons) == ("heard sun and sun", [], ["stop"])
        said += [{"role": "assistant", "content": text}, user("more ")]
        text, calls, reasons, _ = await ask(said)
        assert (text, calls, reasons) == ("more heard sun and sun", [], ["stop"])


async def test_what_can_t_be_had_is_refused_by_name(tmp_path: Path) -> None:
    """And an output that no call waits for."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        client = door.client(door.make_token())
        wrong: list[dict[str, Any]] = [
            {"n": 2},
            {"tool_choice": "required"},
            {"response_format": {"type": "json_object"}},
            {"messages": [user("x"), {"role": "tool", "tool_call_id": "made-up", "content": "y"}]},
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}
                ]
            },
        ]
        for members in wrong:
            given = {"model": "default", "messages": [user("x")], **members}
            assert (await refused(client.chat.completions.create(**given)))[0] == 400, members


async def test_failed_turn_is_an_error(tmp_path: Path) -> None:
    """Of a stream, too: it does not look complete."""

    def fail(request: ModelRequest) -> str:
        raise ValueError("no")

    async with open_door(tmp_path, FunctionModel(fail)) as door:
        client = door.client(door.make_token())
        with pytest.raises(APIStatusError):
            await client.chat.completions.create(model="default", messages=[user("x")])
        stream = await client.chat.completions.create(model="default", messages=[user("x")], stream=True)
        with pytest.raises(Exception, match="no"):
            _ = [chunk async for chunk in stream]
