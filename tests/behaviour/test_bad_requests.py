"""What a program asks wrongly is one clear typed error, and nothing is lost or started."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    Budget,
    ConfigError,
    ExecutionError,
    LimitExceeded,
    Limits,
    ScriptedModel,
    SessionClosed,
    SessionHandle,
    SessionKind,
    SessionNotFound,
    SessionTree,
    SessionTreeError,
    SpawnRefused,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import SpawnDenied
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

CYCLIC: dict[str, Any] = {}
CYCLIC["again"] = CYCLIC
DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]

Ask = Callable[[SessionHandle], Awaitable[object]]


@dataclass(frozen=True)
class Mistake:
    """One wrong request of Main, and what it must say."""

    ask: Ask
    error: type[SessionTreeError]
    words: str
    limits: dict[str, int] = field(default_factory=dict)


async def send(main: SessionHandle, *given: Any) -> str:
    """Say something and wait for the reply."""
    return await main.send(*given)


MISTAKES = {
    "no such kind": Mistake(
        lambda main: main.spawn("wizard", "x"),  # type: ignore[call-overload]
        ConfigError,
        "'wizard'",
    ),
    "a second main": Mistake(lambda main: main.spawn(SessionKind.MAIN, "x"), SpawnRefused, "one main"),
    "too deep": Mistake(lambda main: main.spawn("branch", "x"), LimitExceeded, "max_depth", {"max_depth": 1}),
    "too many children": Mistake(
        lambda main: main.spawn("worker", "x"), LimitExceeded, "max_children", {"max_children": 0}
    ),
    "too many alive": Mistake(
        lambda main: main.spawn("worker", "x"), LimitExceeded, "max_live", {"max_live": 1}
    ),
    "too many ever": Mistake(
        lambda main: main.spawn("worker", "x"), LimitExceeded, "max_total", {"max_total": 1}
    ),
    "no such agent": Mistake(lambda main: main.spawn("worker", "x", agent="bob"), SpawnRefused, "'bob'"),
    "empty task": Mistake(lambda main: main.spawn("worker", " \n"), ConfigError, "task"),
    "task of no text": Mistake(lambda main: main.spawn("worker", 5), ConfigError, "task"),  # type: ignore[call-overload]
    "label of no text": Mistake(
        lambda main: main.spawn("worker", "x", label=5),  # type: ignore[call-overload]
        ConfigError,
        "label",
    ),
    "no time to live": Mistake(lambda main: main.spawn("worker", "x", ttl_s=0), ConfigError, "ttl_s is 0"),
    "a time to live of no number": Mistake(
        lambda main: main.spawn("worker", "x", ttl_s="5"),  # type: ignore[call-overload]
        ConfigError,
        "ttl_s is '5'",
    ),
    "a budget of another type": Mistake(
        lambda main: main.spawn("worker", "x", budget=5),  # type: ignore[call-overload]
        ConfigError,
        "give a Budget",
    ),
    "no schema": Mistake(
        lambda main: main.spawn("worker", "x", result_type={"type": "nonsense"}), ConfigError, "result schema"
    ),
    "a schema from outside": Mistake(
        lambda main: main.spawn("worker", "x", result_type={"$ref": "http://nowhere.invalid/schema"}),
        ConfigError,
        "result schema",
    ),
    "a type without schema": Mistake(
        lambda main: main.spawn("worker", "x", result_type=asyncio.Event), ConfigError, "Event"
    ),
    "more than is left": Mistake(
        lambda main: main.spawn("worker", "x", budget=Budget(tokens=101)), LimitExceeded, "budget.tokens"
    ),
    "negative concurrency": Mistake(
        lambda main: main.map("worker", ["x"], concurrency=-1), ConfigError, "concurrency is -1"
    ),
    "concurrency of no number": Mistake(
        lambda main: main.map("worker", ["x"], concurrency="all"),  # type: ignore[call-overload]
        ConfigError,
        "concurrency is 'all'",
    ),
    "one text for a list of them": Mistake(
        lambda main: main.map("worker", "task"), ConfigError, "in a list, not one text"
    ),
    "an unknown way with errors": Mistake(
        lambda main: main.map("worker", ["x"], on_error="ignore"),  # type: ignore[call-overload]
        ConfigError,
        "on_error 'ignore'",
    ),
    "an empty task among others": Mistake(lambda main: main.map("worker", ["x", ""]), ConfigError, "task"),
    "a reason of no text": Mistake(lambda main: main.cancel(5), ConfigError, "reason"),  # type: ignore[arg-type]
    "an empty message": Mistake(lambda main: send(main, ""), ConfigError, "text"),
    "a message of no text": Mistake(lambda main: send(main, None), ConfigError, "text"),
    "an unknown mode": Mistake(lambda main: send(main, "x", "shout"), ConfigError, "'shout'"),
    "no such tool": Mistake(lambda main: main.call("dance"), ExecutionError, "no tool is named 'dance'"),
    "a tool of no text": Mistake(lambda main: main.call(5), ConfigError, "tool"),  # type: ignore[arg-type]
    "arguments of no mapping": Mistake(
        lambda main: main.call("look", ["x"]),  # type: ignore[arg-type]
        ConfigError,
        "arguments of 'look'",
    ),
    "arguments in a circle": Mistake(
        lambda main: main.call("look", CYCLIC), ConfigError, "arguments of 'look'"
    ),
    "arguments too deep": Mistake(
        lambda main: main.call("look", {"text": DEEP}), ConfigError, "arguments of 'look'"
    ),
}


@pytest.mark.short(10)
@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
async def test_wrong_request_is_one_typed_error_and_the_tree_goes_on(open_tree: Opener, name: str) -> None:
    """Every mistake has its error; nothing was started, and Main answers as before."""
    mistake = MISTAKES[name]
    limits = Limits(**mistake.limits)
    tree = open_tree(ScriptedModel(["hello"]), tools=TOOLS, limits=limits, budget=Budget(tokens=100))
    async with tree:
        with pytest.raises(mistake.error) as caught:
            async with asyncio.timeout(60):
                await mistake.ask(tree.main)
        assert type(caught.value) is mistake.error
        assert mistake.words in str(caught.value)
        live = [line.session_id for line in tree.receipt() if not line.status.is_final]
        assert live == ["main"]
        assert await tree.main.send("hello?") == "hello"


@pytest.mark.parametrize("kind", ["branch", "worker"])
async def test_refused_spawn_of_a_model_is_told_to_it(open_tree: Opener, kind: str) -> None:
    """What a model asks in vain it reads as the call's error, and the refusal is a fact."""
    model = ScriptedModel([script_call("sessions_spawn", kind=kind, task="x", agent="bob"), "alone then"])
    async with open_tree(model) as tree:
        assert await tree.main.send("go") == "alone then"
        (denied,) = await facts_of(tree, SpawnDenied)
        assert (denied.parent, denied.kind) == ("main", kind)
        assert "'bob'" in denied.reason


async def test_worker_spawns_nothing_for_its_program_either(open_tree: Opener) -> None:
    """A Worker is a leaf, whoever asks."""
    limits = Limits(approval_patience_s=None)
    model = ScriptedModel({"main/b1": [script_call("launch"), "done"], "*": ["done"]})
    async with open_tree(model, tools=TOOLS, limits=limits) as tree:
        worker = await tree.main.spawn("worker", "x")
        branch = await tree.main.spawn("branch", "x")
        with pytest.raises((SpawnRefused, SessionClosed)):
            await worker.spawn("worker", "y")
        child = await branch.spawn("worker", "y")
        with pytest.raises((SpawnRefused, SessionClosed)):
            await child.spawn("branch", "z")


@pytest.mark.slow
async def test_ended_session_takes_nothing_more(open_tree: Opener) -> None:
    """Sending, calling and spawning at an ended session is SessionClosed; its result stays readable."""
    async with open_tree(ScriptedModel(["done"]), tools=TOOLS) as tree:
        worker = await tree.main.spawn("worker", "x")
        ended = await worker.result()
        with pytest.raises(SessionClosed, match="completed"):
            await worker.send("more")
        with pytest.raises(SessionClosed, match="completed"):
            await worker.call("look")
        with pytest.raises(SessionClosed, match="completed"):
            await worker.spawn("worker", "x")
        assert await worker.result() == ended
        assert worker.history()[-1].to_wire()["content"] == [{"type": "text", "text": "done"}]
        assert worker.status().status == "completed"
        assert [line.status for line in await worker.cancel()] == ["completed"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["main/b7", "nobody", "", "main/"])
async def test_path_nobody_has_is_not_found(open_tree: Opener, path: str) -> None:
    """Every use of a handle of no session says so, and makes none."""
    async with open_tree(ScriptedModel(["done"]), tools=TOOLS) as tree:
        ghost = tree.session(path)
        with pytest.raises(SessionNotFound):
            await ghost.send("x")
        with pytest.raises(SessionNotFound):
            await ghost.call("look")
        with pytest.raises(SessionNotFound):
            await ghost.spawn("worker", "x")
        with pytest.raises(SessionNotFound):
            await ghost.result()
        with pytest.raises(SessionNotFound):
            await ghost.cancel()
        with pytest.raises(SessionNotFound):
            ghost.status()
        with pytest.raises(SessionNotFound):
            ghost.history()
        assert len(tree.receipt()) == 1


WRONG_TREES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown backend": ({"backend": "cloud"}, "'cloud'"),
    "no slots": ({"slots": 0}, "slots is 0"),
    "an unknown mode": ({"approvals": "sometimes"}, "'sometimes'"),
    "no channel": ({"channel": "radio"}, "'radio'"),
    "two approvers": ({"channel": None, "approver": lambda request: True}, "not both"),
    "a function for Main": ({"approver": "tests.behaviour.approver_fakes:breaks"}, "Main's approver"),
    "rules of another sort": ({"approver": ["launch"]}, "approver"),
    "an endless limit": ({"limits": Limits(cancel_grace_s=math.inf)}, "cancel_grace_s"),
    "an endless budget": ({"budget": Budget(cost_usd=math.inf)}, "cost_usd"),
    "limits of another sort": ({"limits": {"max_depth": 3}}, "limits"),
    "a budget of another sort": ({"budget": 5}, "budget"),
    "agents of another sort": ({"agents": {"bob": AgentSpec().config}}, "agents.bob is AgentConfig"),
    "smart rules of another sort": ({"smart_rules": ["launch"]}, "smart_rules"),
}


@pytest.mark.own_runtime
@pytest.mark.parametrize("name", WRONG_TREES)
async def test_wrong_setting_is_refused_before_anything_is_made(open_tree: Opener, name: str) -> None:
    """A tree that cannot be is a ConfigError, and leaves no file."""
    options, words = WRONG_TREES[name]
    with pytest.raises(ConfigError) as caught:
        async with open_tree(ScriptedModel(["done"]), **options):
            raise AssertionError("it opened")
    assert words in str(caught.value)
    assert not open_tree.state_dir.exists()


async def test_tree_that_is_not_open_says_so(open_tree: Opener) -> None:
    """Before it opens and after it closed, a tree answers with what to do."""
    tree = open_tree(ScriptedModel(["done"]))
    with pytest.raises(SessionTreeError, match="async with"):
        await tree.main.send("x")
    async with tree:
        main = tree.main
        assert await main.send("x") == "done"
    with pytest.raises(SessionTreeError):
        await main.send("x")
    with pytest.raises(SessionTreeError, match="async with"):
        tree.approvals.pending()
    with pytest.raises(SessionTreeError):
        main.status()


async def test_tree_that_was_closed_is_resumed_and_not_started_again(open_tree: Opener) -> None:
    """Starting is for new trees; the error says how to go on."""
    tree = open_tree(ScriptedModel(["done"]))
    async with tree:
        with pytest.raises(ConfigError, match="open already"):
            await tree.start()
    with pytest.raises(ConfigError, match="resume"):
        await tree.start()
    async with await open_tree.resume(tree.tree_id, ScriptedModel(["back"])) as again:
        assert await again.main.send("x") == "back"
        with pytest.raises(ConfigError, match="summary"):
            await again.finish(None)  # type: ignore[arg-type]


async def test_object_that_is_no_model_is_refused(open_tree: Opener) -> None:
    """A model has ``reply`` or ``complete``."""
    with pytest.raises(ConfigError, match="is not a model"):
        SessionTree(open_tree.workspace, model=object())  # type: ignore[arg-type]
