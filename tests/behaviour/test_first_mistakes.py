"""What everybody writes wrongly at first: refused at once, with what to write instead."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AsyncFunctionModel,
    ConfigError,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    PolicyWarning,
    ScriptedModel,
    SessionError,
    SessionKind,
    SessionStatus,
    SessionTree,
    StreamFunctionModel,
    Timeout,
    Tool,
    ToolContext,
    ToolResult,
    TreeNotFound,
    script_call,
    sync,
    tool,
)
from sessiontree.api.runtime.runtime import Runtime
from tests.behaviour.effect_fakes import TOOLS, Look, Words
from tests.behaviour.tree_fixtures import Opener

MODEL = ScriptedModel(["done"])


def plain(text: str) -> str:
    """Return the text."""
    return text


async def waiting(request: ModelRequest) -> str:
    """Reply later."""
    return "later"


async def in_pieces(request: ModelRequest) -> AsyncIterator[str]:
    """Reply in pieces."""
    yield "piece"


class Caller:
    """An object with an ``async def __call__``."""

    async def __call__(self, request: ModelRequest) -> str:
        return "called"


class NeedsBoth(Tool[Words]):
    """A tool that is well written."""

    name = "needs_both"
    description = "Do it."
    Params: ClassVar[type[BaseModel]] = Words

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        return ToolResult()


WRONG_TOOLS: dict[str, tuple[Any, str]] = {
    "a function": ([plain], "plain is a function; write @tool above it .*, or give tool\\(plain\\)"),
    "a class": ([NeedsBoth], "NeedsBoth is a class; give an instance of it: NeedsBoth\\(\\)"),
    "a name": (["read"], "'read' is a name; give the tool itself"),
    "something else": ([3], "3 is not a tool; give a function with @tool above it"),
    "one tool": (Look(), "give a list of tools, such as tools=\\[my_tool\\]"),
    "nothing": (None, "give a list of tools"),
}


@pytest.mark.parametrize("name", WRONG_TOOLS)
def test_what_is_no_tool_says_what_to_give(tmp_path: Path, name: str) -> None:
    """A function, a class and a name each come with their fix."""
    given, words = WRONG_TOOLS[name]
    with pytest.raises(ConfigError, match=words):
        SessionTree(tmp_path, model=MODEL, tools=given)


WRONG_MODELS: dict[str, tuple[Any, str]] = {
    "a name without a provider": ("gpt-4o", "model 'gpt-4o': write provider:model"),
    "a name of nobody": ("opnai:gpt-4o", "the providers are .*openai.*did you mean 'openai'"),
    "a lambda": (lambda request: "hi", "is a function; wrap it: FunctionModel\\(f\\)"),
    "a coroutine function": (waiting, "wrap it: AsyncFunctionModel\\(f\\)"),
    "a generator function": (in_pieces, "wrap it: StreamFunctionModel\\(f\\)"),
    "a class": (ScriptedModel, "ScriptedModel is a class; give an instance of it"),
    "something else": (3, "none of the methods reply \\(in-process\\), complete and stream \\(remote\\)"),
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_what_is_no_model_says_what_to_give(tmp_path: Path, name: str) -> None:
    """The error names the wrapper for every sort of function."""
    given, words = WRONG_MODELS[name]
    with pytest.raises(ConfigError, match=words):
        SessionTree(tmp_path, model=given)


WRAPPED_WRONGLY: list[tuple[Callable[..., object], Any, str]] = [
    (AsyncFunctionModel, lambda request: "hi", "use FunctionModel"),
    (AsyncFunctionModel, in_pieces, "use StreamFunctionModel"),
    (AsyncFunctionModel, "f", "takes an `async def` function, not 'f'"),
    (FunctionModel, waiting, "use AsyncFunctionModel"),
    (FunctionModel, partial(waiting), "use AsyncFunctionModel"),
    (FunctionModel, Caller(), "use AsyncFunctionModel"),
    (FunctionModel, in_pieces, "use StreamFunctionModel"),
    (FunctionModel, "f", "takes a function that returns an answer, not 'f'"),
    (StreamFunctionModel, "f", "takes a function that yields pieces"),
]


@pytest.mark.parametrize(("wrapper", "function", "words"), WRAPPED_WRONGLY)
def test_function_in_the_wrong_wrapper_is_refused_at_once(
    wrapper: Callable[..., object], function: Any, words: str
) -> None:
    """Not with the first turn."""
    with pytest.raises(ConfigError, match=words):
        wrapper(function)


@pytest.mark.parametrize("function", [waiting, partial(waiting), Caller(), Caller().__call__])
def test_whatever_is_an_async_def_waits(function: Any) -> None:
    """Partial functions, objects and methods too."""
    AsyncFunctionModel(function)


def test_agents_name_tools_there_are(tmp_path: Path) -> None:
    """An unknown name would leave the agent without the tool, and nobody would know."""
    opened = partial(SessionTree, tmp_path, model=MODEL)
    with pytest.raises(ConfigError, match=r"agent 'default': no tool is named 'raed'; did you mean 'read'\?"):
        opened(agents={"default": AgentSpec(tools=("raed",))})
    with pytest.raises(ConfigError, match=r"agent 'reader': no tool is named 'lok'; did you mean 'look'\?"):
        opened(tools=[Look()], agents={"reader": AgentSpec(tools=("read", "lok"))})
    with pytest.raises(ConfigError, match=r"agent 'default': no tool is named 'raed'; did you mean 'read'\?"):
        opened(agents={"default": AgentSpec(config=AgentConfig(tool_timeouts={"raed": 5}))})
    opened(agents={"default": AgentSpec(tools=("read",))})
    opened(agents={"default": AgentSpec(tools=())})


@tool(tier=PermissionTier.READ_ONLY, kinds=[SessionKind.WORKER])
def for_workers() -> str:
    """Look."""
    return "seen"


def test_tool_that_reaches_nobody_is_warned_of(tmp_path: Path) -> None:
    """RGT2: what Main does not hold, nobody below it does."""
    with pytest.warns(PolicyWarning, match="'for_workers' is for worker alone and reaches nobody"):
        SessionTree(tmp_path, model=MODEL, tools=[for_workers])


def test_misspelt_entry_of_a_policy_names_the_nearest(tmp_path: Path) -> None:
    """The same function serves the owner's lists."""
    policy = tmp_path / "policy.json"
    policy.write_text('{"tools": {"deny": ["exce"]}}')
    with pytest.warns(PolicyWarning, match=r"'exce' does not name a tool; did you mean 'exec'\?"):
        SessionTree(tmp_path, model=MODEL, policy=policy)


async def test_living_main_has_no_result_to_wait_for(open_tree: Opener) -> None:
    """It would wait for ever; what ended has a result, and what is being ended soon has one."""
    async with open_tree(MODEL) as tree:
        with pytest.raises(SessionError, match=r"main never completes by itself.*tree\.finish"):
            await tree.main.result()
        assert await tree.main.send("go") == "done"
        with pytest.raises(SessionError):
            await tree.main.result()
        await tree.finish("over")
        assert (await tree.main.result()).status is SessionStatus.COMPLETED


async def test_kinds_are_named_with_the_nearest(open_tree: Opener) -> None:
    """Main can't be spawned and is not offered."""
    async with open_tree(MODEL) as tree:
        with pytest.raises(
            ConfigError, match=r"kind 'Worker ' can't be spawned; give 'branch' or 'worker'; did you mean 'w"
        ):
            await tree.main.spawn("Worker ", "look")  # type: ignore[call-overload]
        with pytest.raises(
            ConfigError, match="mode 'stear' is not one of follow_up, steer; did you mean 'steer'"
        ):
            tree.main.send("x", "stear")  # type: ignore[arg-type]


async def test_for_and_with_say_what_to_write(open_tree: Opener) -> None:
    """Who forgets ``async`` is informed, as is who writes it where it does not belong."""
    async with open_tree(MODEL) as tree:
        reply = tree.main.send("go")
        with pytest.raises(ConfigError, match="async for piece in"):
            for _ in reply:
                pass
        assert await reply == "done"
    with pytest.raises(ConfigError, match="async with SessionTree"), open_tree(MODEL):
        pass
    twin = sync.SessionTree(open_tree.workspace, model=MODEL, state_dir=open_tree.state_dir / "twin")
    with pytest.raises(ConfigError, match="write `with SessionTree"):
        async with twin:
            pass


async def test_tree_that_is_not_there_says_how_to_list_those_that_are(open_tree: Opener) -> None:
    """What the error names exists."""
    async with open_tree(MODEL):
        pass
    with pytest.raises(TreeNotFound, match=r"no tree 'tnone'; list those it holds: sessiontree tree --list"):
        await open_tree.resume("tnone", MODEL)


GIVES: dict[str, tuple[Callable[[], object], str]] = {
    "a lock": (threading.Lock, "gives returned a _thread.lock, which has no JSON form"),
    "an object inside": (lambda: {"rows": [1, object()]}, "a object at /rows/1, which has no JSON form"),
    "a generator": (lambda: (number for number in range(3)), "a generator, which has no JSON form"),
}


@pytest.mark.parametrize("name", GIVES)
async def test_tool_that_returns_what_is_no_json_says_so(open_tree: Opener, name: str) -> None:
    """A model would read the object's address otherwise."""
    made, words = GIVES[name]

    @tool(tier=PermissionTier.READ_ONLY)
    def gives() -> object:
        """Give."""
        return made()

    async with open_tree(ScriptedModel([script_call("gives"), "went on"]), tools=[gives]) as tree:
        assert await tree.main.send("go") == "went on"
        with pytest.raises(ExecutionError, match=words):
            await tree.main.call("gives")


async def test_what_has_an_obvious_text_is_json(open_tree: Opener) -> None:
    """Paths, days, kinds and sets are no strangers."""

    @tool(tier=PermissionTier.READ_ONLY)
    def gives() -> object:
        """Give."""
        return {"path": Path("a/b"), "day": date(2026, 1, 2), "kind": SessionKind.MAIN, "set": {2, 1}}

    async with open_tree(MODEL, tools=[gives]) as tree:
        reply = await tree.main.call("gives")
        assert reply.output == {"path": "a/b", "day": "2026-01-02", "kind": "main", "set": [1, 2]}


async def test_timeout_names_its_tool(open_tree: Opener) -> None:
    """Several tools may run at once."""

    @tool(tier=PermissionTier.READ_ONLY, timeout_s=0.03)
    async def dawdle() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    async with open_tree(MODEL, tools=[dawdle]) as tree:
        with pytest.raises(Timeout, match="dawdle timed out after") as caught:
            await tree.main.call("dawdle")
        assert caught.value.tool == "dawdle"


def slow_model(name: str, seconds: Iterable[float]) -> FunctionModel:
    """Return a model that blocks so long."""

    def reply(request: ModelRequest) -> str:
        for each in seconds:
            threading.Event().wait(each)
        return "at last"

    return FunctionModel(reply, name)


@pytest.mark.slow
async def test_model_that_blocks_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On the local backend it holds up everybody: three Workers run one after another."""
    caplog.set_level(logging.WARNING, "sessiontree")
    async with Runtime(tmp_path / "state", backend="local") as runtime:
        async with SessionTree(
            tmp_path, model=slow_model("molasses", [0.3]), tools=TOOLS, runtime=runtime
        ) as tree:
            await tree.main.map("worker", ["a", "b"])
        async with SessionTree(tmp_path, model=slow_model("quick", []), runtime=runtime) as tree:
            await tree.main.send("go")
    told = [record.getMessage() for record in caplog.records if record.name == "sessiontree"]
    assert len(told) == 1
    assert "model 'molasses'" in told[0] and "AsyncFunctionModel(f)" in told[0]
