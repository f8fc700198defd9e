"""The life of a call, whatever it is and however it ends: its steps come in their order, once each."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from sessiontree import Runtime, ScriptedModel, SessionTree, SessionTreeError
from sessiontree.contracts.facts.session_facts import CallOpened, CallResolved, TurnReplied
from sessiontree.contracts.values.messages import ToolCall, ToolResultMessage
from sessiontree.models.answers import Answer
from tests.behaviour.call_life_oracle import RUNS, Diarist, Diary, Step, judge
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, until

KINDS = [*RUNS, "invalid", "unknown", "denied", "blocked", "answered"]
Play = tuple[list[list[str]], str, bool, bool]
"""Replies as kinds of calls; how stuck calls end; whether there are hooks; whether the program calls too."""


def play_of(seed: int) -> Play:
    """Return one of all plays, each as likely as any other."""
    draw = random.Random(seed)
    replies = [[draw.choice(KINDS) for _ in range(draw.randint(1, 5))] for _ in range(draw.randint(1, 3))]
    return replies, draw.choice(["message", "end"]), draw.random() < 0.6, draw.random() < 0.4


FOUND: list[Play] = [
    ([["reads", "stuck", "alone", "late"]], "end", True, True),
    ([["alone", "writes", "stuck", "alone"], ["late"]], "message", False, True),
]
"""Plays that went wrong once, or came near it."""
SETTINGS = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def called(kind: str, number: str) -> ToolCall:
    """Return a call of a kind; its id is its number."""
    hook = {"blocked": "block", "answered": "answer"}.get(kind, "")
    tool = "reads" if kind in {"invalid", "blocked", "answered"} else kind
    return ToolCall(number, tool, {} if kind == "invalid" else {"id": number, "hook": hook})


async def act(runtime: Runtime, place: Path, play: Play) -> None:
    """Property: every call of a play has one result, and its steps are those of its kind."""
    replies, ending, hooked, asks = play
    diary = Diary()
    script: list[Answer] = [
        [called(kind, f"c{turn}x{index}") for index, kind in enumerate(reply)]
        for turn, reply in enumerate(replies)
    ]
    tree = SessionTree(
        place,
        model=ScriptedModel([*script, "done"]),
        tools=[Step(name, diary) for name in (*RUNS, "denied")],
        hooks=[Diarist(diary)] if hooked else [],
        approvals="never",
        runtime=runtime,
        builtin_tools=False,
    )
    async with tree, asyncio.timeout(PATIENCE_S * 3):
        diary.progress = tree.progress()
        sent: list[asyncio.Future[Any]] = [asyncio.ensure_future(tree.main.send("go"))]
        outside: list[asyncio.Future[Any]] = []
        if asks:
            outside.append(asyncio.ensure_future(tree.main.call("writes", {"id": "outside"})))
        while await stuck_before(sent[-1], diary):
            diary.stuck.clear()
            if ending == "message":
                sent.append(asyncio.ensure_future(tree.main.send("never mind", mode="steer")))
            else:
                await tree.cancel("enough")
        for each in (*sent, *outside):
            with contextlib.suppress(SessionTreeError):
                await each
        await told(tree, diary, hooked=hooked)
    assert not diary.met, "something ran alongside a call that runs alone"


async def stuck_before(sent: asyncio.Future[str], diary: Diary) -> bool:
    """Wait for an answer, or for a call that gets stuck on the way to it."""
    stuck = asyncio.ensure_future(diary.stuck.wait())
    either: set[asyncio.Future[Any]] = {sent, stuck}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return stuck.done() and not sent.done()
    finally:
        stuck.cancel()


async def told(tree: SessionTree, diary: Diary, *, hooked: bool) -> None:
    """Check the facts of a play against the diary."""
    asked = {call.id: call for fact in await facts_of(tree, TurnReplied) for call in fact.message.tool_calls}
    for opened in await facts_of(tree, CallOpened):
        asked[opened.call_id] = ToolCall(opened.call_id, opened.tool, opened.arguments)
    resolved = await until(tree, CallResolved, count=len(asked)) if asked else []
    assert sorted(fact.message.tool_call_id for fact in resolved) == sorted(asked), "not one result each"
    if hooked:
        await diary.holds("after", len(asked))
    diary.write("", "")
    for fact in resolved:
        call = asked[fact.message.tool_call_id]
        kind = {"tool": call.name, "outcome": fact.outcome, "hook": str(call.arguments.get("hook", ""))}
        steps = [step for each, step in diary.lines if each in {call.id, str(call.arguments.get("id"))}]
        judge(steps, kind, hooked=hooked, hurried=diary.stuck_ever)
    shown = [each for each in tree.main.history() if isinstance(each, ToolResultMessage)]
    order = [call_id for call_id in asked if call_id.startswith("c")]
    assert [each.tool_call_id for each in shown] == order[: len(shown)]


@pytest.mark.covers("I2")
@pytest.mark.slow
def test_every_call_takes_the_whole_way_once(tmp_path: Path) -> None:
    """Ok, failed, blocked, answered by a hook, denied, invalid, timed out and tried again, cut short."""

    @SETTINGS
    @given(st.integers(0, 2**32).map(play_of))
    @example(FOUND[0])
    @example(FOUND[1])
    def holds(play: Play) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as place:
            runner.run(act(runtime, Path(place), play))

    with asyncio.Runner() as runner:
        runtime = Runtime(tmp_path / "state", backend="local")
        runner.run(runtime.__aenter__())
        try:
            holds()
        finally:
            runner.run(runtime.__aexit__(None, None, None))


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("steps", "tool", "outcome"),
    [
        (["start", "before", "run", "after", "persist"], "reads", "ok"),
        (["start", "before", "run", "after", "persist", "end", "update"], "reads", "ok"),
        (["start", "start", "before", "run", "after", "persist", "end"], "reads", "ok"),
        (["start", "before", "run", "persist", "after", "end"], "reads", "ok"),
        (["start", "before", "run", "run", "after", "persist", "end"], "writes", "ok"),
        (["start", "before", "run", "run", "after", "persist", "end"], "late", "timeout"),
        (["start", "before", "run", "after", "persist", "end"], "late", "timeout"),
        (["start", "before", "run", "after", "after", "persist", "end"], "fails", "error"),
        (["start", "before", "run", "after", "persist", "end"], "denied", "denied"),
        (["before", "start", "run", "after", "persist", "end"], "reads", "ok"),
        (["start", "run", "after", "end"], "reads", "ok"),
        (["end", "after"], "stuck", "skipped"),
    ],
)
def test_planted_life_is_found(steps: list[str], tool: str, outcome: str) -> None:
    """A step missing, doubled, out of order or after the end."""
    with pytest.raises(AssertionError):
        judge(steps, {"tool": tool, "outcome": outcome, "hook": ""}, hooked=True, hurried=False)
