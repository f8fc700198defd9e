"""Trees behind MCP: the library's own client, over pipes and over HTTP, in both of its revisions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from sessiontree.doors.tokens import TokenFile
from tests.behaviour.effect_fakes import effects
from tests.system.doors.mcp_fixtures import NEWEST, REVISIONS, http_client, make_token, open_mcp, pipe_client

NAMES = ["run_tree", "send", "status", "answer", "cancel"]


@asynccontextmanager
async def connected(kind: str, place: Path, mode: str) -> AsyncIterator[Client]:
    """Connect a client that may do everything."""
    if kind == "stdio":
        async with pipe_client(place, mode) as client:
            yield client
        return
    token = make_token(place, tier="Elevated", approves=True)
    async with open_mcp(place) as origin, http_client(origin, token, mode) as client:
        yield client


async def content(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured content of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("http", revision) for revision in REVISIONS),
        ("stdio", NEWEST),
        pytest.param("stdio", "legacy", marks=pytest.mark.long),
    ],
)
@pytest.mark.covers("A41")
async def test_client_runs_a_tree_and_goes_on_with_it(kind: str, mode: str, tmp_path: Path) -> None:
    """It gets the answer, continues, allows a call that happens once, and sees the state."""
    async with connected(kind, tmp_path, mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == NAMES
        assert all(tool.output_schema and tool.annotations for tool in tools)
        first = await content(client, "run_tree", task="hello")
        assert (first["state"], first["text"]) == ("completed", "heard hello")
        conversation = first["conversation"]
        asked = await content(client, "send", conversation=conversation, text="launch rocket")
        assert asked["state"] == "input_required"
        (waiting,) = asked["waiting"]
        assert '{"text":"rocket"}' in waiting["message"]
        answered = await content(
            client,
            "answer",
            conversation=conversation,
            request=waiting["request"],
            content={"confirm": True},
        )
        shown = answered
        while shown["state"] == "working":
            shown = await content(
                client, "status", conversation=conversation, cursor=shown["cursor"], wait_s=30
            )
        assert (shown["state"], shown["text"]) == ("completed", "done: appended rocket")
        assert [row["session"] for row in shown["sessions"]] == ["main"]
        late = await client.call_tool(
            "answer",
            {"conversation": conversation, "request": waiting["request"], "content": {"confirm": False}},
        )
        assert late.is_error
    assert [text for _, text in effects(tmp_path / "workspace")] == ["rocket"]


async def test_call_that_takes_long_reports_and_leaves_a_conversation(tmp_path: Path) -> None:
    """A client without tasks gets progress, and after its time the name of what goes on."""
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with connected("http", tmp_path, NEWEST) as client:
        result = await client.call_tool(
            "run_tree", {"task": "pause 60", "wait_s": 1.5}, progress_callback=hear
        )
        found = result.structured_content
        assert (result.is_error, found["state"]) == (False, "working")
        assert heard
        assert heard == sorted(heard)
        await content(client, "cancel", conversation=found["conversation"])
        shown = await content(client, "status", conversation=found["conversation"])
        assert shown["state"] == "cancelled"
        again = await content(client, "send", conversation=found["conversation"], text="hello")
        assert again["text"] == "heard hello"


@pytest.mark.covers("A41")
async def test_what_another_token_made_does_not_exist(tmp_path: Path) -> None:
    """Nothing of it can be seen or changed, and the answer is that for a name that was made up."""
    async with open_mcp(tmp_path) as origin:
        mine, yours = make_token(tmp_path, approves=True), make_token(tmp_path, approves=True)
        async with http_client(origin, mine) as client:
            made = (await content(client, "run_tree", task="hello"))["conversation"]
        async with http_client(origin, yours) as client:
            more: dict[str, Any]
            for tool, more in (("send", {"text": "x"}), ("status", {}), ("cancel", {})):
                said = []
                for name in (made, "t0123456789abcdef"):
                    result = await client.call_tool(tool, {"conversation": name, **more})
                    assert result.is_error
                    said.append(str(result.content).replace(name, "NAME"))
                assert said[0] == said[1]


async def test_token_without_the_right_does_not_answer(tmp_path: Path) -> None:
    """It does not see the tool, can't call it, and its call waits for the owner."""
    async with open_mcp(tmp_path) as origin:
        async with http_client(origin, make_token(tmp_path, tier="Elevated")) as client:
            assert "answer" not in [tool.name for tool in (await client.list_tools()).tools]
            asked = await content(client, "run_tree", task="launch rocket", wait_s=0.5)
            assert (asked["state"], asked["waiting"]) == ("working", [])
            with pytest.raises(MCPError):
                await client.call_tool(
                    "answer", {"conversation": asked["conversation"], "request": "x", "content": {}}
                )
        assert effects(tmp_path / "workspace") == []


async def test_revoked_token_lets_nobody_in_at_once(tmp_path: Path) -> None:
    """Not even a client that is connected."""
    async with open_mcp(tmp_path) as origin:
        token = make_token(tmp_path)
        async with http_client(origin, token) as client:
            await client.list_tools()
            TokenFile(tmp_path / "state").revoke(token.split("_")[1])
            with pytest.raises(MCPError):
                await client.call_tool("run_tree", {"task": "hello"})
