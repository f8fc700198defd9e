"""What sessions' models are shown of their tools: the schema in the dialect of the model's provider."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AsyncFunctionModel,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    RawTool,
    SchemaWarning,
    ScriptedModel,
    ToolContext,
    ToolResult,
    ValidationError,
)
from sessiontree.contracts.values.messages import AssistantMessage, ToolCall, ToolResultMessage
from sessiontree.models.answers import Answer
from tests.behaviour.tree_fixtures import Opener


class Canvas(RawTool):
    """A tool whose schema most providers refuse as it is."""

    name = "easel"
    description = "Shows something."
    tier = PermissionTier.READ_ONLY

    def __init__(self) -> None:
        self.parameters = {
            "properties": {"node": {"type": "string", "pattern": "^n[0-9]$"}},
            "anyOf": [
                {"properties": {"action": {"const": "show"}}, "required": ["action"]},
                {"properties": {"action": {"const": "hide"}}, "required": ["action"]},
            ],
        }

    async def execute(self, params: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Say what was asked."""
        return ToolResult(params["action"])


class Plain(RawTool):
    """A tool whose schema every provider takes."""

    name = "plain"
    description = "Does nothing."
    tier = PermissionTier.READ_ONLY

    def __init__(self) -> None:
        self.parameters = {"properties": {"node": {"type": "string"}}}

    async def execute(self, params: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Do nothing."""
        return ToolResult("done")


def parameters(request: ModelRequest) -> str:
    """Return the schema of the easel as the session's final message."""
    return json.dumps(next(tool.parameters for tool in request.tools if tool.name == "easel"))


MERGED = {
    "type": "object",
    "properties": {
        "node": {"type": "string", "pattern": "^n[0-9]$"},
        "action": {"enum": ["show", "hide"]},
    },
    "required": ["action"],
}


@pytest.mark.covers("S30")
@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("openai/gpt-5", MERGED),
        ("anthropic:claude-sonnet-5", MERGED),
        (
            "gemini-openapi:gemini-2.0-flash",
            {
                "type": "object",
                "properties": {
                    "node": {"type": "string"},
                    "action": {"type": "string", "enum": ["show", "hide"]},
                },
                "required": ["action"],
            },
        ),
        (
            "scripted",
            {"type": "object", "properties": Canvas().parameters["properties"], **Canvas().parameters},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::sessiontree.SchemaWarning")
async def test_session_s_model_chooses_what_it_is_shown(
    open_tree: Opener, model: str, shown: dict[str, Any]
) -> None:
    """By the name of the tree's model; what it was not shown is still asked of every call."""
    async with open_tree(FunctionModel(parameters, model), tools=[Canvas()]) as tree:
        assert json.loads(await tree.main.send("what is there?")) == shown
        assert (await tree.main.call("easel", {"action": "show", "node": "n1"})).output == "show"
        with pytest.raises(ValidationError, match="node"):
            await tree.main.call("easel", {"action": "show", "node": "m"})
        with pytest.raises(ValidationError):
            await tree.main.call("easel", {"action": "eat"})


@pytest.mark.filterwarnings("ignore::sessiontree.SchemaWarning")
async def test_agent_s_model_goes_before_the_tree_s(open_tree: Opener) -> None:
    """Each session is shown what its own model takes."""
    agents = {"other": AgentSpec(config=AgentConfig(model="openai:gpt-5"))}
    models = {"cheap": FunctionModel(parameters, "openai:gpt-5")}
    tree = open_tree(FunctionModel(parameters, "x"), models=models, tools=[Canvas()], agents=agents)
    async with tree:
        child = await tree.main.spawn("branch", "what is there?", agent="other")
        assert "anyOf" in json.loads(await tree.main.send("what is there?"))
        assert json.loads((await child.result()).summary) == MERGED


@pytest.mark.covers("S25")
async def test_schema_that_providers_refuse_is_warned_of(open_tree: Opener) -> None:
    """Once a tree, with the tool, the place and what to do instead; one without faults is not."""
    with pytest.warns(
        SchemaWarning, match=r"tool 'easel': the root: a union \(anyOf\); use one enum"
    ) as seen:
        open_tree(ScriptedModel(["fine"]), tools=[Canvas()])
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_tree(ScriptedModel(["fine"]), tools=[Plain()])


@pytest.mark.parametrize(
    "model", ["anthropic:claude-sonnet-5", "openai:gpt-5", "gemini:gemini-3", "mistral:large", "x"]
)
async def test_malformed_name_of_a_tool_does_not_break_the_conversation(
    open_tree: Opener, model: str
) -> None:
    """Providers refuse a whole request that shows such a name again; the journal keeps what was said."""
    said = ('checkErrors" />', "   ", "rëad", "x" * 85, "plain")

    async def reply(request: ModelRequest) -> Answer:
        if request.turn == 1:
            return [ToolCall(f"call{at:05}", name, {"node": "n"}) for at, name in enumerate(said)]
        replies = [each for each in request.messages if isinstance(each, AssistantMessage)]
        results = [each.tool_name for each in request.messages if isinstance(each, ToolResultMessage)]
        return json.dumps([[call.name for each in replies for call in each.tool_calls], results])

    async with open_tree(AsyncFunctionModel(reply, model), tools=[Plain()]) as tree:
        calls, results = json.loads(await tree.main.send("go"))
        assert calls == results
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in calls)
        assert len(set(calls)) == len(said)
        assert calls[-1] == "plain"
        kept = [each for each in tree.main.history() if isinstance(each, AssistantMessage)]
        assert tuple(call.name for call in kept[0].tool_calls) == said
