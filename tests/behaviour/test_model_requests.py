"""What a model is asked with: who asks, who should answer, and how."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ModelPiece,
    ModelRequest,
    ModelSettings,
    ProviderForm,
    StreamFunctionModel,
    Usage,
    script_call,
)
from sessiontree.contracts.values.messages import AssistantMessage
from sessiontree.models.answers import Answer
from sessiontree.models.port import Model, Piece
from tests.behaviour.tree_fixtures import Opener

NAMES = ("max_output_tokens", "temperature", "seed", "tool_choice")


def told(request: ModelRequest) -> str:
    """Return who asks, who should answer, and how."""
    return " ".join([request.agent, request.model, *(str(getattr(request.settings, name)) for name in NAMES)])


def after_a_call(request: ModelRequest) -> Answer:
    """Call a tool first, so that a run has two turns."""
    last = request.messages[-1]
    return script_call("session_status") if last.__class__.__name__ == "UserMessage" else told(request)


async def later(request: ModelRequest) -> Answer:
    """The same, as a model that waits."""
    return after_a_call(request)


AGENTS = {
    "default": AgentSpec(
        config=AgentConfig(settings=ModelSettings(max_output_tokens=100, temperature=0.5, seed=1))
    ),
    "cold": AgentSpec(config=AgentConfig(settings=ModelSettings(temperature=0.0))),
}


@pytest.mark.parametrize("waits", [False, True])
async def test_settings_of_agent_session_and_message_reach_the_model(open_tree: Opener, waits: bool) -> None:
    """The narrowest counts, setting by setting; a message's hold for its whole run and no longer."""
    model: Model = AsyncFunctionModel(later, "m") if waits else FunctionModel(after_a_call, "m")
    async with open_tree(model, agents=AGENTS) as tree:
        assert await tree.main.send("go") == "default m 100 0.5 1 None"
        narrow = ModelSettings(temperature=0.1, tool_choice="auto")
        assert await tree.main.send("go", settings=narrow) == "default m 100 0.1 1 auto"
        assert await tree.main.send("go") == "default m 100 0.5 1 None"
        own = ModelSettings(max_output_tokens=7, seed=0)
        (result,) = await tree.main.map("worker", ["go"], agent="cold", settings=own)
        assert result.summary == "cold m 7 0.0 0 None"
        child = await tree.main.spawn("branch", "go", settings=own)
        assert (await child.result()).summary == "default m 7 0.5 0 None"


async def test_settings_that_are_none_are_refused(open_tree: Opener) -> None:
    """Before anything is sent or started."""
    async with open_tree(FunctionModel(told)) as tree:
        with pytest.raises(ConfigError, match=r"settings is .*; give ModelSettings"):
            tree.main.send("go", settings={"temperature": 1})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"settings is .*; give ModelSettings"):
            await tree.main.spawn("worker", "go", settings=1)  # type: ignore[call-overload]


async def replaying(request: ModelRequest) -> AsyncIterator[Piece]:
    """Say what came back of the reply before, and give this one's own form."""
    before = [message for message in request.messages if isinstance(message, AssistantMessage)]
    yield str([message.replay and message.replay.payload for message in before])
    yield ModelPiece("openai:big")
    yield Usage(10, 4, cache_read_tokens=6, reasoning_tokens=3)
    yield ProviderForm(1, "openai", "openai", {"turn": request.turn})


async def test_replay_comes_back_with_the_next_request(open_tree: Opener) -> None:
    """Also after a resume; usage of cache and reasoning is counted, and the reply says who answered."""
    async with open_tree(StreamFunctionModel(replaying)) as tree:
        assert await tree.main.send("go") == "[]"
        assert await tree.main.send("on") == "[{'turn': 1}]"
        (_, first, _, second) = tree.main.history()
        assert isinstance(first, AssistantMessage)
        assert isinstance(second, AssistantMessage)
        assert (first.model, second.replay) == (
            "openai:big",
            ProviderForm(1, "openai", "openai", {"turn": 2}),
        )
        used = tree.main.status().usage
        assert (used.cache_read_tokens, used.reasoning_tokens, used.tokens) == (12, 6, 28)
    resumed = await open_tree.resume(tree.tree_id, StreamFunctionModel(replaying))
    async with resumed:
        assert await resumed.main.send("and?") == "[{'turn': 1}, {'turn': 2}]"
