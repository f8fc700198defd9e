"""Doors: a real client of Open Responses talks to a tree, and never gets more than its token allows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from openai import APIStatusError

from sessiontree import (
    AssistantMessage,
    AsyncFunctionModel,
    FunctionModel,
    ModelRequest,
    TextContent,
    Usage,
    script_call,
)
from tests.behaviour.effect_fakes import LOG
from tests.system.serve.door_fixtures import Door, open_door, refused


def echo(request: ModelRequest) -> str:
    """Say what was heard, and how long the conversation is."""
    return f"heard {request.messages[-1].text} ({len(request.messages)})"


async def test_client_talks_to_a_tree_over_a_restart(tmp_path: Path) -> None:
    """Each response continues the one before; the conversation is in the journal, not in the server."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        client = door.client(token)
        assert [each.id for each in (await client.models.list()).data] == ["default"]
        first = await client.responses.create(model="default", input="one")
        assert (first.status, first.output_text) == ("completed", "heard one (1)")
        second = await client.responses.create(
            model="default", input=[{"role": "user", "content": "two"}], previous_response_id=first.id
        )
        assert second.output_text == "heard two (3)"
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        client = door.client(token)
        assert (await client.responses.retrieve(second.id)).output_text == "heard two (3)"
        third = await client.responses.create(model="default", input="three", previous_response_id=second.id)
        assert third.output_text == "heard three (5)"
        other = await client.responses.create(model="default", input="x", previous_response_id=first.id)
        assert other.output_text == "heard x (3)"


async def test_stream_ends_with_the_whole_response(tmp_path: Path) -> None:
    """Its events are numbered, its item's id is one throughout, and its last event has all of it."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        client = door.client(door.make_token())
        async with await client.responses.create(model="default", input="one", stream=True) as stream:
            events: list[Any] = [event async for event in stream]
        numbers = [each.sequence_number for each in events]
        assert numbers == sorted(set(numbers))
        assert [each.type for each in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "heard one (1)"
        items = {each.item_id for each in events if hasattr(each, "item_id")}
        assert items == {events[-1].response.output[0].id}


async def test_what_another_token_made_does_not_exist(tmp_path: Path) -> None:
    """It can't be read, continued or cancelled, and the answer is that of an id that was made up."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        mine, theirs = (door.client(door.make_token(name)) for name in ("mine", "theirs"))
        made = await mine.responses.create(model="default", input="one")
        for name in (made.id, made.id[:-1] + ("0" if made.id[-1] != "0" else "1"), "resp_1", "../../x"):
            for attempt in (
                theirs.responses.retrieve(name),
                theirs.responses.cancel(name),
                theirs.responses.create(model="default", input="x", previous_response_id=name),
            ):
                assert (await refused(attempt))[0] == 404
        assert (await mine.responses.retrieve(made.id)).output_text == "heard one (1)"


async def test_revoked_token_ends_at_once(tmp_path: Path) -> None:
    """The next request of the same client is refused."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        client = door.client(token)
        await client.responses.create(model="default", input="one")
        door.tokens.revoke(token.split("_")[1])
        assert (await refused(client.models.list()))[0] == 401


async def test_turn_that_is_cancelled_says_so(tmp_path: Path) -> None:
    """The waiting client hears of it, and the conversation goes on."""
    began = asyncio.Event()

    async def reply(request: ModelRequest) -> str:
        if request.messages[-1].text == "wait":
            began.set()
            await asyncio.Event().wait()
        return "done"

    async with open_door(tmp_path, AsyncFunctionModel(reply)) as door:
        client = door.client(door.make_token())
        names: list[str] = []

        async def listen() -> list[Any]:
            async with await client.responses.create(model="default", input="wait", stream=True) as stream:
                events = []
                async for event in stream:
                    events.append(event)
                    if event.type == "response.created":
                        names.append(event.response.id)
                return events

        listening = asyncio.create_task(listen())
        await began.wait()
        await client.responses.cancel(names[0])
        events = await listening
        assert events[-1].type == "response.failed"
        assert "cancelled by editor" in events[-1].response.error.message
        after = await client.responses.create(model="default", input="go", previous_response_id=names[0])
        assert after.output_text == "done"


@pytest.mark.parametrize(("tier", "allowed"), [("ReadOnly", set()), ("Workspace", {"append"})])
async def test_token_never_causes_more_than_its_tier(tmp_path: Path, tier: str, allowed: set[str]) -> None:
    """Whatever a model calls, by itself, in programs or in children, and whatever nobody approves."""
    random = Random(7)

    def step() -> Any:
        name = random.choice(["append", "launch", "look", "program", "sessions_spawn", "write"])
        given: dict[str, dict[str, Any]] = {
            "program": {"code": f"await {random.choice(['append', 'launch'])}(text='program')"},
            "sessions_spawn": {"kind": "branch", "task": "go", "wait": "all"},
            "write": {"path": LOG, "content": "write\n"},
        }
        return script_call(name, **given.get(name, {"text": name}))

    def reply(request: ModelRequest) -> Any:
        return "done" if request.turn > 6 else step()

    async with open_door(tmp_path, FunctionModel(reply)) as door:
        client = door.client(door.make_token(tier=tier))
        for _ in range(8):
            made = await client.responses.create(model="default", input="go")
            assert made.status in {"completed", "failed"}
        log = door.workspace / LOG
        done = log.read_text().split() if log.exists() else []
        assert not done if not allowed else "launch" not in done


BAD: list[Any] = [
    b"",
    b"[",
    b"null",
    b"[]",
    b'{"model": 1}',
    b'{"model": "default"}',
    b'{"model": "default", "input": ""}',
    b'{"model": "default", "input": []}',
    b'{"model": "nobody", "input": "x"}',
    b'{"model": "default", "input": [{"role": "system", "content": "x"}]}',
    b'{"model": "default", "input": "x", "background": true, "store": false}',
    b'{"model": "default", "input": "x", "text": {"format": {"type": "json_schema"}}}',
    b'{"model": "default", "input": [{"role": "assistant", "content": "x"}]}',
    b'{"model": "default", "input": [{"type": "item_reference", "id": "x"}]}',
    b'{"model": "default", "input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}',
    b'{"model": "default", "input": "x", "previous_response_id": 7}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"model": "default", "input": "' + b"x" * 3_000_000 + b'"}',
]


async def test_bad_requests_are_refused_and_named(tmp_path: Path) -> None:
    """Typed, bounded, and the next request works."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token(per_minute=1_000)
        async with door.bare(token) as client:
            for body in BAD:
                answer = await client.post("/v1/responses", content=body)
                assert answer.status_code in {400, 413}, (body[:60], answer.text)
                assert answer.json()["error"]["message"]
            answer = await client.post("/v1/responses", json={"model": "default", "input": "x"})
            assert answer.json()["output"][0]["content"][0]["text"] == "heard x (1)"


async def test_nobody_comes_in_without_a_token_or_from_a_page(tmp_path: Path) -> None:
    """And a token opens no page."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        wrong = ["", "Bearer", "Bearer x", f"Basic {token}", f"Bearer {token[:-1]}", f"Bearer {token}x"]
        for given in wrong:
            assert (await _models(door, {"Authorization": given})).status_code == 401
        mine = {"Authorization": f"Bearer {token}"}
        assert (await _models(door, mine)).status_code == 200
        for page in ({"Origin": door.origin}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "elsewhere:80"}):
            assert (await _models(door, {**mine, **page})).status_code == 403
        async with door.bare(token) as client:
            assert (await client.get("/trees")).status_code == 401


async def _models(door: Door, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=door.origin) as client:
        return await client.get("/v1/models", headers=headers)


async def test_token_s_rate_and_open_requests_are_bounded(tmp_path: Path) -> None:
    """What is too much is refused at once, and counts for nobody else."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        few, other = door.client(door.make_token(per_minute=2)), door.client(door.make_token("other"))
        for _ in range(2):
            await few.models.list()
        status, said = await refused(few.models.list())
        assert status == 429
        assert "2 requests a minute" in said
        assert (await other.models.list()).data


async def test_stream_counts_as_open_until_it_ends(tmp_path: Path) -> None:
    """Also one whose client has gone."""

    async def reply(request: ModelRequest) -> str:
        await asyncio.Event().wait()
        return "never"

    async with open_door(tmp_path, AsyncFunctionModel(reply)) as door:
        client = door.client(door.make_token(max_open=1))
        async with await client.responses.create(model="default", input="wait", stream=True) as stream:
            await anext(aiter(stream))
            status, said = await refused(client.models.list())
            assert (status, "1 requests open" in said) == (429, True)
        async with asyncio.timeout(30):
            while True:
                try:
                    await client.models.list()
                    break
                except APIStatusError as error:
                    assert error.status_code == 429


async def test_token_talks_to_its_agents_alone(tmp_path: Path) -> None:
    """And sees no others."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        client = door.client(door.make_token(agents=("reviewer",)))
        assert [each.id for each in (await client.models.list()).data] == ["reviewer"]
        status, said = await refused(client.responses.create(model="default", input="x"))
        assert (status, "may talk to reviewer" in said) == (400, True)


def costly(request: ModelRequest) -> AssistantMessage:
    """Answer for sixty cents."""
    usage = Usage(input_tokens=1, output_tokens=1, cost_usd=0.6)
    return AssistantMessage((TextContent("done"),), usage=usage)


async def test_budget_bounds_all_trees_of_a_token(tmp_path: Path) -> None:
    """Also over a restart; another token's is its own."""
    async with open_door(tmp_path, FunctionModel(costly)) as door:
        token = door.make_token(budget_usd=1.0)
        client, other = door.client(token), door.client(door.make_token("other", budget_usd=1.0))
        first = await client.responses.create(model="default", input="one")
        assert (first.status, (await client.responses.create(model="default", input="two")).status) == (
            "completed",
            "completed",
        )
        for attempt in (
            client.responses.create(model="default", input="three"),
            client.responses.create(model="default", input="three", previous_response_id=first.id),
        ):
            status, said = await refused(attempt)
            assert (status, "budget of editor is used up: 1 US dollars" in said) == (429, True)
        assert (await other.responses.create(model="default", input="one")).status == "completed"
    async with open_door(tmp_path, FunctionModel(costly)) as door:
        assert (await refused(door.client(token).responses.create(model="default", input="four")))[0] == 429


async def test_conversation_that_nobody_uses_makes_room_for_another(tmp_path: Path) -> None:
    """A token has as many trees open as requests; one that was closed is continued."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        client = door.client(door.make_token(max_open=2))
        made = [await client.responses.create(model="default", input=str(number)) for number in range(4)]
        after = await client.responses.create(model="default", input="x", previous_response_id=made[0].id)
        assert after.output_text == "heard x (3)"
        assert len(door.conversations._open) <= 2
