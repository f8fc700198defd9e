"""A program gets from a session what it asked for: typed, or typed why not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic takes the standard library's from Python 3.12 on

from sessiontree import (
    ChildKind,
    ChildResults,
    ConfigError,
    ExecutionError,
    FunctionModel,
    LimitExceeded,
    Limits,
    ModelRequest,
    PermissionDenied,
    ScriptedModel,
    SessionFailed,
    SessionHandle,
    SessionResult,
    SessionStatus,
    Timeout,
    ValidationError,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallHeld, CallOpened, ResultRejected, TurnReplied
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Sleeper


class Comparison(BaseModel):
    """Which of two is better."""

    winner: str
    margin: float = Field(ge=0, le=1)


@dataclass(frozen=True)
class Count:
    """How many of what."""

    name: str
    number: int = 0


class Pair(TypedDict):
    """Two numbers."""

    left: int
    right: int


TYPED: dict[str, tuple[Any, str, Any]] = {
    "a model": (Comparison, '{"winner":"a","margin":0.5}', Comparison(winner="a", margin=0.5)),
    "a dataclass": (Count, '{"name":"x","number":3}', Count("x", 3)),
    "a dataclass's default": (Count, '{"name":"x"}', Count("x", 0)),
    "a typed dict": (Pair, '{"left":1,"right":2}', {"left": 1, "right": 2}),
    "a list": (list[Count], '[{"name":"x"}]', [Count("x")]),
    "a plain type": (int, "42", 42),
    "text": (str, "just words", "just words"),
    "a schema": ({"type": "array", "items": {"type": "integer"}}, "[1,2]", [1, 2]),
    "fenced": (Count, 'Here you are:\n```json\n{"name":"x","number":1}\n```\n', Count("x", 1)),
    "null": (int | None, "null", None),
}


@pytest.mark.covers("A40")
@pytest.mark.parametrize("kind", ["branch", "worker"])
@pytest.mark.on_ray
async def test_last_word_comes_as_the_type_asked_for(open_tree: Opener, kind: ChildKind) -> None:
    """Pydantic models, dataclasses, plain types and JSON Schemas: validated, and made into values."""
    script: dict[str, list[Answer]] = {
        f"main/{kind[0]}{number}": [text] for number, (_, text, _) in enumerate(TYPED.values(), 1)
    }
    async with open_tree(ScriptedModel(script)) as tree:
        for name, (result_type, text, value) in TYPED.items():
            child = await tree.main.spawn(kind, "compare", result_type=result_type)
            result = await child.result()
            assert (name, result.status, result.output) == (name, SessionStatus.COMPLETED, value)
            assert type(result.output) is type(value), name
            assert result.summary == text


async def test_type_checkers_know_the_type_asked_for(open_tree: Opener) -> None:
    """A handle and its result, and those of ``map``; anything where no type was given, or a schema."""
    async with open_tree(ScriptedModel(['{"name":"x","number":3}'])) as tree:
        child = assert_type(await tree.main.spawn("worker", "count", result_type=Count), SessionHandle[Count])
        result = assert_type(await child.result(), SessionResult[Count])
        assert assert_type(result.output, Count | None) == Count("x", 3)
        (mapped,) = assert_type(
            await tree.main.map("worker", ["count"], result_type=Count), ChildResults[Count]
        )
        assert mapped.output == Count("x", 3)
        assert assert_type(mapped.value, Count) == assert_type(result.value, Count) == Count("x", 3)
        free = assert_type(await tree.main.spawn("worker", "count"), SessionHandle[Any])
        unasked = await free.result()
        assert unasked.output is None
        with pytest.raises(SessionFailed, match=f"{free.session_id}.*give a result_type"):
            _ = unasked.value


async def test_mapped_children_have_labels_and_times_to_live(open_tree: Opener) -> None:
    """One label for each task; wrong ones start nothing."""
    async with open_tree(ScriptedModel(["done"])) as tree:
        main = tree.main
        await main.map("worker", ["a", "b"], labels=["first", "second"], ttl_s=100)
        spawned = {
            fact.spec.label: fact.spec.ttl_s
            for fact in await facts_of(tree, SessionSpawned)
            if fact.spec.parent
        }
        assert spawned == {"first": 100, "second": 100}
        wrong: list[Any] = [["only one"], "ab", 7, ["", "x"], [1, 2]]
        for labels in wrong:
            with pytest.raises(ConfigError, match="label"):
                await main.map("worker", ["a", "b"], labels=labels)
        with pytest.raises(ConfigError, match="ttl_s"):
            await main.map("worker", ["a", "b"], ttl_s="long")  # type: ignore[call-overload]
        assert len(tree.receipt()) == 3


@pytest.mark.covers("A40")
async def test_wrong_result_is_sent_back_and_mended(open_tree: Opener) -> None:
    """The model learns the failing field; the second try counts."""
    model = ScriptedModel(['{"winner":"a","margin":7}', '{"winner":"a","margin":0.7}'])
    async with open_tree(model) as tree:
        child = await tree.main.spawn("worker", "compare", result_type=Comparison)
        result = await child.result()
        assert result.output == Comparison(winner="a", margin=0.7)
        (rejected,) = await facts_of(tree, ResultRejected)
        assert (rejected.attempt, rejected.field) == (1, "/margin")
        told = child.history()[2].to_wire()
        assert told["origin"] == "notice"
        assert "/margin" in told["content"][0]["text"]


@pytest.mark.covers("A40")
async def test_result_that_never_fits_fails_after_three_attempts(open_tree: Opener) -> None:
    """Three attempts, then ``failed`` with the reason and without output; no fourth question."""
    model = ScriptedModel(["no", "{}", '{"winner":"a","margin":2}', "never asked"])
    async with open_tree(model) as tree:
        child = await tree.main.spawn("worker", "compare", result_type=Comparison)
        result = await child.result()
        assert (result.status, result.output) == (SessionStatus.FAILED, None)
        assert "/margin" in result.summary
        assert [fact.attempt for fact in await facts_of(tree, ResultRejected)] == [1, 2, 3]
        assert len(await facts_of(tree, TurnReplied)) == 3


def echo(request: ModelRequest) -> str:
    """Reply with the task's number; fail for ``bad`` ones."""
    task = request.messages[0].to_wire()["content"][0]["text"]
    if task.startswith("bad"):
        raise ValueError(task)
    return dump_json({"name": task, "number": int(task)})


@pytest.mark.covers("C12")
async def test_map_gives_typed_results_in_the_tasks_order(open_tree: Opener) -> None:
    """More tasks than children at a time: all run, in any order, and come back in the given one."""
    async with open_tree(FunctionModel(echo), limits=Limits(max_children=3)) as tree:
        tasks = [str(number) for number in range(12)]
        found = await tree.main.map("worker", tasks, concurrency=8, result_type=Count)
        assert [result.output for result in found] == [Count(task, int(task)) for task in tasks]
        assert len(tree.receipt()) == 13
        assert await tree.main.map("worker", []) == []


async def test_map_returns_failures_beside_results(open_tree: Opener) -> None:
    """``return`` (the default): a failed child is a result with its status."""
    async with open_tree(FunctionModel(echo)) as tree:
        found = await tree.main.map("worker", ["1", "bad", "3"])
        assert [str(result.status) for result in found] == ["completed", "failed", "completed"]
        assert "ValueError: bad" in found[1].summary


async def test_map_raises_the_first_failure_once_all_have_ended(open_tree: Opener) -> None:
    """``raise``: nobody is cut short."""
    async with open_tree(FunctionModel(echo)) as tree:
        with pytest.raises(SessionFailed, match="bad 1"):
            await tree.main.map("worker", ["1", "bad 1", "3", "bad 2"], on_error="raise")
        statuses = [str(line.status) for line in tree.receipt()[1:]]
        assert statuses == ["completed", "failed", "completed", "failed"]


async def test_map_first_cancels_the_others(open_tree: Opener, board: Switchboard) -> None:
    """``first``: the first failure ends the rest and is raised; no child is left running."""
    sleeper = Sleeper(board)

    def reply(request: ModelRequest) -> Answer:
        return script_call("sleeper") if len(request.messages) == 1 and echo(request) else "awake"

    async with open_tree(FunctionModel(reply), tools=[sleeper]) as tree:
        with pytest.raises(SessionFailed, match="bad"):
            await tree.main.map("worker", ["1", "2", "bad", "3"], on_error="first")
        statuses = [str(line.status) for line in tree.receipt()[1:]]
        assert sorted(statuses) == ["cancelled", "cancelled", "cancelled", "failed"]


async def test_map_that_is_refused_half_way_leaves_no_child(open_tree: Opener, board: Switchboard) -> None:
    """A refused spawn ends what was started and is raised as it is."""
    sleeper = Sleeper(board)
    model = ScriptedModel([script_call("sleeper"), "awake"])
    limits = Limits(max_total=3)
    async with open_tree(model, tools=[sleeper], limits=limits) as tree:
        with pytest.raises(LimitExceeded, match="max_total"):
            await tree.main.map("worker", ["1", "2", "3", "4"])
        assert {str(line.status) for line in tree.receipt()[1:]} == {"cancelled"}


async def test_each_way_a_call_ends_is_its_own_error(open_tree: Opener, board: Switchboard) -> None:
    """``handle.call`` returns the output, or raises what happened, typed and outside the transcript."""
    tools = [*TOOLS, Sleeper(board, 0.02)]
    async with open_tree(ScriptedModel(["done"]), tools=tools, approvals="never") as tree:
        reply = await tree.main.call("write", {"path": "a.txt", "content": "one\n"})
        assert reply.output == {"path": "a.txt", "bytes": 4, "created": True}
        assert isinstance(reply.details, dict)
        assert (await tree.main.call("look", {"text": "5"})).text == "looked at 5"
        with pytest.raises(ValidationError) as invalid:
            await tree.main.call("write", {"path": 5})
        assert invalid.value.field in {"/path", "/content"}
        with pytest.raises(PermissionDenied, match="never"):
            await tree.main.call("launch")
        with pytest.raises(Timeout):
            await tree.main.call("sleeper")
        with pytest.raises(ExecutionError, match=r"nothing\.txt"):
            await tree.main.call("read", {"path": "nothing.txt"})
        assert tree.main.history() == []
        assert len(await facts_of(tree, CallOpened)) == 6
        for _ in range(4):
            with pytest.raises(ValidationError):
                await tree.main.call("write", {})
        assert (await tree.main.call("read", {"path": "a.txt"})).text == "one\n"


async def test_read_only_call_runs_during_a_turn_and_others_after_it(open_tree: Opener) -> None:
    """Outside calls see a running turn: ReadOnly at once, what changes things at its end."""
    limits = Limits(approval_patience_s=None)
    model = ScriptedModel([script_call("launch"), "done"])
    async with open_tree(model, tools=TOOLS, limits=limits) as tree:
        running = tree.main.send("go")
        (pending,) = await asked(tree)
        assert (await tree.main.call("look", {"text": "x"})).output == "looked at x"
        waiting = asyncio.create_task(tree.main.call("append", {"text": "after"}))
        await until(tree, CallHeld, where=lambda fact: fact.held)
        assert effects(open_tree.workspace) == []
        await pending.approve()
        assert await running == "done"
        assert (await waiting).output == "appended after"
        assert [text for _, text in effects(open_tree.workspace)] == ["x", "after"]
