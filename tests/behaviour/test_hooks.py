"""What the owner of a tree puts around every call: it decides before, sees after, rewrites what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from sessiontree import (
    BlockCall,
    ChangeArguments,
    ConfigError,
    FunctionModel,
    Hook,
    HookResult,
    KeptResult,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    ScriptedModel,
    SessionFailed,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import (
    ApprovalWanted,
    CallIntended,
    CallResolved,
    HookFailed,
    MessageReceived,
)
from sessiontree.contracts.reports.events import Event, ToolExecutionEnd, ToolExecutionStart
from sessiontree.contracts.tools.hooks import HookAnswer
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, asked, facts_of, results, until
from tests.behaviour.hook_fakes import Answering, Emptying, Masking, Timing, Watching
from tests.behaviour.signal_fixtures import Log
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Held, Sleeper

GO: list[Answer] = [script_call("append", text="one"), "went on"]
IN_FULL = ToolResult("in its place")
NAP_S = 0.2


@tool(tier=PermissionTier.READ_ONLY)
async def nap() -> str:
    """Sleep a little."""
    await asyncio.sleep(NAP_S)
    return "slept"


@pytest.mark.covers("I3", "S43")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "outcome", "kept", "ran"),
    [
        ([None], "ok", "appended one", ["one"]),
        ([BlockCall("not today")], "blocked", "not today", []),
        ([ChangeArguments({"text": "two"})], "ok", "appended two", ["two"]),
        (
            [ChangeArguments({"text": "two"}), ChangeArguments({"text": "three"})],
            "ok",
            "appended three",
            ["three"],
        ),
        ([HookResult(IN_FULL), ChangeArguments({"text": "two"})], "ok", "in its place", []),
        ([HookResult(ToolResult("first")), HookResult(IN_FULL)], "ok", "in its place", []),
        ([HookResult(IN_FULL), BlockCall("not today")], "blocked", "not today", []),
        ([BlockCall(" ")], "blocked", "a hook forbids this", []),
    ],
    ids=[
        "none",
        "block",
        "change",
        "later change",
        "result over change",
        "later result",
        "block over result",
        "block without a reason",
    ],
)
async def test_hooks_decide_before_a_call_runs(
    open_tree: Opener, answers: list[HookAnswer], outcome: str, kept: str, ran: list[str]
) -> None:
    """Priority orders them, and what they answer is merged; facts say what came of it."""
    hooks = [Answering(answer, priority=-number) for number, answer in enumerate(answers)]
    async with open_tree(ScriptedModel(GO), tools=TOOLS, hooks=hooks[::-1]) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "went on"
        (resolved,) = await facts_of(tree, CallResolved)
        assert resolved.outcome == outcome
        assert kept in resolved.message.text
        assert [text for _, text in effects(open_tree.workspace)] == ran
        intents = await facts_of(tree, CallIntended)
        assert [intent.call.arguments["text"] for intent in intents] == ran
        assert await facts_of(tree, HookFailed) == []


@pytest.mark.on_ray
async def test_guards_see_what_other_hooks_made_of_a_call(open_tree: Opener, board: Switchboard) -> None:
    """Plain hooks all see what was asked for; guards come last, whatever their priority, and see the end."""
    log = Log(board)
    hooks = [
        Answering(None, priority=9, guards=True, log=log),
        Answering(ChangeArguments({"text": "two"}), priority=1, log=log),
        Answering(None, log=log),
    ]
    async with open_tree(ScriptedModel(GO), tools=TOOLS, hooks=hooks) as tree:
        await tree.main.send("go")
    assert log.items() == ["plain-1 {'text': 'one'}", "plain-0 {'text': 'one'}", "guard-9 {'text': 'two'}"]


@pytest.mark.covers("I3", "HOK2")
async def test_changed_parameters_are_judged_as_if_the_model_had_sent_them(open_tree: Opener) -> None:
    """They need the same approval, and the person sees what would run."""
    script = ScriptedModel([script_call("launch", text="one"), "went on"])
    async with open_tree(script, tools=TOOLS, hooks=[Answering(ChangeArguments({"text": "two"}))]) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        (request,) = await asked(tree)
        assert request.request.arguments == {"text": "two"}
        await request.approve()
        async with asyncio.timeout(PATIENCE_S):
            await sent
        (wanted,) = await facts_of(tree, ApprovalWanted)
        assert wanted.call.arguments == {"text": "two"}
        assert [text for _, text in effects(open_tree.workspace)] == ["two"]


@pytest.mark.covers("U4", "Z7")
@pytest.mark.parametrize("guards", [False, True])
async def test_changes_that_do_not_fit_never_run(open_tree: Opener, guards: bool) -> None:
    """They are the hook's failure: the call runs as it was asked for, or not at all under a guard."""
    hook = Answering(ChangeArguments({"text": 7, "other": 1}), guards=guards)
    async with open_tree(ScriptedModel(GO), tools=TOOLS, hooks=[hook]) as tree:
        assert await tree.main.send("go") == "went on"
        assert [text for _, text in effects(open_tree.workspace)] == ([] if guards else ["one"])
        (failed,) = await facts_of(tree, HookFailed)
        assert (failed.hook, failed.point) == (hook.name, "before_tool_call")
        (resolved,) = await facts_of(tree, CallResolved)
        assert resolved.outcome == ("blocked" if guards else "ok")


@pytest.mark.covers("REL-L53")
async def test_call_from_the_program_passes_the_same_hooks(open_tree: Opener) -> None:
    """A blocked one raises."""
    async with open_tree(ScriptedModel(GO), tools=TOOLS, hooks=[Answering(BlockCall("not today"))]) as tree:
        with pytest.raises(PermissionDenied, match="not today"):
            await tree.main.call("append", {"text": "one"})
    assert effects(open_tree.workspace) == []


@pytest.mark.covers("S44", "I6")
async def test_after_comes_once_whatever_became_of_a_call(open_tree: Opener, board: Switchboard) -> None:
    """Run, unknown, invalid, denied by a person, timed out: one line each, with what was asked for."""
    log = Log(board)
    sleeper = Sleeper(board, timeout_s=0.05)
    reply: Answer = [
        script_call("look", text="a"),
        script_call("nothing_like_it"),
        script_call("look", text=[3]),
        script_call("launch", text="b"),
        script_call("sleeper"),
    ]
    async with open_tree(
        ScriptedModel([reply, "went on"]), tools=[*TOOLS, sleeper], hooks=[Watching(log)]
    ) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        (request,) = await asked(tree)
        await request.deny("no")
        async with asyncio.timeout(PATIENCE_S):
            await sent
            await log.holds(5)
        resolved = await facts_of(tree, CallResolved)
        told = log.items()
    assert sorted(told) == sorted(
        [
            "look ok main {'text': 'a'}",
            "nothing_like_it error main {}",
            "look invalid main {'text': [3]}",
            "launch denied main {'text': 'b'}",
            "sleeper timeout main {}",
        ]
    )
    assert len(resolved) == 5


@pytest.mark.covers("S44", "I6")
async def test_after_tells_how_long_a_call_ran(open_tree: Opener, board: Switchboard) -> None:
    """From its first line to its last, no more than passed meanwhile; nothing where it did not run."""
    log = Log(board)
    script = ScriptedModel([[script_call("nap"), script_call("nothing_like_it")], "went on"])
    async with open_tree(script, tools=[nap], hooks=[Timing(log)]) as tree:
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            await tree.main.send("go")
            await log.holds(2)
        passed_ms = (time.monotonic() - began) * 1000
        told = {name: (outcome, duration_ms) for name, outcome, duration_ms in log.items()}
    assert told["nothing_like_it"] == ("error", 0)
    assert told["nap"][0] == "ok"
    assert NAP_S * 1000 <= told["nap"][1] <= passed_ms


async def test_after_comes_once_for_calls_that_a_message_or_the_end_cuts_short(
    open_tree: Opener, board: Switchboard
) -> None:
    """A steering message aborts one call, the end of the session another; a blocked call is seen as well."""
    log, sleeper = Log(board), Sleeper(board)
    script = ScriptedModel([script_call("sleeper"), script_call("launch", text="b"), "went on"])
    async with open_tree(script, tools=[*TOOLS, sleeper], hooks=[Watching(log)]) as tree:
        first = asyncio.ensure_future(tree.main.send("go"))
        await sleeper.started.wait()
        second = asyncio.ensure_future(tree.main.send("stop that", mode="steer"))
        await asked(tree)
        await tree.cancel("enough")
        for reply in (first, second):
            with contextlib.suppress(SessionFailed):
                await reply
        async with asyncio.timeout(PATIENCE_S):
            await log.holds(2)
        assert log.items() == ["sleeper aborted main {}", "launch denied main {'text': 'b'}"]


async def test_call_is_stopped_while_hooks_are_asked_about_it(open_tree: Opener, board: Switchboard) -> None:
    """The message ends the wait: the call is skipped, never runs, and its after comes once."""
    log, asking = Log(board), Held(board)
    hooks = [Watching(log), Pondering(asking)]
    async with open_tree(ScriptedModel([script_call("append"), "went on"]), tools=TOOLS, hooks=hooks) as tree:
        first = asyncio.ensure_future(tree.main.send("go"))
        await asking.started.wait()
        async with asyncio.timeout(PATIENCE_S):
            await tree.main.send("never mind", mode="steer")
            await first
            await log.holds(1)
        (resolved,) = await facts_of(tree, CallResolved)
        assert resolved.outcome == "skipped"
        asking.let_go.set()
    assert effects(open_tree.workspace) == []
    assert log.items() == ["append skipped main {}"]


class Pondering(Hook):
    """Is never done before a call."""

    timeout_s = 60.0

    def __init__(self, held: Held) -> None:
        self.held = held

    async def before_tool_call(self, call: object, ctx: object) -> None:
        self.held.started.set()
        await self.held.let_go.wait()


@pytest.mark.covers("I8", "Z1")
async def test_journal_the_model_and_those_who_watch_get_the_rewritten_result(open_tree: Opener) -> None:
    """Start comes before the hooks, end after the rewriting; nobody sees what was there before."""
    async with open_tree(ScriptedModel(GO), tools=TOOLS, hooks=[Masking("one")]) as tree:
        reader = tree.progress()
        await tree.main.send("go")
        (message,) = results(tree, "main")
        assert message.text == "appended ***"
        async with asyncio.timeout(PATIENCE_S):
            seen: list[Event] = []
            while not seen or not isinstance(seen[-1], ToolExecutionEnd):
                seen.append((await reader.next()).event)
        assert isinstance(seen[0], ToolExecutionStart)
        assert "appended one" not in str(seen)
        reader.close()
        assert (await tree.main.call("append", {"text": "one more"})).text == "appended *** more"


async def test_tree_is_not_taken_up_without_its_guards(open_tree: Opener) -> None:
    """What guarded it is named in its journal; other hooks may come and go."""
    tree = open_tree(ScriptedModel(GO), tools=TOOLS, hooks=[Masking("one"), Answering(None)])
    async with tree:
        tree_id = tree.tree_id
    with pytest.raises(ConfigError, match="Masking"):
        await open_tree.resume(tree_id, ScriptedModel(GO), tools=TOOLS)
    async with await open_tree.resume(
        tree_id, ScriptedModel(GO), tools=TOOLS, hooks=[Masking("one")]
    ) as again:
        await again.main.send("go")
        assert results(again, "main")[0].text == "appended ***"


async def test_what_hooks_decided_is_not_decided_again_once_it_is_intended(
    open_tree: Opener, board: Switchboard
) -> None:
    """A call held for a person runs with the arguments its hooks gave it, also under other hooks."""
    script = ScriptedModel([script_call("launch", text="one"), "went on"])
    log = Log(board)
    async with open_tree(script, tools=TOOLS, hooks=[Answering(ChangeArguments({"text": "two"}))]) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        await asked(tree)
        sent.cancel()
        tree_id = tree.tree_id
    hooks = [Answering(ChangeArguments({"text": "three"}), log=log)]
    async with await open_tree.resume(tree_id, script, tools=TOOLS, hooks=hooks) as again:
        (request,) = again.approvals.pending()
        assert request.request.arguments == {"text": "two"}
        await request.approve()
        await until(again, CallResolved)
        assert [text for _, text in effects(open_tree.workspace)] == ["two"]
    assert log.items() == []


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (Hook(), "takes part in nothing"),
        (object(), "subclass of Hook"),
        (type("Odd", (Masking,), {"on_error": "maybe"})("x"), "on_error"),
        (type("Slow", (Masking,), {"timeout_s": 0})("x"), "timeout_s"),
    ],
)
async def test_badly_declared_hook_is_refused_before_anything_starts(
    open_tree: Opener, hook: Hook, words: str
) -> None:
    """So are two of one name."""
    with pytest.raises(ConfigError, match=words):
        open_tree(ScriptedModel(GO), tools=TOOLS, hooks=[hook])
    with pytest.raises(ConfigError, match="two hooks"):
        open_tree(ScriptedModel(GO), tools=TOOLS, hooks=[Masking("x"), Masking("y")])


class Lingering(Hook):
    """Takes its time over what is to be kept."""

    timeout_s = 60.0

    def __init__(self, held: Held) -> None:
        self.held = held

    async def tool_result_persist(self, result: KeptResult) -> KeptResult:
        self.held.started.set()
        await self.held.let_go.wait()
        return result


async def test_result_on_its_way_past_the_hooks_is_not_taken_for_a_call_that_never_ran(
    open_tree: Opener, board: Switchboard
) -> None:
    """A message that comes meanwhile stops nothing any more: what ran is kept as it ended."""
    keeping = Held(board)
    model = ScriptedModel([script_call("append", text="one"), "went on"])
    async with open_tree(model, tools=TOOLS, hooks=[Lingering(keeping)]) as tree:
        first = asyncio.ensure_future(tree.main.send("go"))
        await keeping.started.wait()
        second = asyncio.ensure_future(tree.main.send("and then?", mode="steer"))
        await until(tree, MessageReceived, count=2)
        keeping.let_go.set()
        async with asyncio.timeout(PATIENCE_S):
            await first
            await second
        (resolved,) = await facts_of(tree, CallResolved)
        assert (resolved.outcome, resolved.message.text) == ("ok", "appended one")


@pytest.mark.covers("I29")
async def test_result_keeps_a_block_whatever_a_hook_leaves_of_it(open_tree: Opener) -> None:
    """In journal, transcript and question: what was emptied says so."""

    def reply(request: ModelRequest) -> Answer:
        last = request.messages[-1]
        if isinstance(last, ToolResultMessage):
            return f"saw {[block.text for block in last.content if isinstance(block, TextContent)]}"
        return script_call("append")

    async with open_tree(FunctionModel(reply), tools=TOOLS, hooks=[Emptying()]) as tree:
        assert await tree.main.send("go") == "saw ['(no content)']"
        (resolved,) = await facts_of(tree, CallResolved)
        assert resolved.message.content == (TextContent("(no content)"),)
        (kept,) = results(tree, "main")
        assert kept.content == resolved.message.content
