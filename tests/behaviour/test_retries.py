"""Calls that change nothing are tried again where their tool says how; what changes things runs once."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import ExecutionError, PermissionTier, Retry, ScriptedModel, Timeout, ToolResult, script_call
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.reports.events import (
    Event,
    ToolExecutionEnd,
    ToolExecutionRetry,
    ToolExecutionStart,
)
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import Tool
from sessiontree.runtime.transport.progress import ProgressReader
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener

AT_ONCE = Retry(attempts=3, first_delay_s=0, max_delay_s=0)
only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)


class JournalTask(BaseModel):
    """How often it fails, and of what."""

    failures: int = 0
    of: str = "passing"


class Flaky(Tool[JournalTask]):
    """Fails so many times, then does not; writes down every attempt."""

    name = "flaky"
    description = "Try."
    Params: ClassVar[type[BaseModel]] = JournalTask
    tier = PermissionTier.READ_ONLY
    retry: ClassVar[Retry | None] = AT_ONCE
    timeout_s: ClassVar[float | None] = 0.05

    def __init__(self, board: Switchboard) -> None:
        self.tried = Log(board)

    async def execute(self, params: JournalTask, ctx: ToolContext) -> ToolResult:
        self.tried.append([ctx.call_id, ctx.attempt])
        if ctx.attempt > params.failures:
            return ToolResult("done")
        if params.of == "waiting":
            await asyncio.get_running_loop().create_future()
        if params.of == "its own time":
            raise Timeout(2.5)
        raise ExecutionError("no luck", params.of == "passing")


class Raised(Flaky):
    """ReadOnly by its word, more by its arguments."""

    name = "raised"

    def tier_for(self, params: JournalTask) -> PermissionTier:
        return PermissionTier.WORKSPACE


class Blaming(Flaky):
    """Takes being asked to stop for something that may pass."""

    name = "blaming"
    timeout_s: ClassVar[float | None] = 600

    async def execute(self, params: JournalTask, ctx: ToolContext) -> ToolResult:
        self.tried.append([ctx.call_id, ctx.attempt])
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise ExecutionError("interrupted", retryable=True) from None
        return ToolResult("done")


class Silent(Flaky):
    """Says nothing of trying again."""

    name = "silent"
    retry: ClassVar[Retry | None] = None


class Once(Flaky):
    """Wants to be tried once."""

    name = "once"
    retry: ClassVar[Retry | None] = Retry(attempts=1)


class Careless(Silent):
    """Says nothing of it, and changes things."""

    name = "careless"
    tier = PermissionTier.WORKSPACE


class Same(Flaky):
    """Changes things, but nothing more when it is repeated."""

    name = "same"
    tier = PermissionTier.WORKSPACE
    idempotent = True


def attempts_of(flaky: Flaky) -> list[int]:
    """Return the numbers of all attempts; all are of one call."""
    assert len({call_id for call_id, _ in flaky.tried}) <= 1
    return [attempt for _, attempt in flaky.tried]


async def seen_until_end(progress: ProgressReader) -> list[Event]:
    """Return the events up to the first end of a call."""
    seen: list[Event] = []
    async with asyncio.timeout(PATIENCE_S):
        while not seen or not isinstance(seen[-1], ToolExecutionEnd):
            seen.append((await progress.next()).event)
    return seen


@pytest.mark.covers("A25")
@pytest.mark.parametrize("of", ["waiting", "passing", "its own time"])
async def test_call_that_changes_nothing_is_tried_again(
    open_tree: Opener, board: Switchboard, of: str
) -> None:
    """One call, one result; those who watch see each attempt that failed, and neither start nor end twice."""
    flaky = Flaky(board)
    script = ScriptedModel([script_call("flaky", failures=2, of=of), "went on"])
    async with open_tree(script, tools=[flaky]) as tree:
        progress = tree.progress()
        assert await tree.main.send("go") == "went on"
        assert attempts_of(flaky) == [1, 2, 3]
        assert [(fact.outcome, fact.message.text) for fact in await facts_of(tree, CallResolved)] == [
            ("ok", "done")
        ]
        start, *retries, end = await seen_until_end(progress)
        assert isinstance(start, ToolExecutionStart)
        assert isinstance(end, ToolExecutionEnd)
        code = "execution_error" if of == "passing" else "timeout"
        told = [each.to_wire() for each in retries if isinstance(each, ToolExecutionRetry)]
        assert told == [
            {
                "type": "tool_execution_retry",
                "toolCallId": start.tool_call_id,
                "toolName": "flaky",
                "attempt": attempt,
                "attempts": 3,
                "code": code,
                "delayMs": 0,
            }
            for attempt in (1, 2)
        ]
        assert len(retries) == 2


@only_local
async def test_last_failure_stands_and_says_how_often_it_was_tried(
    open_tree: Opener, board: Switchboard
) -> None:
    """For the model and for the program."""
    flaky = Flaky(board)
    script = ScriptedModel([script_call("flaky", failures=9, of="waiting"), "went on"])
    async with open_tree(script, tools=[flaky]) as tree:
        assert await tree.main.send("go") == "went on"
        told = json.loads(results(tree, "main")[0].text)
        assert (told["status"], told["attempts"]) == ("error", 3)
        assert "timed out after" in told["error"]
        with pytest.raises(ExecutionError, match="no luck"):
            await tree.main.call("flaky", {"failures": 9})
        assert len(flaky.tried) == 6


@pytest.mark.short(4)
@pytest.mark.covers("A25")
@pytest.mark.slow
@only_local
@pytest.mark.parametrize(
    ("kind", "of", "attempts"),
    [
        (Flaky, "lasting", 1),
        (Raised, "passing", 1),
        (Raised, "waiting", 1),
        (Same, "passing", 3),
        (Silent, "waiting", 2),
        (Silent, "its own time", 2),
        (Silent, "passing", 1),
        (Once, "waiting", 1),
        (Careless, "waiting", 1),
    ],
)
async def test_what_may_be_repeated_and_what_may_not(
    open_tree: Opener, board: Switchboard, kind: type[Flaky], of: str, attempts: int
) -> None:
    """An error that says nothing of passing ends a call; any does where the arguments make it an effect."""
    flaky = kind(board)
    script = ScriptedModel([script_call(flaky.name, failures=9, of=of), "went on"])
    async with open_tree(script, tools=[flaky]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        assert attempts_of(flaky) == list(range(1, attempts + 1))
        assert results(tree, "main")[0].is_error


@only_local
async def test_message_ends_the_pause(open_tree: Opener, board: Switchboard) -> None:
    """Nobody waits an hour for a call that nobody wants; it is not tried again."""
    flaky = Flaky(board)
    flaky.retry = Retry(first_delay_s=3600, max_delay_s=3600)  # type: ignore[misc]
    script = ScriptedModel([script_call("flaky", failures=9), "went on"])
    async with open_tree(script, tools=[flaky]) as tree:
        progress = tree.progress()
        first = tree.main.send("go")
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance((await progress.next()).event, ToolExecutionRetry):
                pass
            assert await tree.main.send("never mind", mode="steer") == "went on"
            await first
        assert attempts_of(flaky) == [1]
        (resolved,) = await facts_of(tree, CallResolved)
        assert (resolved.outcome, resolved.message.is_error) == ("aborted", True)


@only_local
async def test_what_a_message_ended_is_not_tried_again(open_tree: Opener, board: Switchboard) -> None:
    """Whatever the tool calls its end."""
    blaming = Blaming(board)
    async with open_tree(ScriptedModel([script_call("blaming"), "went on"]), tools=[blaming]) as tree:
        first = tree.main.send("go")
        async with asyncio.timeout(PATIENCE_S):
            await blaming.tried.holds(1)
            assert await tree.main.send("never mind", mode="steer") == "went on"
            await first
        assert attempts_of(blaming) == [1]
        assert "interrupted" in results(tree, "main")[0].text
