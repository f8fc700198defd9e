"""Forks that replace a child: it runs with its new task, its parent hears of it, and nothing else runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container, Sequence
from typing import Any

import pytest

from sessiontree import (
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PolicyConfig,
    ToolPolicy,
    script_call,
)
from sessiontree.contracts.facts.rewind import RecordedCalls
from sessiontree.contracts.facts.session_facts import ChildReported, RunFinished
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import facts_of, until
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))
CODE = """
import asyncio
await append(text="begin")
found = await map("worker", [f"task {at}" for at in range(40)], concurrency=6)
last = max(found)
await append(text=last)
more = await spawn("worker", "check " + last)
[found[7], found[8], last, more]
"""


def mapping(request: ModelRequest) -> Any:
    """Main runs the program; children answer with their task in capitals."""
    if request.session_id != "main":
        return request.messages[0].text.upper()
    if len(request.messages) == 1:
        return script_call("program", code=CODE)
    return request.messages[-1].text


def dividing(request: ModelRequest) -> Any:
    """Main lets three children work, and says what it heard of them."""
    if request.session_id != "main":
        return request.messages[0].text.upper()
    if len(request.messages) == 1:
        return [
            script_call("sessions_spawn", kind="worker", task=f"task {at}", wait="all") for at in range(3)
        ]
    return " ".join(json.loads(text)["summary"] for text in _reports(request))


def _reports(request: ModelRequest) -> Sequence[str]:
    return [each.text for each in request.messages if getattr(each, "origin", "") == "child"]


async def spawned_in(tree: Any) -> list[tuple[str, str]]:
    """Return the children that were spawned, with their tasks."""
    return [(each.spec.session_id, each.spec.task) for each in await facts_of(tree, SessionSpawned)][1:]


@pytest.mark.covers("STO17")
@pytest.mark.on_ray
@pytest.mark.parametrize(
    ("task", "last", "effects_after", "new"),
    [
        ("a new task", "TASK 9", 0, []),
        ("zebra", "ZEBRA", 1, ["check ZEBRA"]),
    ],
)
async def test_one_of_forty_children_of_a_program_runs_again(
    open_tree: Opener, task: str, last: str, effects_after: int, new: list[str]
) -> None:
    """Calls of the program that are equal to recorded ones get their answers; those that depend are made."""
    async with open_tree(FunctionModel(mapping), policy=EVERYTHING, tools=TOOLS) as tree:
        said = json.loads(await tree.main.send("go"))
        assert said == ["TASK 7", "TASK 8", "TASK 9", "CHECK TASK 9"]
        before = await spawned_in(tree)
        assert len(before) == 41
        assert len(effects(open_tree.workspace)) == 2
        async with await tree.fork(replace={"main/w8": task}) as fork:
            (_, ended) = await until(fork, RunFinished, session="main", count=2)
            assert json.loads(ended.text) == [task.upper(), "TASK 8", last, f"CHECK {last}"]
            assert [each for _, each in (await spawned_in(fork))[41:]] == [task, *new]
            assert len(effects(open_tree.workspace)) == 2 + effects_after
        assert len(await spawned_in(tree)) == 41


@pytest.mark.covers("STO17")
async def test_model_hears_of_the_new_child_and_of_the_others_as_before(open_tree: Opener) -> None:
    """Its turns after the old report run again."""
    async with open_tree(FunctionModel(dividing), policy=EVERYTHING) as tree:
        await tree.main.send("go")
        await until(tree, RunFinished, session="main", where=lambda fact: "TASK 2" in fact.text)
        async with await tree.fork(replace={"main/w2": "other"}) as fork:
            ended = await until(fork, RunFinished, session="main", where=lambda fact: "OTHER" in fact.text)
            assert ended[0].text == "TASK 0 TASK 2 OTHER"
            assert [each for _, each in (await spawned_in(fork))[3:]] == ["other"]


@pytest.mark.covers("STO17")
async def test_child_of_the_program_itself_runs_again_alone(open_tree: Opener) -> None:
    """Nobody in the tree has heard of it, so nobody goes back."""
    async with open_tree(FunctionModel(mapping), policy=EVERYTHING) as tree:
        await tree.main.map("worker", ["one", "two"])
        async with await tree.fork(replace={"main/w1": "other"}) as fork:
            (ended,) = await until(fork, RunFinished, session="main/w3")
            assert ended.text == "OTHER"


@pytest.mark.covers("STO11")
@pytest.mark.parametrize("task", ["", "other"])
async def test_program_in_a_fork_hears_of_the_children_for_which_it_waits(
    open_tree: Opener, task: str
) -> None:
    """They run in both trees, once in each; also where its text runs again because of another child."""
    code = 'await map("worker", ["quick", "slow"])'

    async def waiting(request: ModelRequest) -> Any:
        if request.session_id == "main":
            heard = len(request.messages) > 1
            return request.messages[-1].text if heard else script_call("program", code=code)
        if request.messages[0].text == "slow":
            await held.wait()
        return request.messages[0].text.upper()

    held = asyncio.Event()
    async with open_tree(AsyncFunctionModel(waiting), policy=EVERYTHING) as tree:
        tree.main.send("go")
        await until(tree, ChildReported)
        async with await tree.fork(replace={"main/w1": task} if task else None) as fork:
            held.set()
            (ended,) = await until(fork, RunFinished, session="main")
            assert json.loads(ended.text) == [(task or "quick").upper(), "SLOW"]
            assert len(await spawned_in(fork)) == 2 + bool(task)


@pytest.mark.parametrize(
    ("replace", "problem"),
    [
        ({"main/w9": "x"}, "the tree has no session 'main/w9' there; did you mean"),
        ({"main": "x"}, "main has no parent"),
        ({"main/w1": " "}, "the new task of main/w1 is ' '"),
        ({"main/b1": "x", "main/b1/w1": "y"}, "main/b1/w1 is below main/b1"),
        ({"main/b1": "x"}, "main/b1 has not ended there"),
    ],
)
async def test_what_cannot_be_replaced_is_refused(
    open_tree: Opener, replace: dict[str, str], problem: str
) -> None:
    """With the session and what to do; the tree is as it was."""
    async with open_tree(FunctionModel(mapping), policy=EVERYTHING) as tree:
        await tree.main.map("worker", ["one"])
        branch = await tree.main.spawn("branch", "two", stays_open=True)
        await branch.map("worker", ["three"])
        with pytest.raises(ConfigError, match=problem):
            await tree.fork(replace=replace)


def _serves_any(self: RecordedCalls, number: int, digest: str, used: Container[int] = ()) -> Any:
    left = [each for equal in self.by_digest.values() for each in equal.values()]
    return next((each for each in left if each.number not in used), None)


def _serves_nothing(self: RecordedCalls, number: int, digest: str, used: Container[int] = ()) -> Any:
    return None


def _serves_by_number(self: RecordedCalls, number: int, digest: str, used: Container[int] = ()) -> Any:
    left = [each for equal in self.by_digest.values() for each in equal.values()]
    return next((each for each in left if each.number == number), None)


@pytest.mark.parametrize("planted", [_serves_any, _serves_nothing, _serves_by_number])
async def test_answers_that_are_served_wrongly_are_found(
    open_tree: Opener, planted: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Answers go to equal calls alone: not to any, not to none, and not to the call of that number."""
    place = tmp_path_factory.mktemp("planted")  # a replay by the right rules finds these, too
    model = FunctionModel(mapping)
    async with open_tree(model, policy=EVERYTHING, tools=TOOLS, state_dir=place) as tree:
        await tree.main.send("go")
        monkeypatch.setattr(RecordedCalls, "find", planted)
        async with await tree.fork(replace={"main/w8": "zebra"}) as fork:
            (_, ended) = await until(fork, RunFinished, session="main", count=2)
            new = [task for _, task in (await spawned_in(fork))[41:]]
            right = json.dumps(["ZEBRA", "TASK 8", "ZEBRA", "CHECK ZEBRA"], separators=(",", ":"))
            assert (ended.text, new) != (right, ["zebra", "check ZEBRA"])
