"""Tools that the client of a door hosts: their calls wait for it, over restarts, and run once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.doors import client_tools
from tests.system.serve.door_fixtures import Door, open_door, refused
from tests.system.serve.response_oracle import check_events, check_response

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "Say how the weather is.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def caller(*places: str) -> FunctionModel:
    """Return a model that asks for the weather at these places at once, then says what it heard."""

    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text.startswith("ask"):
            return ["I look.", *(script_call("weather", place=place) for place in places)]
        heard = [each.text for each in request.messages if isinstance(each, ToolResultMessage)]
        return f"{last.text if isinstance(last, UserMessage) else ''}heard {' and '.join(heard)}"

    return FunctionModel(reply)


def calls_in(response: Any) -> dict[str, str]:
    """Return the calls of a response: their ids by the place that they ask for."""
    return {
        json.loads(each.arguments)["place"]: each.call_id
        for each in response.output
        if each.type == "function_call"
    }


def output(call_id: str, text: str) -> Any:
    """Return the output of a call, as a request has it."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


async def ask(door: Door, token: str, **members: Any) -> Any:
    """Ask, and return the response; it is one by the specification."""
    given = {"model": "default", "tools": [WEATHER], **members}
    answer = await door.client(token).responses.with_raw_response.create(**given)
    check_response(json.loads(answer.text))
    return answer.parse()


async def test_call_ends_the_response_and_its_output_continues_it(tmp_path: Path) -> None:
    """Over a restart between them: the call is open, and the response is what it was."""
    async with open_door(tmp_path, caller("Rome")) as door:
        token = door.make_token()
        first = await ask(door, token, input="ask")
        assert first.status == "completed"
        assert [each.type for each in first.output] == ["message", "function_call"]
        assert first.output_text == "I look."
        assert first.output[1].name == "weather"
    async with open_door(tmp_path, caller("Rome")) as door:
        client = door.client(token)
        assert (await client.responses.retrieve(first.id)).output == first.output
        rome = calls_in(first)["Rome"]
        second = await ask(door, token, input=[output(rome, "sunny")], previous_response_id=first.id)
        assert second.output_text == "heard sunny"
        assert second.id.startswith(f"{first.id}-")
        assert (await client.responses.retrieve(second.id)).output_text == "heard sunny"
        third = await ask(door, token, input="more ", previous_response_id=second.id, tools=[])
        assert third.output_text == "more heard sunny"


async def test_outputs_may_come_in_parts_and_again(tmp_path: Path) -> None:
    """A part ends with the calls that remain; the same output changes nothing, another one is refused."""
    async with open_door(tmp_path, caller("Rome", "Oslo", "Bern")) as door:
        token = door.make_token()
        first = await ask(door, token, input="ask")
        ids = calls_in(first)
        assert set(ids) == {"Rome", "Oslo", "Bern"}
        given = [output(ids["Oslo"], "rain")]
        part = await ask(door, token, input=given, previous_response_id=first.id)
        assert set(calls_in(part)) == {"Rome", "Bern"}
        again = await ask(door, token, input=given, previous_response_id=first.id)
        assert (again.id, again.output) == (part.id, part.output)
        client = door.client(token)
        attempts: list[tuple[Any, int]] = [
            ([output(ids["Oslo"], "snow")], 409),
            ([output(ids["Rome"], "sun"), output(ids["Oslo"], "snow")], 409),
            ("hello", 409),
            ([output("made-up", "x")], 400),
        ]
        for items, status in attempts:
            attempt = client.responses.create(model="default", input=items, previous_response_id=part.id)
            assert (await refused(attempt))[0] == status, items
        rest = [output(ids["Rome"], "sun"), output(ids["Bern"], "fog"), *given]
        last = await ask(door, token, input=rest, previous_response_id=part.id)
        assert last.output_text == "heard sun and rain and fog"
        assert (await ask(door, token, input=rest, previous_response_id=first.id)).id == last.id
        late = client.responses.create(
            model="default", input=[output(ids["Rome"], "snow")], previous_response_id=last.id
        )
        assert (await refused(late))[0] == 409


async def test_nobody_else_answers_a_call(tmp_path: Path) -> None:
    """To another token the response does not exist, and a call of another conversation does not wait."""
    async with open_door(tmp_path, caller("Rome")) as door:
        mine, theirs = door.make_token("mine"), door.make_token("theirs")
        first = await ask(door, mine, input="ask")
        other = await ask(door, theirs, input="ask")
        given: list[Any] = [output(calls_in(first)["Rome"], "sun")]
        for name, status in ((first.id, 404), (other.id, 400)):
            attempt = door.client(theirs).responses.create(
                model="default", input=given, previous_response_id=name
            )
            assert (await refused(attempt))[0] == status
        done = await ask(door, mine, input=given, previous_response_id=first.id)
        assert done.output_text == "heard sun"


async def test_tools_are_those_of_the_first_request(tmp_path: Path) -> None:
    """Another one, or one with other parameters, is refused by name; so is a choice that can't be kept."""
    async with open_door(tmp_path, caller("Rome")) as door:
        token = door.make_token()
        client = door.client(token)
        first = await ask(door, token, input="hello")
        changed: Any = {**WEATHER, "parameters": {"type": "object", "properties": {}}}
        others: list[Any] = [[changed], [{**WEATHER, "name": "other"}]]
        for tools in others:
            attempt = client.responses.create(
                model="default", input="x", tools=tools, previous_response_id=first.id
            )
            status, said = await refused(attempt)
            assert (status, tools[0]["name"] in said) == (400, True)
        choices: list[Any] = ["required", {"type": "function", "name": "weather"}]
        for choice in choices:
            attempt = client.responses.create(model="default", input="x", tools=[changed], tool_choice=choice)
            status, said = await refused(attempt)
            assert (status, "tool_choice" in said) == (400, True)


@pytest.mark.parametrize("name", ["look", "read"])
async def test_client_s_tool_hides_the_tree_s_own(tmp_path: Path, name: str) -> None:
    """Both of the owner's configuration and of those that come with the package; in this tree alone."""
    tool = {**WEATHER, "name": name}

    def reply(request: ModelRequest) -> Any:
        if isinstance(request.messages[-1], UserMessage):
            return script_call(name, place="Rome")
        return request.messages[-1].text

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        token = door.make_token(tools=())
        first = await ask(door, token, input="go", tools=[tool])
        assert calls_in(first).keys() == {"Rome"}
        given = [output(calls_in(first)["Rome"], "of the client")]
        second = await ask(door, token, input=given, tools=[tool], previous_response_id=first.id)
        assert second.output_text == "of the client"


async def test_call_of_a_child_climbs_to_the_response(tmp_path: Path) -> None:
    """The child goes on with the output, and so does Main with the child's report."""

    def reply(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text == "go":
            return script_call("sessions_spawn", kind="branch", task="ask for it", wait="all")
        if isinstance(last, UserMessage) and last.text.endswith("ask for it"):
            return script_call("weather", place="Rome")
        if isinstance(last, ToolResultMessage) and last.text == "sunny":
            return "it is sunny"
        return f"main heard {last.text}" if "it is sunny" in last.text else "I wait"

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        token = door.make_token(tier="Workspace")
        first = await ask(door, token, input="go")
        while not calls_in(first):
            assert first.output_text.endswith("I wait")
            first = await ask(door, token, input="and?", previous_response_id=first.id)
        given = [output(calls_in(first)["Rome"], "sunny")]
        second = await ask(door, token, input=given, previous_response_id=first.id)
        assert "it is sunny" in second.output_text


async def test_stream_of_a_call_is_valid(tmp_path: Path) -> None:
    """Its events are those of the specification, its items those of the whole response, and it is kept."""
    async with open_door(tmp_path, caller("Rome", "Oslo")) as door:
        token = door.make_token()
        body = {"model": "default", "input": "ask", "tools": [WEATHER], "stream": True}
        first = await door.stream(token, body)
        check_events(first)
        kinds = [each["item"]["type"] for each in first if each["type"] == "response.output_item.done"]
        assert kinds == ["message", "function_call", "function_call"]
        whole = first[-1]["response"]
        given = [output(each["call_id"], "sun") for each in whole["output"][1:]]
        body = {"model": "default", "input": given, "previous_response_id": whole["id"], "stream": True}
        second = await door.stream(token, body)
        check_events(second)
        kept = await door.client(token).responses.retrieve(second[-1]["response"]["id"])
        assert kept.output_text == "heard sun and sun"


async def test_call_that_nobody_answers_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn goes on without it; its output is refused, and the next message is not."""
    monkeypatch.setattr(client_tools, "CALL_S", 0.5)
    async with open_door(tmp_path, caller("Rome")) as door:
        token = door.make_token()
        first = await ask(door, token, input="ask")
        rome = calls_in(first)["Rome"]
        conversation = await door.conversations.find(
            door.tokens.all()[0].principal, first.id.partition("_")[0]
        )
        assert await conversation.log.wait_until_ended(first.id) is not None
        attempt = door.client(token).responses.create(
            model="default", input=[output(rome, "sun")], previous_response_id=first.id
        )
        status, said = await refused(attempt)
        assert (status, "expired" in said) == (400, True)
        second = await ask(door, token, input="more ", previous_response_id=first.id)
        assert "more heard" in second.output_text
        assert (await door.client(token).responses.retrieve(first.id)).output == first.output


async def test_client_does_not_try_again_what_can_t_succeed(tmp_path: Path) -> None:
    """A turn that failed is not run again by the client's own retries."""
    asked: list[str] = []

    def fail(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        raise ValueError("no")

    async with open_door(tmp_path, FunctionModel(fail)) as door:
        client = door.client(door.make_token()).with_options(max_retries=2)
        attempt = client.chat.completions.create(model="default", messages=[{"role": "user", "content": "x"}])
        assert (await refused(attempt))[0] == 500
        assert asked == ["x"]
