"""What a model is offered where its agent wants programs: ``program`` and a search; rights stay the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    SessionKind,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import CallResolved
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, results
from tests.behaviour.tree_fixtures import Opener

CODING = PolicyConfig(tools=ToolPolicy(profile="coding"))
BY_PROGRAM = {"default": AgentSpec(tools_offered="program")}
MEANS = ["program", "tool_search"]
OF_WORKERS = {"read", "find", "web_fetch", "memory_search", "memory_get", "session_status", "weather"}


def replying(*replies: Any) -> FunctionModel:
    """Return a model that replies so, one after the other, and then says what it is offered and got."""

    def reply(request: ModelRequest) -> Any:
        at = len(request.messages) // 2
        if at < len(replies):
            return replies[at]
        described = {spec.name: spec.description for spec in request.tools}
        size = len(json.dumps([asdict(spec) for spec in request.tools]))
        last = request.messages[-1].text
        return json.dumps({"offered": described, "prompt": request.system_prompt, "size": size, "last": last})

    return FunctionModel(reply)


@pytest.mark.on_ray
async def test_model_is_offered_programs_and_a_search(open_tree: Opener) -> None:
    """What the search finds, a program may call; the list of tools takes a fifth of the characters."""
    (open_tree.workspace / "a.txt").write_text("one\n")
    async with open_tree(replying(), policy=CODING) as tree:
        everything = json.loads(await tree.main.send("go"))
    assert set(everything["offered"]) > {"program", "read", "exec"}
    assert "tool_search" not in everything["offered"]
    model = replying(
        script_call("tool_search", query="read a file"),
        script_call("program", code="await read(path='a.txt')"),
    )
    async with open_tree(model, policy=CODING, agents=BY_PROGRAM) as tree:
        said = json.loads(await tree.main.send("go"))
        found = json.loads(results(tree, "main")[0].text)
    assert said["last"] == "one\n"
    assert list(said["offered"]) == MEANS
    assert f"Your tools: {', '.join(MEANS)}." in said["prompt"]
    assert "find them with tool_search" in said["offered"]["program"]
    assert said["size"] * 5 < everything["size"]
    assert found["tools"][0] == {
        "name": "read",
        "signature": "read(path, offset: int=, limit: int=)",
        "description": everything["offered"]["read"],
    }


async def test_tool_that_is_not_offered_is_called_as_any_other(open_tree: Opener) -> None:
    """Directly, without a program: what the session holds runs by its tier, and what it lacks is denied."""
    policy = PolicyConfig(tools=ToolPolicy(deny=("exec",)))
    model = replying(
        [
            script_call("append", text="held"),
            script_call("launch", text="rocket"),
            script_call("exec", command="true"),
        ],
    )
    async with open_tree(model, policy=policy, agents=BY_PROGRAM, tools=TOOLS) as tree:
        said = tree.main.send("go")
        (pending,) = await asked(tree)
        await pending.deny(reason="not today")
        await said
        outcomes = {fact.key: fact.outcome for fact in await facts_of(tree, CallResolved)}
        assert outcomes == {"1.0": "ok", "1.1": "denied", "1.2": "denied"}
        assert [text for _, text in effects(open_tree.workspace)] == ["held"]


async def test_search_finds_no_tool_that_the_session_lacks(open_tree: Opener) -> None:
    """Not for a Worker, not what a list removes; the tools of the program are found, too."""

    @tool(tier=PermissionTier.READ_ONLY, kinds=list(SessionKind))
    def weather(city: str) -> str:
        """Forecast the weather of a city."""
        return f"rain in {city}"

    policy = PolicyConfig(tools=ToolPolicy(deny=("grep",)))
    wanted = "write run read search weather start child"

    def reply(request: ModelRequest) -> Any:
        if request.session_id == "main":
            return "main is done"
        if len(request.messages) == 1:
            return script_call("tool_search", query=wanted, limit=50)
        return request.messages[-1].text

    async with open_tree(FunctionModel(reply), policy=policy, agents=BY_PROGRAM, tools=[weather]) as tree:
        worker = await tree.main.spawn("worker", "look")
        text = (await worker.result()).summary
        assert {each["name"] for each in json.loads(text)["tools"]} <= OF_WORKERS
        assert "weather(city)" in text
        mains = json.loads((await tree.main.call("tool_search", {"query": wanted, "limit": 50})).text)
        names = {each["name"] for each in mains["tools"]}
        assert {"write", "exec", "sessions_spawn", "weather"} <= names
        assert not {"grep", "program", "tool_search"} & names
        few = json.loads((await tree.main.call("tool_search", {"query": wanted, "limit": 1})).text)
        assert (len(few["tools"]), few["more"]) == (1, len(mains["tools"]) - 1)
        assert "search with others" in (await tree.main.call("tool_search", {"query": "zzz"})).text


def test_list_of_tools_without_the_means_is_refused() -> None:
    """The error says which names to add."""
    with pytest.raises(ConfigError, match="'program' and 'tool_search' in tools"):
        AgentSpec(tools=["read"], tools_offered="program")
    assert AgentSpec(tools=["read", *MEANS], tools_offered="program").config.tools_offered == "program"
