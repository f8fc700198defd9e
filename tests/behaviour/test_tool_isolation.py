"""A tool has nothing of the session's own in its hands, and what is too much of what it returns is let go."""

from __future__ import annotations

import asyncio
import resource
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    EndedCall,
    Hook,
    HookContext,
    PermissionTier,
    ScriptedModel,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallIntended, CallResolved
from sessiontree.contracts.values.jsonable import JsonValue
from tests.behaviour.fact_fixtures import PATIENCE_S, calls, facts_of
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

HUGE = 1 << 30
only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)


class Parts(BaseModel):
    """What to work on."""

    names: list[str]
    more: dict[str, list[int]]


class Spoil(Tool[Parts]):
    """Changes everything it was given, then fails or answers with it."""

    name = "spoil"
    description = "Spoil."
    Params: ClassVar[type[BaseModel]] = Parts
    tier = PermissionTier.WORKSPACE

    async def execute(self, params: Parts, ctx: ToolContext) -> ToolResult:
        params.names.append("spoilt")
        params.more["spoilt"] = [1]
        params.more["sound"].clear()
        return ToolResult(list(params.names))


class Observing(Hook):
    """Writes down what a call ran with."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> None:
        self.log.append(dict(ended.params))


GIVEN: dict[str, JsonValue] = {"names": ["one"], "more": {"sound": [1, 2]}}


@only_local
async def test_what_a_tool_does_to_its_parameters_stays_with_it(
    open_tree: Opener, board: Switchboard
) -> None:
    """Journal, transcript and hooks have them as they were asked for."""
    log = Log(board)
    script = ScriptedModel([script_call("spoil", **GIVEN), "over"])
    async with open_tree(script, tools=[Spoil()], hooks=[Observing(log)]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "over"
            assert await log.holds(1) == [GIVEN]
        assert [fact.call.arguments for fact in await facts_of(tree, CallIntended)] == [GIVEN]
        assert [each.arguments for each in calls(tree, "main")] == [GIVEN]
        (resolved,) = await facts_of(tree, CallResolved)
        assert "spoilt" in resolved.message.text


class Flood(Tool[Parts]):
    """Returns a gigabyte, in one place or another."""

    name = "flood"
    description = "Flood."
    Params: ClassVar[type[BaseModel]] = Parts
    tier = PermissionTier.READ_ONLY

    async def execute(self, params: Parts, ctx: ToolContext) -> ToolResult:
        words = "x" * HUGE
        ways: dict[str, tuple[JsonValue, JsonValue]] = {
            "output": (words, None),
            "list": ([words], None),
            "details": ("x", {"all": words}),
        }
        output, details = ways[params.names[0]]
        return ToolResult(output, details=details)


@pytest.mark.short(1)
@pytest.mark.covers("REL-L65")
@only_local
@pytest.mark.slow
@pytest.mark.parametrize("where", ["output", "list", "details"])
async def test_gigabyte_of_result_is_let_go(open_tree: Opener, where: str) -> None:
    """It is cut or refused, its session goes on, and the process never holds it four times."""
    script = ScriptedModel([script_call("flood", names=[where], more={}), "over"])
    async with open_tree(script, tools=[Flood()]) as tree:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.timeout(PATIENCE_S * 3):
            assert await tree.main.send("go") == "over"
        (resolved,) = await facts_of(tree, CallResolved)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert len(resolved.message.to_json()) < 4_000_000
    assert grown < 7 << 29
