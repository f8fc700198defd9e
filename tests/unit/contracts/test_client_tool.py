"""What a client tool declares, and what it refuses."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sessiontree import (
    ClientTool,
    ConfigError,
    ExecutionError,
    PermissionTier,
    RawTool,
    ScriptedModel,
    SessionKind,
    SessionTree,
)


class Question(BaseModel):
    """What to ask."""

    text: str


def test_what_says_nothing_is_elevated_and_not_for_workers() -> None:
    """As with every tool; and it travels as it is."""
    tool = ClientTool("ask", "Ask.", Question)
    assert (tool.tier, tool.timeout_s, tool.result_type) == (PermissionTier.ELEVATED, None, None)
    assert SessionKind.WORKER not in tool.kinds
    arrived = pickle.loads(pickle.dumps(ClientTool("ask", "Ask.", Question, aliases=["question"])))
    assert (arrived.name, arrived.Params, arrived.aliases) == ("ask", Question, ("question",))


@pytest.mark.parametrize("named", [False, True])
def test_parameters_may_be_a_schema(named: bool) -> None:
    """However they are given; it travels too."""
    schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
    tool = ClientTool("ask", "Ask.", Params=schema) if named else ClientTool("ask", "Ask.", schema)
    arrived = pickle.loads(pickle.dumps(tool))
    assert isinstance(arrived, ClientTool)
    assert isinstance(arrived, RawTool)
    assert (arrived.name, arrived.parameters) == ("ask", schema)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "no name!"}, "give 1 to 64 letters"),
        ({"description": ""}, "description is ''; give text with something in it"),
        ({"Params": dict}, "give a pydantic model"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": float("inf")}, "timeout_s is inf"),
        ({"kinds": SessionKind}, "a Worker only observes"),
    ],
)
def test_slip_is_refused_where_it_is_written(given: dict[str, Any], said: str) -> None:
    """Each says which setting, and what would be accepted."""
    declared: dict[str, Any] = {"name": "ask", "description": "Ask.", "Params": Question, **given}
    with pytest.raises(ConfigError, match=said):
        ClientTool(**declared)


def test_result_type_without_a_schema_is_refused_before_any_session(tmp_path: Path) -> None:
    """The tree is not even made; the tool is named."""
    tool = ClientTool("ask", "Ask.", Question, result_type=threading.Lock)
    with pytest.raises(ConfigError, match="tool 'ask'"):
        SessionTree(tmp_path, model=ScriptedModel(["x"]), tools=[tool])


async def test_nobody_executes_its_calls_in_a_session() -> None:
    """The runtime hands them over; whoever runs one all the same is informed."""
    tool: Any = ClientTool("ask", "Ask.", Question)
    with pytest.raises(ExecutionError, match="run by the program"):
        await tool.execute(Question(text="x"), None)
