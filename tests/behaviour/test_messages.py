"""What is said to a session: in order, once, at the end of the turn or at once, and streamed back."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sessiontree import (
    AssistantMessage,
    AsyncFunctionModel,
    FunctionModel,
    ModelRequest,
    Progress,
    ProgressReader,
    ScriptedModel,
    SessionKind,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallResolved, MessageReceived, TurnStarted
from sessiontree.contracts.reports.events import Done, TextDelta, ToolExecutionEnd
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage, UserMessage
from sessiontree.models.answers import Answer
from sessiontree.models.port import EmitEvent
from tests.behaviour.effect_fakes import TOOLS, Append, effects
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results, until
from tests.behaviour.signal_fixtures import Flag, Turnstile
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Held, Nothing, Sleeper


def said(request: ModelRequest) -> list[str]:
    """Return everything said to the session so far."""
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


class Gate(AsyncFunctionModel):
    """Replies what was said last, each turn only once it was let through."""

    def __init__(self, board: Switchboard) -> None:
        super().__init__(self._reply)
        self.asked, self.turns = Turnstile(board), Turnstile(board)

    async def _reply(self, request: ModelRequest) -> Answer:
        self.asked.release()
        await self.turns.acquire()
        return f"{len(said(request))}: {said(request)[-1]}"


@pytest.mark.covers("REL-S45", "ORD1")
async def test_messages_are_answered_in_the_order_they_were_sent(
    open_tree: Opener, board: Switchboard
) -> None:
    """Each message has its own reply; those that come during a turn are one turn together."""
    gate = Gate(board)
    async with open_tree(gate) as tree:
        first = tree.main.send("one")
        await gate.asked.acquire()
        second, third = tree.main.send("two"), tree.main.send("three")
        await until(tree, MessageReceived, count=3)
        gate.turns.release()
        assert await first == "1: one"
        gate.turns.release()
        assert await second == "3: three"
        assert await third == "3: three"
        started = await facts_of(tree, TurnStarted)
        assert [fact.took for fact in started] == [1, 2]


@pytest.mark.covers("ORD3")
async def test_follow_up_waits_for_the_end_of_the_turn(open_tree: Opener, board: Switchboard) -> None:
    """A running tool is left alone; the message comes after its result."""
    held = Held(board)
    async with open_tree(ScriptedModel([script_call("held"), "slept", "then"]), tools=[held]) as tree:
        first = tree.main.send("sleep")
        await held.started.wait()
        second = tree.main.send("and?")
        await until(tree, MessageReceived, count=2)
        assert held.ended == []
        held.let_go.set()
        assert await first == "slept"
        assert await second in {"slept", "then"}
        assert [message.text for message in results(tree, "main")] == ["through"]
        assert held.ended == ["through"]


@pytest.mark.covers("I20")
@pytest.mark.on_ray
async def test_steering_message_stops_running_tools_and_forces_the_next_turn(
    open_tree: Opener, board: Switchboard
) -> None:
    """The running call is aborted, the one that has its result keeps it, and the model hears at once."""
    sleeper = Sleeper(board)

    def reply(request: ModelRequest) -> Answer:
        return (
            [script_call("append"), script_call("sleeper"), script_call("look")]
            if request.turn == 1
            else said(request)[-1]
        )

    async with open_tree(FunctionModel(reply), tools=[*TOOLS, sleeper]) as tree:
        first = tree.main.send("sleep")
        await sleeper.started.wait()
        await until(tree, CallResolved, count=2)
        assert await tree.main.send("stop that", mode="steer") == "stop that"
        assert await first == "stop that"
        assert sleeper.ended == ["cancelled"]
        appended, slept, looked = results(tree, "main")
        assert (appended.text, looked.text) == ("appended x", "looked at x")
        assert "aborted" in slept.text
        assert len(effects(open_tree.workspace)) == 1


async def test_steering_message_cuts_the_models_turn_short(open_tree: Opener, board: Switchboard) -> None:
    """What the model said without having read the message is no part of the conversation."""
    turns, asked = Turnstile(board), Flag(board)

    async def reply(request: ModelRequest) -> Answer:
        asked.set()
        await turns.acquire()
        return [script_call("append"), script_call("append")] if request.turn == 1 else said(request)[-1]

    async with open_tree(AsyncFunctionModel(reply), tools=TOOLS) as tree:
        first = tree.main.send("append")
        await asked.wait()
        second = tree.main.send("rather not", mode="steer")
        await until(tree, MessageReceived, count=2)
        turns.release(2)
        assert await second == "rather not"
        assert await first == "rather not"
        assert results(tree, "main") == []
        assert effects(open_tree.workspace) == []


class Meeting(Sleeper):
    """Waits for another call of its own, so that two calls end only side by side."""

    name = "meeting"

    def __init__(self, board: Switchboard) -> None:
        super().__init__(board, timeout_s=20)
        self.arrived = Turnstile(board)
        self.seen = Turnstile(board)

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        self.arrived.release()
        await self.seen.acquire()
        return ToolResult("met")


@pytest.mark.covers("I18")
async def test_calls_of_one_reply_run_side_by_side(open_tree: Opener, board: Switchboard) -> None:
    """Two calls of one reply have both begun before either ends."""
    meeting = Meeting(board)
    async with open_tree(
        ScriptedModel([[script_call("meeting"), script_call("meeting")], "done"]), tools=[meeting]
    ) as tree:
        reply = tree.main.send("go")
        await meeting.arrived.acquire()
        await meeting.arrived.acquire()
        meeting.seen.release(2)
        assert await reply == "done"
        assert [result.text for result in results(tree, "main")] == ["met", "met"]


class Slow(Append):
    """Runs one at a time, and lets others go on between its steps."""

    name = "slow"
    sequential = True


async def test_calls_of_a_sequential_tool_run_one_after_another(open_tree: Opener) -> None:
    """Five calls in one reply have their effects in the reply's order."""
    reply: list[Answer] = [[script_call("slow", text=str(number)) for number in range(5)], "done"]
    async with open_tree(ScriptedModel(reply), tools=[Slow()]) as tree:
        await tree.main.send("go")
        assert [text for _, text in effects(open_tree.workspace)] == ["0", "1", "2", "3", "4"]


class Streaming:
    """Says its reply letter by letter."""

    name = "streaming"

    async def complete(self, request: ModelRequest, emit: EmitEvent) -> AssistantMessage:
        text = f"turn {request.turn}"
        for letter in text:
            emit(TextDelta(letter))
            await asyncio.sleep(0)
        emit(Done("stop"))
        return AssistantMessage((TextContent(text),))


@pytest.mark.covers("I33")
async def test_reply_can_be_read_while_it_is_written(open_tree: Opener) -> None:
    """Iterating over a sent message gives its pieces; awaiting it gives the whole."""
    async with open_tree(Streaming()) as tree:
        for turn in (1, 2):
            pending = tree.main.send("go")
            pieces = [piece async for piece in pending]
            assert "".join(pieces) == f"turn {turn}"
            assert len(pieces) > 1
            assert await pending == f"turn {turn}"


async def test_whoever_stops_reading_a_reply_leaves_nothing_behind(
    open_tree: Opener, board: Switchboard
) -> None:
    """Breaking off, or being cancelled while waiting for a piece, ends the watching too."""
    gate = Gate(board)
    async with open_tree(gate) as tree:
        pending = tree.main.send("go")
        await gate.asked.acquire()
        before = asyncio.all_tasks()

        async def read() -> None:
            async for _ in pending:
                pass

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=PATIENCE_S)
        assert not left
        gate.turns.release()
        assert await pending == "1: go"


async def shown_of(reader: ProgressReader, session: str, patience_s: float) -> list[Progress]:
    """Return the first two events of a session, or those that came in time."""
    shown: list[Progress] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while len(shown) < 2:
                shown += [each for each in [await reader.next()] if each.session == session]
    return shown


def look_once(request: ModelRequest) -> Answer:
    """Have Workers look, then end."""
    return script_call("look") if request.kind is SessionKind.WORKER and request.turn == 1 else "done"


@pytest.mark.covers("I9", "I2")
@pytest.mark.on_ray
async def test_progress_shows_every_session_and_loses_only_the_oldest(open_tree: Opener) -> None:
    """A watcher of the tree sees calls of all sessions begin and end; a slow one learns what it missed.

    EVT2: on Ray a busy host may drop what it reports, so the next call is watched where one was not seen.
    """
    moments = [PATIENCE_S] if open_tree.backend == "local" else open_tree.longer_moments()
    async with open_tree(FunctionModel(look_once), tools=TOOLS) as tree:
        everything, only_main = tree.progress(), tree.progress("main")
        shown: list[Progress] = []
        for moment_s in moments:
            worker = await tree.main.spawn("worker", "look")
            await worker.result()
            shown = await shown_of(everything, worker.session_id, moment_s)
            if len(shown) == 2:
                break
        else:
            pytest.fail("no call was seen from its begin to its end")
        assert [(each.session, type(each.event).__name__) for each in shown] == [
            (worker.session_id, "ToolExecutionStart"),
            (worker.session_id, "ToolExecutionEnd"),
        ]
        ended = shown[1].event
        assert isinstance(ended, ToolExecutionEnd)
        assert isinstance(ended.result, dict)
        (answered,) = [each for each in worker.history() if isinstance(each, ToolResultMessage)]
        assert ended.result["content"] == answered.to_wire()["content"]
        assert ended.result["toolCallId"] == ended.tool_call_id
        assert only_main.drain() == []
        everything.close()
        only_main.close()


async def test_children_report_to_a_model_by_messages_and_to_a_program_by_results(open_tree: Opener) -> None:
    """A child a model spawned is a message in its transcript; one a handle spawned is not."""
    model = ScriptedModel(
        {
            "main": [
                script_call("sessions_spawn", kind="worker", task="look", label="eyes"),
                "waiting",
                "heard",
            ],
            "main/w1": ["seen"],
            "main/w2": ["seen by the program"],
        }
    )
    async with open_tree(model) as tree:
        await tree.main.send("go")
        await until(tree, MessageReceived, session="main", where=lambda fact: fact.message.origin == "child")
        child = await tree.main.spawn(SessionKind.WORKER, "look")
        assert (await child.result()).summary == "seen by the program"
        texts = [told.text for told in tree.main.history() if isinstance(told, UserMessage)]
        assert len(texts) == 2
        assert '"label":"eyes"' in texts[1]
        assert '"summary":"seen"' in texts[1]


async def test_what_is_said_on_the_way_to_the_end_is_still_heard(open_tree: Opener) -> None:
    """A message to a child that is about to complete is answered, or refused; it never vanishes."""
    model = FunctionModel(lambda request: f"{len(said(request))}")
    async with open_tree(model) as tree:
        for number in range(10):
            child = await tree.main.spawn("branch", "go")
            for _ in range(number):
                await asyncio.sleep(0)
            try:
                answer = await child.send("one more")
            except Exception as error:  # noqa: BLE001 - any other error fails the test below
                answer = type(error).__name__
            await child.result()
            heard = len(await facts_of(tree, MessageReceived, child.session_id))
            assert (answer, heard) in {("2", 2), ("SessionClosed", 1)}
