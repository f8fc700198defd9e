"""Saved programs of the owner as tools of MCP: for tokens that name them, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.effect_fakes import effects
from tests.system.doors.mcp_fixtures import BareClient, RpcError, make_token, open_mcp

DOUBLE = '''"""Doubles a number."""


async def main(number: int) -> int:
    return number * 2
'''
START = '''"""Starts something.

---
tools: [launch]
---
"""


async def main(name: str) -> str:
    return await launch(text=name)
'''
BREAK = '''"""Breaks."""


async def main() -> int:
    return 1 // 0
'''
NAMES = ("double", "start", "break_it", "launch")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the owner's programs."""
    (tmp_path / "programs").mkdir()
    for name, text in (("double", DOUBLE), ("start", START), ("break_it", BREAK)):
        (tmp_path / "programs" / f"{name}.py").write_text(text)
    return tmp_path


async def test_program_is_a_typed_tool_for_who_may_run_it(place: Path) -> None:
    """Its parameters are those of its main; a token that does not name it neither sees nor runs it."""
    async with open_mcp(place) as origin:
        client = BareClient(origin, make_token(place, tools=NAMES), {})
        tools = {tool["name"]: tool for tool in (await client.ask("tools/list"))["tools"]}
        assert tools["double"]["inputSchema"]["properties"]["number"]["type"] == "integer"
        assert tools["double"]["description"] == "Doubles a number."
        done = await client.call("double", number=21)
        assert (done["isError"], done["structuredContent"]["text"]) == (False, "42")
        wrong = await client.call("double", number="x")
        assert wrong["isError"]
        broken = await client.call("break_it")
        assert broken["isError"]
        assert "ZeroDivisionError" in broken["content"][0]["text"]
        every_rights: tuple[dict[str, Any], ...] = ({}, {"tools": ("look",)})
        for rights in every_rights:
            other = BareClient(origin, make_token(place, **rights), {})
            assert "double" not in [tool["name"] for tool in (await other.ask("tools/list"))["tools"]]
            with pytest.raises(RpcError):
                await other.call("double", number=21)


async def test_program_that_asks_is_a_task_over_a_restart(place: Path) -> None:
    """The server ends while the program waits; another one goes on with it, and the call happens once."""
    token = make_token(place, tools=NAMES, tier="Elevated", approves=True)
    async with open_mcp(place) as origin:
        client = BareClient(origin, token)
        task_id = (await client.call("start", name="rocket"))["taskId"]
        asked = await client.until(task_id, "input_required")
    async with open_mcp(place) as origin:
        client = BareClient(origin, token)
        assert (await client.until(task_id, "input_required"))["inputRequests"] == asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"confirm": True}} for key in asked["inputRequests"]}
        await client.ask("tasks/update", taskId=task_id, inputResponses=answers)
        ended = await client.until(task_id, "completed")
        assert ended["result"]["structuredContent"]["text"] == "appended rocket"
        forged = f"{task_id[:-1]}{'0' if task_id[-1] != '0' else '1'}"
        with pytest.raises(RpcError):
            await client.ask("tasks/get", taskId=forged)
        again = (await client.call("start", name="balloon"))["taskId"]
        await client.until(again, "input_required")
        await client.ask("tasks/cancel", taskId=again)
        assert (await client.until(again, "cancelled", "completed", "failed"))["status"] == "cancelled"
    assert [text for _, text in effects(place / "workspace")] == ["rocket"]
