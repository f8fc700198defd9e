"""Older responses, responses that nobody keeps, and histories instead of ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sessiontree import FunctionModel
from sessiontree.api.stored.stored_trees import StoredTrees
from tests.system.serve.door_fixtures import open_door, refused
from tests.system.serve.test_client_tools import WEATHER, ask, caller, calls_in, output
from tests.system.serve.test_doors import echo


async def test_older_response_is_continued_in_a_fork(tmp_path: Path) -> None:
    """Both branches go on, each with its own past, and over a restart."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        first = await ask(door, token, input="one", tools=[])
        second = await ask(door, token, input="two", previous_response_id=first.id, tools=[])
        other = await ask(door, token, input="other", previous_response_id=first.id, tools=[])
        assert (second.output_text, other.output_text) == ("heard two (3)", "heard other (3)")
        assert other.id.partition("_")[0] != second.id.partition("_")[0]
        assert other.previous_response_id == first.id
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        for previous in (other, second):
            response = await ask(door, token, input="on", previous_response_id=previous.id, tools=[])
            assert response.output_text == "heard on (5)"


async def test_response_with_calls_is_not_forked(tmp_path: Path) -> None:
    """Its outputs were given in the conversation that goes on."""
    async with open_door(tmp_path, caller("Rome")) as door:
        token = door.make_token()
        first = await ask(door, token, input="ask")
        given = [output(calls_in(first)["Rome"], "sun")]
        await ask(door, token, input=given, previous_response_id=first.id)
        attempt = door.client(token).responses.create(
            model="default", input="hello", previous_response_id=first.id
        )
        assert (await refused(attempt))[0] == 409


async def test_what_nobody_keeps_is_no_parent_and_is_erased(tmp_path: Path) -> None:
    """It is answered; its id names nothing, and the journal has no such tree once the door is closed."""
    async with open_door(tmp_path, FunctionModel(echo)) as door:
        token = door.make_token()
        client = door.client(token)
        first = await ask(door, token, input="one", store=False)
        assert (first.output_text, first.store) == ("heard one (1)", False)
        for attempt in (
            client.responses.retrieve(first.id),
            client.responses.cancel(first.id),
            client.responses.create(model="default", input="x", previous_response_id=first.id),
        ):
            assert (await refused(attempt))[0] == 404
    assert await StoredTrees(tmp_path / "state").list() == []


async def test_history_finds_what_nobody_keeps(tmp_path: Path) -> None:
    """As clients talk that send everything again: calls by their ids, and the rest by what was said."""
    async with open_door(tmp_path, caller("Rome")) as door:
        token = door.make_token()
        said: list[Any] = [{"role": "user", "content": "ask"}]
        first = await ask(door, token, input=said, store=False)
        said += [each.model_dump(exclude_none=True) for each in first.output]
        said.append(output(calls_in(first)["Rome"], "sun"))
        second = await ask(door, token, input=said, store=False)
        assert second.output_text == "heard sun"
        said += [each.model_dump(exclude_none=True) for each in second.output]
        said.append({"role": "user", "content": "more "})
        third = await ask(door, token, input=said, store=False, tools=[WEATHER])
        assert third.output_text == "more heard sun"
        trees = {each.id.partition("_")[0] for each in (first, second, third)}
        assert len(trees) == 1
