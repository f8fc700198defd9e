"""Whatever a tool does, its call has one typed result and its session goes on."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ExecutionError,
    Limits,
    PermissionDenied,
    PermissionTier,
    ScriptedModel,
    SessionStatus,
    Timeout,
    ValidationError,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.models.answers import Answer
from tests.behaviour.bad_tool_fakes import MISDEEDS, Misbehave
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Deaf, InThread, Sleeper

LOOK = script_call("look")


@pytest.mark.covers("Z1")
@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True], ids=["alone", "alongside others"])
async def test_misbehaving_tool_gets_one_result_and_its_session_goes_on(
    open_tree: Opener, together: bool
) -> None:
    """Junk, any exception at all: an error the model reads, in its place among the others."""
    tools = [Misbehave(name) for name in MISDEEDS]
    scripts: dict[str, list[Answer]] = {}
    for number, bad in enumerate(tools, 1):
        scripts[f"main/w{number}"] = [
            [LOOK, script_call(bad.name), LOOK] if together else script_call(bad.name),
            "went on",
        ]
    async with open_tree(ScriptedModel(scripts), tools=[*TOOLS, *tools]) as tree:
        for name, misdeed in MISDEEDS.items():
            worker = await tree.main.spawn("worker", "look")
            async with asyncio.timeout(60):
                result = await worker.result()
            assert (name, result.status, result.summary) == (name, SessionStatus.COMPLETED, "went on")
            messages = results(tree, worker.session_id)
            failed = [message.is_error for message in messages]
            assert (name, failed) == (name, [False, True, False] if together else [True])
            assert misdeed.words in messages[len(messages) // 2].text, name
            resolved = await facts_of(tree, CallResolved, worker.session_id)
            assert [fact.outcome for fact in resolved if fact.message.is_error] == [misdeed.outcome], name


@tool(tier=PermissionTier.READ_ONLY, kinds=Sleeper.kinds)
def first_of(names: list[str]) -> str:
    """Return the first name."""
    return next(iter(names))


async def test_plain_function_that_raises_stop_iteration_has_failed_at_once(open_tree: Opener) -> None:
    """An exhausted iterator in a thread is an error like any other, and no call without an end."""
    async with open_tree(
        ScriptedModel([script_call("first_of", names=[]), "went on"]), tools=[first_of]
    ) as tree:
        async with asyncio.timeout(60):
            assert await tree.main.send("go") == "went on"
        assert "StopIteration" in results(tree, "main")[0].text
        with pytest.raises(ExecutionError, match="StopIteration"):
            await tree.main.call("first_of", {"names": []})


@tool(tier=PermissionTier.READ_ONLY, kinds=Sleeper.kinds)
def interrupt() -> str:
    """Raise what ends a program, in a thread, where nobody's Ctrl-C ever comes."""
    raise KeyboardInterrupt


async def test_plain_function_that_raises_keyboard_interrupt_has_failed_alone(open_tree: Opener) -> None:
    """It is an error of the call; neither the program nor the session ends with it."""
    async with open_tree(ScriptedModel([script_call("interrupt"), "went on"]), tools=[interrupt]) as tree:
        async with asyncio.timeout(60):
            assert await tree.main.send("go") == "went on"
        assert "KeyboardInterrupt" in results(tree, "main")[0].text
        with pytest.raises(ExecutionError, match="KeyboardInterrupt"):
            await tree.main.call("interrupt")


@pytest.mark.short(2)
@pytest.mark.covers("I21")
@pytest.mark.parametrize("together", [False, True], ids=["alone", "alongside others"])
@pytest.mark.parametrize("whose", ["the tool's limit", "the tree's limit", "the agent's limit"])
async def test_tool_that_never_returns_times_out(
    open_tree: Opener, board: Switchboard, whose: str, together: bool
) -> None:
    """The deadline ends it: Timeout for the model and for the program, and the tool was cancelled."""
    sleeper = Sleeper(board, {"the tool's limit": 0.03, "the agent's limit": 600.0}.get(whose))
    limits = Limits(tool_timeout_s=0.03) if whose == "the tree's limit" else Limits()
    timeouts = {"sleeper": 0.03} if whose == "the agent's limit" else {}
    agents = {"default": AgentSpec(config=AgentConfig(tool_timeouts=timeouts))}
    reply: Answer = [script_call("sleeper"), LOOK] if together else script_call("sleeper")
    model, tools = ScriptedModel([reply, "went on"]), [*TOOLS, sleeper]
    async with open_tree(model, tools=tools, limits=limits, agents=agents) as tree:
        assert await tree.main.send("go") == "went on"
        message = results(tree, "main")[0]
        assert "timed out after" in message.text
        assert next(iter(await facts_of(tree, CallResolved))).message.tool_name in {"sleeper", "look"}
        with pytest.raises(Timeout) as caught:
            await tree.main.call("sleeper")
        assert 0.03 <= caught.value.elapsed < 60
        assert sleeper.ended == ["cancelled"] * 2


@pytest.mark.covers("STP3")
@pytest.mark.slow
async def test_tool_that_ignores_its_cancel_is_left_behind(open_tree: Opener, board: Switchboard) -> None:
    """After the clean-up window the session goes on without it; its late result changes nothing."""
    deaf = Deaf(board, 0.02)
    async with open_tree(ScriptedModel([script_call("deaf"), LOOK, "went on"]), tools=[*TOOLS, deaf]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        assert deaf.ended == ["ignored"]
        assert "timed out" in results(tree, "main")[0].text
        before = len(await facts_of(tree, CallResolved))
        deaf.let_go.set()
        await deaf.done.wait()
        assert await tree.main.send("still there?") == "went on"
        assert len(await facts_of(tree, CallResolved)) == before


@pytest.mark.slow
async def test_deaf_tool_does_not_keep_its_session_from_being_cancelled(
    open_tree: Opener, board: Switchboard
) -> None:
    """Cancelling ends the session within its grace, forced, and says so in the receipt."""
    deaf = Deaf(board)
    limits = Limits(cancel_grace_s=0.05)
    async with open_tree(ScriptedModel([script_call("deaf"), "done"]), tools=[deaf], limits=limits) as tree:
        worker = await tree.main.spawn("worker", "look")
        await deaf.started.wait()
        async with asyncio.timeout(PATIENCE_S):
            (line,) = await worker.cancel("enough")
        assert (line.status, line.forced) == (SessionStatus.CANCELLED, True)
        assert "enough" in line.summary
        deaf.let_go.set()
        if open_tree.backend == "local":  # on Ray its process may have been ended with it
            await deaf.done.wait()
        assert (await worker.result()).status is SessionStatus.CANCELLED


@pytest.mark.covers("I19")
async def test_blocked_thread_is_told_and_left_behind(open_tree: Opener, board: Switchboard) -> None:
    """After its time-out a thread sees ``ctx.cancelled``; the session does not wait for it."""
    blocked = InThread(board, 0.03)
    async with open_tree(ScriptedModel([script_call("in_thread"), "went on"]), tools=[blocked]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        assert "timed out" in results(tree, "main")[0].text
        blocked.let_go.set()
        async with asyncio.timeout(PATIENCE_S):
            await blocked.saw_cancel.wait()


@pytest.mark.covers("A6")
async def test_programs_calls_end_as_the_tools_did(open_tree: Opener) -> None:
    """``handle.call`` raises what a model would read, as a typed error."""
    names = ("refuses", "gives up", "raises SystemExit")
    async with open_tree(ScriptedModel(["done"]), tools=[Misbehave(name) for name in names]) as tree:
        with pytest.raises(PermissionDenied, match="not here") as denied:
            await tree.main.call("refuses")
        assert denied.value.tier is PermissionTier.SYSTEM
        with pytest.raises(ExecutionError, match="no luck"):
            await tree.main.call("gives_up")
        with pytest.raises(ExecutionError, match="SystemExit"):
            await tree.main.call("raises_SystemExit")
        assert await tree.main.send("still there?") == "done"


@pytest.mark.covers("I39", "I40")
async def test_output_of_any_length_is_cut_for_the_model(open_tree: Opener) -> None:
    """A result of megabytes is cut to the agent's limit and says so."""

    @tool(tier=PermissionTier.READ_ONLY)
    async def shout() -> str:
        """Say a lot."""
        return "é" * 3_000_000

    async with open_tree(ScriptedModel([script_call("shout"), "done"]), tools=[shout]) as tree:
        await tree.main.send("go")
        text = results(tree, "main")[0].text
        assert len(text) <= 40_000
        assert "of 3000000 characters shown" in text


@tool(tier=PermissionTier.READ_ONLY, kinds=Sleeper.kinds)
def refuses(how: str) -> str:
    """Refuse in one of the ways that the program has a class for."""
    errors: dict[str, Exception] = {
        "value": ValidationError("no such size", "/how"),
        "right": PermissionDenied(PermissionTier.SYSTEM, "not this one"),
        "time": Timeout(3.0, "refuses"),
        "other": ExecutionError("out of paper"),
    }
    raise errors[how]


async def test_program_gets_the_class_of_error_that_the_tool_raised(open_tree: Opener) -> None:
    """With its field, tier or time, as if it had called the tool itself."""
    async with open_tree(ScriptedModel(["unused"]), tools=[refuses]) as tree:
        with pytest.raises(ValidationError, match="no such size") as invalid:
            await tree.main.call("refuses", {"how": "value"})
        assert invalid.value.field == "/how"
        with pytest.raises(PermissionDenied, match="not this one") as denied:
            await tree.main.call("refuses", {"how": "right"})
        assert denied.value.tier is PermissionTier.SYSTEM
        with pytest.raises(Timeout) as late:
            await tree.main.call("refuses", {"how": "time"})
        assert late.value.elapsed == 3.0
        with pytest.raises(ExecutionError, match="out of paper"):
            await tree.main.call("refuses", {"how": "other"})
