"""Tools declared here and run by the creating program: gates, owing, answers by id, lateness, refusals."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from typing import Any

import pytest
from PIL import Image
from pydantic import BaseModel, ConfigDict

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AnswerTooLate,
    ClientTool,
    EndedCall,
    ExecutionError,
    Hook,
    HookContext,
    ImageLimits,
    Limits,
    PermissionTier,
    Redact,
    ScriptedModel,
    SessionKind,
    SessionStatus,
    SessionTree,
    Timeout,
    ToolResult,
    ValidationError,
    script_call,
)
from sessiontree.api.tree.client_calls import WaitingCall
from sessiontree.contracts.facts.session_facts import CallDelegated, CallParked, CallResolved
from sessiontree.contracts.facts.tree_facts import ClientCallEnded as Closed
from sessiontree.contracts.facts.tree_facts import ClientCallOpened, ResultHeld
from sessiontree.contracts.values.messages import ImageContent
from tests.behaviour.fact_fixtures import asked, facts_of, records, results, until
from tests.behaviour.tree_fixtures import BACKENDS, Opener
from tests.unit.dispatch.image_fixtures import opened, saved

NO_PATIENCE = Limits(approval_patience_s=0)
ENDLESS = Limits(approval_patience_s=None)
ONE_PROCESS = pytest.mark.parametrize("variant", BACKENDS, indirect=True)
"""What the session machine decides, wherever it runs."""


class Question(BaseModel):
    """What to ask."""

    model_config = ConfigDict(extra="forbid")

    text: str = "how are you?"


class Reply(BaseModel):
    """What was answered."""

    words: str


def ask_owner(tier: PermissionTier = PermissionTier.WORKSPACE, **settings: Any) -> ClientTool:
    """Return a tool that the program runs."""
    return ClientTool("ask_owner", "Ask the user something.", Question, tier=tier, **settings)


async def called(tree: SessionTree, count: int = 1) -> list[WaitingCall]:
    """Wait until so many calls were ever handed over, and return those that wait now."""
    await until(tree, ClientCallOpened, count=count)
    return tree.client_calls.pending()


@pytest.mark.short(2)
@pytest.mark.parametrize("tier", [PermissionTier.READ_ONLY, PermissionTier.SYSTEM])
@pytest.mark.on_ray
async def test_call_waits_for_the_program_and_its_answer_is_the_result(
    open_tree: Opener, tier: PermissionTier
) -> None:
    """The call is owed with its final arguments; the host is free; the answer is in the transcript."""
    model = ScriptedModel([script_call("Ask_Owner", text="well?"), "done"])
    async with open_tree(model, tools=[ask_owner(tier)], limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        assert (waiting.session_id, waiting.tool, waiting.arguments) == (
            "main/b1",
            "ask_owner",
            {"text": "well?"},
        )
        assert waiting.params == Question(text="well?")
        await waiting.answer({"words": "fine"})
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert (message.text, message.is_error) == ('{"words":"fine"}', False)
        assert tree.client_calls.pending() == []
        assert not await facts_of(tree, CallParked)


async def test_parameters_of_a_schema_are_kept_to(open_tree: Opener) -> None:
    """Slips are put right, faults go back with the field, and the program gets a dict that fits."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"roomNo": {"type": "integer", "minimum": 1}},
        "required": ["roomNo"],
    }
    tool = ClientTool("look", "Look.", schema, tier=PermissionTier.WORKSPACE)
    model = ScriptedModel([script_call("look", room_no=0), script_call("look", room_no="7"), "done"])
    async with open_tree(model, tools=[tool], limits=ENDLESS) as tree:
        reply = tree.main.send("go")
        (waiting,) = await called(tree)
        assert (waiting.arguments, waiting.params) == ({"roomNo": 7}, {"roomNo": 7})
        await waiting.answer("tidy")
        assert await reply == "done"
        refused, answered = results(tree, "main")
        assert json.loads(refused.text)["field"] == "/roomNo"
        assert answered.text == "tidy"


@pytest.mark.covers("I32")
@ONE_PROCESS
async def test_model_goes_on_and_hears_the_answer_later(open_tree: Opener) -> None:
    """The pending envelope is the call's result; the answer comes as a notice and wakes the session."""
    model = ScriptedModel([script_call("ask_owner"), "meanwhile", "heard"])
    async with open_tree(model, tools=[ask_owner()], limits=NO_PATIENCE) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, ResultHeld, session="", where=lambda fact: fact.session == "main/b1")
        assert branch.status().status is SessionStatus.SUSPENDED
        (message,) = results(tree, "main/b1")
        (waiting,) = tree.client_calls.pending()
        envelope = '{"status":"pending","tool":"ask_owner","message":"Tool execution delegated to client"'
        assert message.text == f'{envelope},"requestId":"{waiting.call_id}"}}'
        await waiting.answer("fine")
        assert (await branch.result()).summary == "heard"
        last = branch.history()[-2].to_wire()
        assert (last["role"], last["origin"]) == ("user", "notice")
        assert last["content"][0]["text"].endswith("(ok): fine")
        assert len(results(tree, "main/b1")) == 1


@ONE_PROCESS
async def test_failed_call_is_told_as_an_error(open_tree: Opener) -> None:
    """The program may say that a call failed; the model reads why."""
    async with open_tree(
        ScriptedModel([script_call("ask_owner"), "done"]), tools=[ask_owner()], limits=ENDLESS
    ) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        await waiting.fail("nobody is there")
        await branch.result()
        (message,) = results(tree, "main/b1")
        assert message.text == '{"status":"error","tool":"ask_owner","error":"nobody is there"}'
        assert message.is_error


async def test_of_a_hundred_answers_exactly_one_wins(open_tree: Opener) -> None:
    """Whoever is late is informed by type; what the winner said is the result."""
    async with open_tree(
        ScriptedModel([script_call("ask_owner"), "done"]), tools=[ask_owner()], limits=ENDLESS
    ) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        won: list[int] = []
        late: list[int] = []

        async def answer(number: int) -> None:
            try:
                await waiting.answer(str(number))
            except AnswerTooLate:
                late.append(number)
            else:
                won.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(answer(number))
        assert (len(won), len(late)) == (1, 99)
        await branch.result()
        assert [message.text for message in results(tree, "main/b1")] == [str(won[0])]
        with pytest.raises(AnswerTooLate, match="ok; the answer changes nothing"):
            await waiting.answer("too late")


@pytest.mark.slow
async def test_answer_that_does_not_fit_leaves_the_call_open(open_tree: Opener) -> None:
    """Wrong type, no JSON, parts nobody can keep: refused by type, and the call waits for one that fits."""
    tool = ask_owner(result_type=Reply)
    async with open_tree(
        ScriptedModel([script_call("ask_owner"), "done"]), tools=[tool], limits=ENDLESS
    ) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        with pytest.raises(ValidationError) as refused:
            await waiting.answer({"words": 3})
        assert refused.value.field == "/words" and waiting.call_id in str(refused.value)
        with pytest.raises(ValidationError, match="images"):
            await waiting.answer(ToolResult({"words": "x"}, images=(ImageContent("", "image/png"),) * 99))
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(ValidationError, match="no JSON form"):
            await waiting.answer(endless)
        with pytest.raises(ValidationError, match="characters, at most"):
            await waiting.answer("x" * 34_000_000)
        assert [each.call_id for each in tree.client_calls.pending()] == [waiting.call_id]
        await waiting.answer(Reply(words="fine"))
        assert (await branch.result()).summary == "done"
        assert [message.text for message in results(tree, "main/b1")] == ['{"words":"fine"}']


@ONE_PROCESS
async def test_id_of_another_tree_is_refused(open_tree: Opener) -> None:
    """An id counts in its own tree alone, and a made-up one nowhere."""
    model = ScriptedModel([script_call("ask_owner"), "done"] * 2)
    async with open_tree(model, tools=[ask_owner()]) as tree:
        await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        async with open_tree.elsewhere("other")(ScriptedModel(["x"]), tools=[ask_owner()]) as other:
            for name in (waiting.call_id, "made up"):
                with pytest.raises(AnswerTooLate, match="unknown to this tree"):
                    await other.client_calls.answer(name, "fine")
        assert len(tree.client_calls.pending()) == 1


@ONE_PROCESS
async def test_steering_message_cancels_the_call(open_tree: Opener) -> None:
    """As it stops a running tool; an answer after that is refused."""
    model = ScriptedModel({"main": [script_call("ask_owner"), "heard you"]})
    async with open_tree(model, tools=[ask_owner()], limits=ENDLESS) as tree:
        tree.main.send("go")
        (waiting,) = await called(tree)
        assert await tree.main.send("stop that", mode="steer") == "heard you"
        assert tree.client_calls.pending() == []
        with pytest.raises(AnswerTooLate, match="aborted"):
            await waiting.answer("fine")
        (message,) = results(tree, "main")
        assert "a new message came in" in message.text


@pytest.mark.parametrize("whole", [False, True])
@ONE_PROCESS
async def test_ended_session_takes_no_answer(open_tree: Opener, whole: bool) -> None:
    """Session end or tree cancel: the call is taken back, an answer is refused, nothing is left waiting."""
    async with open_tree(
        ScriptedModel([script_call("ask_owner")]), tools=[ask_owner()], limits=NO_PATIENCE
    ) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        await (tree.cancel() if whole else branch.cancel())
        with pytest.raises(AnswerTooLate, match="cancelled"):
            await waiting.answer("fine")
        assert tree.client_calls.pending() == []


@ONE_PROCESS
async def test_call_nobody_answers_times_out(open_tree: Opener) -> None:
    """After the tool's own time the model reads that, and an answer is refused."""
    tool = ask_owner(timeout_s=0.2)
    async with open_tree(
        ScriptedModel([script_call("ask_owner"), "done"]), tools=[tool], limits=ENDLESS
    ) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        (closed,) = await facts_of(tree, Closed)
        assert closed.how == "timeout"
        with pytest.raises(AnswerTooLate, match="timeout"):
            await tree.client_calls.answer(closed.client_id, "fine")
        (message,) = results(tree, "main/b1")
        assert "timed out after" in message.text


@ONE_PROCESS
async def test_approval_comes_before_the_program_hears_of_the_call(open_tree: Opener) -> None:
    """Every gate is before the hand-over; a no means that the program never hears of it."""
    tool = ask_owner(PermissionTier.ELEVATED)
    model = ScriptedModel([script_call("ask_owner", text="a"), script_call("ask_owner", text="b"), "done"])
    async with open_tree(model, tools=[tool], limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (request,) = await asked(tree)
        assert tree.client_calls.pending() == []
        await request.deny()
        (request,) = await asked(tree, 2)
        await request.approve()
        (waiting,) = await called(tree)
        assert waiting.arguments == {"text": "b"}
        await waiting.answer("fine")
        assert (await branch.result()).summary == "done"
        assert len(await facts_of(tree, ClientCallOpened)) == 1


async def test_call_of_the_program_itself_is_answered_too(open_tree: Opener) -> None:
    """``handle.call`` on a client tool takes the same way; the session's turns go on meanwhile."""
    async with open_tree(ScriptedModel({"main": ["hello"]}), tools=[ask_owner()]) as tree:
        asking = asyncio.ensure_future(tree.main.call("ask_owner", {"text": "me?"}))
        (waiting,) = await called(tree)
        assert await tree.main.send("hi") == "hello"
        await waiting.answer({"words": "you"})
        assert (await asking).output == {"words": "you"}
        asking = asyncio.ensure_future(tree.main.call("ask_owner"))
        (waiting,) = await called(tree, 2)
        await waiting.fail("no")
        with pytest.raises(ExecutionError, match="no"):
            await asking
        with pytest.raises(Timeout):
            await _overdue(open_tree)


async def _overdue(open_tree: Opener) -> None:
    tool = ask_owner(timeout_s=0.1)
    async with open_tree.elsewhere("overdue")(ScriptedModel(["x"]), tools=[tool]) as tree:
        await tree.main.call("ask_owner")


@pytest.mark.slow
@pytest.mark.own_runtime
async def test_call_is_owed_after_the_tree_is_taken_up_again(open_tree: Opener) -> None:
    """It waits with the same id, tomorrow and in another process; the answer goes on where it stopped."""
    tools = [ask_owner(timeout_s=1000.0)]
    async with open_tree(ScriptedModel([script_call("ask_owner")]), tools=tools, limits=ENDLESS) as tree:
        await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
    tree = await open_tree.resume(
        tree.tree_id, ScriptedModel([script_call("ask_owner"), "done"]), tools=tools
    )
    async with tree:
        (again,) = tree.client_calls.pending()
        assert again.call == waiting.call
        await again.answer("fine")
        assert (await tree.session("main/b1").result()).summary == "done"
        assert [message.text for message in results(tree, "main/b1")] == ["fine"]
        assert len(await facts_of(tree, CallDelegated)) == 1


async def test_calls_come_one_by_one_until_the_tree_ends(open_tree: Opener) -> None:
    """Iterating gives each call once, of sessions of every kind; it ends with Main."""
    tool = ask_owner(PermissionTier.READ_ONLY, kinds=SessionKind)
    model = ScriptedModel([[script_call("ask_owner", text="1"), script_call("ask_owner", text="2")], "done"])
    async with open_tree(model, tools=[tool], limits=ENDLESS) as tree:
        seen: list[tuple[str, Any]] = []

        async def serve() -> None:
            async for waiting in tree.client_calls:
                seen.append((waiting.session_id, waiting.params.text))
                await waiting.answer(waiting.params.text)

        serving = asyncio.create_task(serve())
        first = await tree.main.spawn("branch", "go")
        second = await tree.main.spawn("worker", "go")
        await first.result()
        await second.result()
        await tree.finish("enough")
        async with asyncio.timeout(60):
            await serving
        assert sorted(seen) == [(name, text) for name in ("main/b1", "main/w1") for text in ("1", "2")]
        assert [message.text for message in results(tree, "main/w1")] == ["1", "2"]


class Ends(Hook):
    """Notes how calls ended."""

    name = "ends"

    def __init__(self) -> None:
        """Have seen none."""
        self.seen: list[EndedCall] = []

    async def after_tool_call(self, ended: EndedCall, ctx: HookContext) -> None:
        self.seen.append(ended)


@ONE_PROCESS
async def test_hooks_are_told_of_an_answer_once_and_how_long_it_took(open_tree: Opener) -> None:
    """The time is that from the hand-over to the answer; the arguments are the final ones."""
    ends = Ends()
    model = ScriptedModel([script_call("ask_owner", text="a"), "done"])
    async with open_tree(model, tools=[ask_owner()], hooks=[ends], limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        await waiting.answer("fine")
        await branch.result()
    (ended,) = ends.seen
    assert (ended.tool, ended.params, ended.is_error) == ("ask_owner", {"text": "a"}, False)
    assert 0 < ended.duration_ms < 60_000


@pytest.mark.slow
async def test_answer_is_redacted_cut_and_its_details_kept_from_the_model(open_tree: Opener) -> None:
    """As any other result: nothing of a secret reaches the journal, the text is cut, images must be some."""
    secret = "sk-ant-api03-" + "A1b2C3d4" * 12
    model = ScriptedModel([script_call("ask_owner"), "done"])
    agent = AgentSpec(config=AgentConfig(max_result_chars=1_000))
    short = {"agents": {"default": agent}, "limits": ENDLESS}
    async with open_tree(model, tools=[ask_owner()], hooks=[Redact()], **short) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        long = f"key {secret}\n" + "word " * 2_000
        broken = ImageContent("bm8gaW1hZ2U=", "image/png")
        await waiting.answer(ToolResult(long, details={"seen": "by people"}, images=(broken,)))
        await branch.result()
        (resolved,) = await facts_of(tree, CallResolved)
        assert "characters shown" in resolved.message.text
        assert [block for block in resolved.message.content if isinstance(block, ImageContent)] == []
        assert resolved.message.details == {"display": "", "details": {"seen": "by people"}}
        assert not any(secret in record.text for record in await records(tree))


async def test_images_of_an_answer_fit_the_limits_that_it_names(open_tree: Opener) -> None:
    """They are narrower than the agent's, as those of a tool's own result may be."""
    model = ScriptedModel([script_call("ask_owner"), "done"])
    large = ImageContent(b64encode(saved(Image.new("RGB", (200, 100)), "PNG")).decode(), "image/png")
    async with open_tree(model, tools=[ask_owner()], limits=ENDLESS) as tree:
        branch = await tree.main.spawn("branch", "go")
        (waiting,) = await called(tree)
        limits = ImageLimits(max_width=50, max_height=50)
        await waiting.answer(ToolResult("seen", images=(large,), image_limits=limits))
        await branch.result()
        (resolved,) = await facts_of(tree, CallResolved)
        (shown,) = [block for block in resolved.message.content if isinstance(block, ImageContent)]
        assert opened(b64decode(shown.data)).size == (50, 25)
