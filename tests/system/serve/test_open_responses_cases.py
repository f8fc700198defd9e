"""The seven cases of Open Responses' compliance suite, by their names, against a server that people start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest
from tests.system.serve.killed_fixtures import KilledDoor, killed_door
from tests.system.serve.response_oracle import check_events, check_response

pytestmark = pytest.mark.slow

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
"""A picture of one pixel."""
ARGUMENTS = '{"city": "Rome"}'
LOOKUP: dict[str, Any] = {
    "type": "function",
    "name": "look_up_weather",
    "description": "Say how the weather of a city is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def said(role: str, content: Any) -> dict[str, Any]:
    """Return a message of a request."""
    return {"type": "message", "role": role, "content": content}


CALLING: dict[str, Any] = {"input": [said("user", "How is the weather in Rome?")], "tools": [LOOKUP]}
CASES: dict[str, dict[str, Any]] = {
    "basic-response": {"input": [said("user", "Greet me in three words.")]},
    "streaming-response": {"input": [said("user", "Count to five.")], "stream": True},
    "system-prompt": {"input": [said("system", "Speak as a sailor."), said("user", "Greet me.")]},
    "tool-calling": CALLING,
    "tool-calling-streaming": {**CALLING, "stream": True},
    "image-input": {
        "input": [
            said(
                "user",
                [
                    {"type": "input_text", "text": "What is in this picture?"},
                    {"type": "input_image", "image_url": PIXEL},
                ],
            )
        ]
    },
    "multi-turn": {
        "input": [
            said("user", "I am Ada."),
            said("assistant", "Good day, Ada."),
            said("user", "Who am I?"),
        ]
    },
}


def reply(request: FakeRequest) -> FakeReply:
    """Call the function if there is one, and else repeat what the model was given."""
    messages = request.body["messages"]
    if any(each["function"]["name"] == LOOKUP["name"] for each in request.body.get("tools", ())):
        return FakeReply(calls=(FakeCall(LOOKUP["name"], ARGUMENTS),))
    return FakeReply(json.dumps(messages[-1]["content"]))


async def ask(door: KilledDoor, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of an answer; one that is no stream is one event with the response."""
    async with door.client() as client:
        answer = await client.post("/responses", json={"model": "default", **body})
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        return [{"response": answer.json()}]
    lines = [each for each in answer.text.splitlines() if each.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(each.removeprefix("data: ")) for each in lines]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Ask all cases of one server at once."""

    async def ask_all() -> dict[str, list[dict[str, Any]]]:
        place = tmp_path_factory.mktemp("cases")
        async with (
            FakeProvider(reply) as provider,
            killed_door(place, provider) as door,
            asyncio.TaskGroup() as group,
        ):
            asked = {name: group.create_task(ask(door, body)) for name, body in CASES.items()}
            await asyncio.wait(asked.values())
        return {name: each.result() for name, each in asked.items()}

    return asyncio.run(ask_all())


@pytest.mark.parametrize("case", CASES)
def test_case_of_open_responses(answers: dict[str, list[dict[str, Any]]], case: str) -> None:
    """Each event and each object has the form of the specification, and says what its case asks for."""
    events, whole = answers[case], answers[case][-1]["response"]
    if CASES[case].get("stream"):
        check_events(events)
    check_response(whole)
    assert (whole["status"], whole["error"]) == ("completed", None)
    kinds = [each["type"] for each in whole["output"]]
    if "tools" in CASES[case]:
        assert kinds == ["function_call"]
        assert json.loads(whole["output"][0]["arguments"]) == json.loads(ARGUMENTS)
        assert [each["name"] for each in whole["tools"]] == [LOOKUP["name"]]
    else:
        assert kinds == ["message"]
        assert whole["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    ("case", "heard"),
    [("system-prompt", "Speak as a sailor."), ("multi-turn", "Good day, Ada."), ("image-input", PIXEL)],
)
def test_model_hears_all_of_it(answers: dict[str, list[dict[str, Any]]], case: str, heard: str) -> None:
    """What a case gives besides its question reaches the model."""
    assert heard in answers[case][-1]["response"]["output"][0]["content"][0]["text"]


def test_call_is_streamed(answers: dict[str, list[dict[str, Any]]]) -> None:
    """Its item begins, its arguments come in pieces that are the whole, and it ends."""
    events = answers["tool-calling-streaming"]
    of_call = [each for each in events if each.get("item", {}).get("type") == "function_call"]
    assert [each["type"].rpartition(".")[2] for each in of_call] == ["added", "done"]
    pieces = [each["delta"] for each in events if each["type"] == "response.function_call_arguments.delta"]
    done = [each for each in events if each["type"] == "response.function_call_arguments.done"]
    assert [each["arguments"] for each in done] == ["".join(pieces)]
