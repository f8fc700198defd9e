"""A tree as the model of the OpenAI Agents SDK, in an environment of its own: ``make setup-agents``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.messages import ToolResultMessage
from tests.system.serve.door_fixtures import open_door

pytestmark = pytest.mark.long
PYTHON = Path(__file__).parents[3] / ".venv-agents" / "bin" / "python"
PROGRAM = Path(__file__).with_name("agents_sdk_program.py")


def reply(request: ModelRequest) -> Any:
    """Have the client look something up or hand over, and repeat what it says."""
    last = request.messages[-1]
    if isinstance(last, ToolResultMessage):
        return f"I heard: {last.text}"
    asked = last.text.rpartition("\n")[2]
    if asked.startswith("look up "):
        return script_call("look_up", city=asked.removeprefix("look up "))
    if asked == "hand over":
        return script_call("transfer_to_expert")
    return "the expert speaks"


@pytest.mark.parametrize("protocol", ["responses", "chat"])
async def test_tree_is_the_model_of_an_agent(tmp_path: Path, protocol: str) -> None:
    """Its function tools run once each, a handoff reaches the other agent, and a stream is whole."""
    async with open_door(tmp_path, FunctionModel(reply)) as door:
        client = await asyncio.create_subprocess_exec(
            PYTHON,
            PROGRAM,
            door.origin,
            door.make_token(),
            protocol,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, errors = await client.communicate()
    assert client.returncode == 0, errors.decode()
    seen = json.loads(printed)
    assert seen["weather"] == "I heard: rain in Oslo"
    assert seen["streamed"] == ["I heard: rain in Rome"] * 2
    assert seen["handed"][0] == "expert"
    assert seen["ran"] == ["Oslo", "Rome"]
