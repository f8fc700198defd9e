"""The hierarchies everyone writes first: one task with a final answer, and many tasks whose results come."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, assert_type

import pytest
from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AsyncFunctionModel,
    ChildResult,
    ConfigError,
    FunctionModel,
    LimitExceeded,
    Limits,
    ModelRequest,
    ScriptedModel,
    SessionFailed,
    SessionKind,
    SessionResult,
    SessionTree,
    ToolCall,
    script_call,
)
from sessiontree.contracts.facts.session_facts import MessageReceived
from sessiontree.contracts.facts.tree_facts import SessionEnded, SessionSpawned
from sessiontree.contracts.values.messages import UserMessage
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import facts, facts_of, until
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener


class Report(BaseModel):
    """What is found."""

    parts: int


def number(request: ModelRequest) -> Answer:
    """Reply with the number that the task is; fail at another word."""
    return str(int(request.messages[0].text))


def in_two_parts(request: ModelRequest) -> Answer:
    """Let two children work, give an interim message, and report how many were heard."""
    if request.kind is not SessionKind.BRANCH:
        return "a part"
    heard = sum(isinstance(each, UserMessage) and each.origin == "child" for each in request.messages)
    if request.turn == 1:
        spawns: list[str | ToolCall] = [
            script_call("sessions_spawn", kind="worker", task=each) for each in "ab"
        ]
        return spawns
    return f'{{"parts":{heard}}}' if heard == 2 else '{"parts":-1}'


async def collected(results: AsyncGenerator[ChildResult[Any], None]) -> list[ChildResult[Any]]:
    """Return everything an iterator yields."""
    return [each async for each in results]


async def heard(tree: SessionTree) -> list[dict[str, Any]]:
    """Return what Main read of its children, once it has read of one."""
    await until(tree, MessageReceived, session="main", where=lambda fact: fact.message.origin == "child")
    messages = [each for each in tree.main.history() if isinstance(each, UserMessage)]
    return [json.loads(each.text) for each in messages if each.origin == "child"]


@pytest.mark.covers("C12")
@pytest.mark.on_ray
async def test_run_gives_the_final_answer_after_all_children(open_tree: Opener) -> None:
    """An interim message is not the answer; the output is of the type that was asked for."""
    async with open_tree(FunctionModel(in_two_parts)) as tree:
        result = assert_type(await tree.run("Report", result_type=Report), SessionResult[Report])
        assert result.output == Report(parts=2)
        assert [(line.session_id, str(line.status)) for line in tree.receipt()[1:]] == [
            ("main/b1", "completed"),
            ("main/b1/w1", "completed"),
            ("main/b1/w2", "completed"),
        ]
        assert assert_type(await tree.run("Again"), SessionResult[Any]).output is None
        assert tree.main.history() == []


async def test_run_is_of_the_agent_and_time_asked_for(open_tree: Opener) -> None:
    """Agent and time to live are the Branch's; wrong ones start nothing."""
    agents = {"scout": AgentSpec(config=AgentConfig())}
    async with open_tree(ScriptedModel(["done"]), agents=agents) as tree:
        assert (await tree.run("look", agent="scout", ttl_s=100)).summary == "done"
        (spawned,) = [each.spec for each in await facts_of(tree, SessionSpawned) if each.spec.parent]
        assert (spawned.agent, spawned.ttl_s, spawned.kind) == ("scout", 100, SessionKind.BRANCH)
        wrongs: list[tuple[dict[str, Any], str]] = [
            ({"task": " "}, "task"),
            ({"task": "x", "ttl_s": -1}, "ttl_s is -1"),
        ]
        for wrong, words in wrongs:
            with pytest.raises(ConfigError, match=words):
                await tree.run(**wrong)
        assert len(tree.receipt()) == 2


async def test_run_that_fails_says_why(open_tree: Opener) -> None:
    """The answer is missing, so the failure is raised."""
    async with open_tree(FunctionModel(number)) as tree:
        with pytest.raises(SessionFailed, match=r"main/b1.*ValueError"):
            await tree.run("nothing")


@pytest.mark.covers("C12")
@pytest.mark.on_ray
async def test_as_completed_yields_each_result_as_its_child_ends(
    open_tree: Opener, board: Switchboard
) -> None:
    """The first task ends last: the others' results come before, each with its number, path and label."""
    gate = Flag(board)

    async def reply(request: ModelRequest) -> Answer:
        if request.messages[0].text == "0":
            await gate.wait()
        return number(request)

    async with open_tree(AsyncFunctionModel(reply)) as tree:
        found: list[ChildResult[int]] = []
        ended = tree.main.as_completed(
            "worker", ["0", "1", "2"], labels=["a", "b", "c"], ttl_s=[100, None, 200], result_type=int
        )
        async for result in ended:
            found.append(assert_type(result, ChildResult[int]))
            if len(found) == 2:
                gate.set()
        assert {(each.index, each.label, each.output) for each in found[:2]} == {(1, "b", 1), (2, "c", 2)}
        assert (found[2].index, found[2].label, found[2].output) == (0, "a", 0)
        spawned = [each.spec for each in await facts_of(tree, SessionSpawned) if each.spec.parent]
        assert {each.label: each.ttl_s for each in spawned} == {
            "a": 100,
            "b": Limits().worker_ttl_s,
            "c": 200,
        }
        assert {each.session_id: each.label for each in spawned} == {
            each.session_id: each.label for each in found
        }


async def test_as_completed_runs_no_more_at_a_time_than_asked(open_tree: Opener) -> None:
    """With one at a time each child starts after the one before it has ended."""
    async with open_tree(FunctionModel(number)) as tree:
        found = await collected(tree.main.as_completed("worker", ["1", "2", "3"], concurrency=1))
        assert [each.index for each in found] == [0, 1, 2]
        lives = [fact for fact in await facts(tree, "") if isinstance(fact, SessionSpawned | SessionEnded)]
        assert [type(fact) for fact in lives[1:]] == [SessionSpawned, SessionEnded] * 3
        assert await collected(tree.main.as_completed("worker", [])) == []


@pytest.mark.covers("C12")
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "left"])
async def test_as_completed_cancels_the_rest_when_the_loop_is_left(
    open_tree: Opener, board: Switchboard, closed: bool
) -> None:
    """At once where the iterator is closed; soon where the loop is just left."""
    started, never = Flag(board), Flag(board)

    async def reply(request: ModelRequest) -> Answer:
        if request.messages[0].text != "1":
            started.set()
            await never.wait()
        else:
            await started.wait()
        return number(request)

    async with open_tree(AsyncFunctionModel(reply)) as tree:
        if closed:
            async with aclosing(tree.main.as_completed("worker", ["0", "1", "2"])) as ended:
                async for result in ended:
                    assert result.index == 1
                    break
        else:
            async for _ in tree.main.as_completed("worker", ["0", "1", "2"]):
                break
            await until(tree, SessionEnded, count=3)
        statuses = {line.session_id: str(line.status) for line in tree.receipt()[1:]}
        assert statuses == {"main/w1": "cancelled", "main/w2": "completed", "main/w3": "cancelled"}


async def test_as_completed_with_failures(open_tree: Opener) -> None:
    """``return`` yields them, ``raise`` raises the first task's at the end, ``first`` ends at the first."""
    tasks = ["1", "bad b", "bad a", "4"]
    async with open_tree(FunctionModel(number)) as tree:
        found = await collected(tree.main.as_completed("worker", tasks))
        assert sorted((each.index, str(each.status)) for each in found) == [
            (0, "completed"),
            (1, "failed"),
            (2, "failed"),
            (3, "completed"),
        ]
        seen: list[int] = []
        with pytest.raises(SessionFailed, match="bad b"):
            async with aclosing(tree.main.as_completed("worker", tasks, on_error="raise")) as ended:
                while True:
                    seen.append((await anext(ended)).index)
        assert sorted(seen) == [0, 1, 2, 3]
        with pytest.raises(SessionFailed, match="bad a"):
            await collected(tree.main.as_completed("worker", ["bad a", "2"], on_error="first", concurrency=1))
        assert len(tree.receipt()) == 1 + 4 + 4 + 1, "the second was never started"


async def test_as_completed_that_is_refused_leaves_no_child(open_tree: Opener) -> None:
    """A refusal is raised as it is, and what lives is cancelled first."""
    async with open_tree(FunctionModel(number), limits=Limits(max_total=3)) as tree:
        with pytest.raises(LimitExceeded, match="max_total"):
            await collected(tree.main.as_completed("worker", ["1", "2", "3"]))
        assert all(line.status.is_final for line in tree.receipt()[1:])


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "fewer labels": ({"labels": ["a"]}, "labels is .*; give a list with one for each of the 2 tasks"),
    "a label for all": ({"labels": "ab"}, "labels"),
    "fewer times": (
        {"ttl_s": [1]},
        "ttl_s is .*; give one value, or a list with one for each of the 2 tasks",
    ),
    "a negative time": ({"ttl_s": -1}, "ttl_s is -1; give seconds above 0"),
    "no time among others": ({"ttl_s": [5, 0]}, r"ttl_s is \[5, 0\]; give seconds above 0"),
    "endless time": ({"ttl_s": float("inf")}, "ttl_s is inf"),
    "a time in words": ({"ttl_s": ["5", 5]}, r"ttl_s is \['5', 5\]; give seconds"),
    "an empty task": ({"tasks": ["x", " "]}, r"tasks\.1 is ' '; give text with something in it"),
    "one text": ({"tasks": "xy"}, "tasks is .*; give texts in a list"),
    "none at a time": ({"concurrency": 0}, "concurrency is 0"),
    "another word": ({"on_error": "ignore"}, "on_error 'ignore' is not one of return, raise, first"),
}


async def test_wrong_arguments_start_nothing(open_tree: Opener) -> None:
    """``map`` and ``as_completed`` refuse the same ones in the same words, before anything is started."""
    async with open_tree(ScriptedModel(["done"])) as tree:
        for wrong, words in WRONG.values():
            given: dict[str, Any] = {"kind": "worker", "tasks": ["x", "y"], **wrong}
            with pytest.raises(ConfigError, match=words):
                await tree.main.map(**given)
            with pytest.raises(ConfigError, match=words):
                tree.main.as_completed(**given)
        assert len(tree.receipt()) == 1


TYPED = {
    "json": ('{"n": 1}', {"type": "object"}, None),
    "only a block": ('```json\n{"n": 1}\n```', {"type": "object"}, None),
    "words and a block": (
        'Here it is:\n```json\n{"n": 1}\n```\nDone.',
        {"type": "object"},
        "Here it is:\nDone.",
    ),
    "text": ("just words", {"type": "string"}, None),
    "a quoted text": ('"just words"', {"type": "string"}, None),
    "untyped": ('{"n": 1}', None, '{"n": 1}'),
}


@pytest.mark.short(2)
@pytest.mark.parametrize("name", TYPED)
async def test_typed_result_reaches_the_parents_transcript_once(open_tree: Opener, name: str) -> None:
    """What the message says besides its value is kept; the value is in ``output`` alone."""
    said, schema, summary = TYPED[name]
    given: dict[str, Any] = {} if schema is None else {"result_schema": schema}
    model = ScriptedModel(
        {
            "main": [script_call("sessions_spawn", kind="worker", task="look", **given), "waiting", "heard"],
            "main/w1": [said],
        }
    )
    async with open_tree(model) as tree:
        await tree.main.send("go")
        (told,) = await heard(tree)
        assert told.get("summary") == summary
        assert ("output" in told) == (schema is not None)
