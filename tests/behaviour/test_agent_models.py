"""Each agent has its own model: it answers, and status, journal, dialect and policy go by its name."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PolicyConfig,
    ScriptedModel,
    StreamFunctionModel,
)
from sessiontree.contracts.facts.session_facts import ModelChanged, Opened
from sessiontree.models.answers import Answer
from sessiontree.models.port import Model
from tests.behaviour.effect_fakes import TOOLS
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

DEAR, CHEAP = "anthropic:large", "openai:small"
AGENTS = {
    "cheap": AgentSpec(config=AgentConfig(model="cheap")),
    "named": AgentSpec(config=AgentConfig(model=CHEAP)),
}


class Answering:
    """Says who it is, whom it was asked as, and by whom; with the tools it was shown."""

    def __init__(self, own: str) -> None:
        self.own = own

    def __call__(self, request: ModelRequest) -> Answer:
        """Answer at once."""
        tools = " ".join(tool.name for tool in request.tools)
        return f"{self.own} as {request.model} for {request.agent}: {tools}"

    async def later(self, request: ModelRequest) -> Answer:
        """Answer by way of the gateway."""
        return self(request)


def model_of(name: str, *, waits: bool) -> Model:
    """Return a model of either sort that says its name."""
    said = Answering(name)
    return AsyncFunctionModel(said.later, name) if waits else FunctionModel(said, name)


@pytest.mark.covers("A21")
@pytest.mark.parametrize(
    ("dear_waits", "cheap_waits"), [(False, False), (False, True), (True, False), (True, True)]
)
async def test_agents_model_answers_for_its_sessions(
    open_tree: Opener, dear_waits: bool, cheap_waits: bool
) -> None:
    """Instant ones next to those that wait; an agent names its model by either name."""
    dear, cheap = model_of(DEAR, waits=dear_waits), model_of(CHEAP, waits=cheap_waits)
    async with open_tree(dear, models={"cheap": cheap}, agents=AGENTS, builtin_tools=False) as tree:
        said = [await tree.main.send("who?")]
        for agent in ("cheap", "named", "default"):
            child = await tree.main.spawn("branch", "who?", agent=agent)
            assert child.status().model == (DEAR if agent == "default" else CHEAP)
            said.append((await child.result()).summary)
            (opened,) = await facts_of(tree, Opened, child.session_id)
            assert opened.model == (DEAR if agent == "default" else CHEAP)
        assert tree.main.status().model == DEAR
    assert said == [
        f"{DEAR} as {DEAR} for default: ",
        f"{CHEAP} as {CHEAP} for cheap: ",
        f"{CHEAP} as {CHEAP} for named: ",
        f"{DEAR} as {DEAR} for default: ",
    ]


async def test_policy_by_provider_goes_by_the_model_that_answers(open_tree: Opener) -> None:
    """A list for OpenAI's models takes nothing from a session that Anthropic's answers, and the reverse."""
    policy = PolicyConfig.model_validate({"tools": {"byProvider": {"openai": {"deny": ["append"]}}}})
    tree = open_tree(
        model_of(DEAR, waits=False),
        models={"cheap": model_of(CHEAP, waits=True)},
        agents=AGENTS,
        policy=policy,
        tools=TOOLS,
        builtin_tools=False,
    )
    async with tree:
        assert "append" in await tree.main.send("what?")
        child = await tree.main.spawn("branch", "what?", agent="cheap")
        assert "append" not in (await child.result()).summary


async def test_model_of_a_resumed_tree_is_the_one_given_again(open_tree: Opener) -> None:
    """The journal says from when on another one answers; once, and not where it is the same."""
    async with open_tree(model_of(DEAR, waits=False), agents=None) as tree:
        await tree.main.send("who?")
    async with await open_tree.resume(tree.tree_id, model_of(CHEAP, waits=False)) as again:
        assert (await again.main.send("who?")).startswith(f"{CHEAP} as {CHEAP}")
        assert again.main.status().model == CHEAP
        await again.main.send("still?")
        assert [fact.model for fact in await facts_of(again, ModelChanged)] == [CHEAP]
    async with await open_tree.resume(tree.tree_id, model_of(CHEAP, waits=True)) as third:
        await third.main.send("who?")
        assert len(await facts_of(third, ModelChanged)) == 1


async def _pieces(request: ModelRequest) -> Any:
    yield "x"


@pytest.mark.parametrize(
    ("models", "wanted", "words"),
    [
        (
            None,
            "openai/gpt-5-mini",
            "agent 'other': no model is called 'openai/gpt-5-mini'; choose one of: scripted",
        ),
        ({"openai:gpt-5": ScriptedModel(["x"])}, "openai:gpt5", "did you mean 'openai:gpt-5'"),
        ({"cheap": _pieces}, "cheap", r"models\['cheap'\]: .* wrap it: StreamFunctionModel"),
        ({"cheap": StreamFunctionModel}, "cheap", r"models\['cheap'\]: StreamFunctionModel is a class"),
        ([ScriptedModel(["x"])], "", "models: give models by name"),
    ],
)
async def test_model_that_is_not_there_is_refused_at_opening(
    open_tree: Opener, models: Any, wanted: str, words: str
) -> None:
    """The error names the agent, the name and the nearest one; nothing was started."""
    agents = {"other": AgentSpec(config=AgentConfig(model=wanted))}
    with pytest.raises(ConfigError, match=words):
        open_tree(ScriptedModel(["x"]), models=models, agents=agents)
