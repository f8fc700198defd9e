"""The fourteen steps that assemble a session's tools: what each brings, and in which order they are taken."""

from __future__ import annotations

import asyncio
import json

import pytest

from sessiontree import (
    CHANNEL,
    AgentConfig,
    AgentSpec,
    ApplyPatchPolicy,
    CalledTool,
    FunctionModel,
    Hook,
    HookContext,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    QueueChannel,
    SessionTree,
    ToolContext,
    ToolFlag,
    ToolPolicy,
    WebSettings,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.tools.hooks import HookAnswer
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolLists
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, results
from tests.behaviour.job_fakes import steps
from tests.behaviour.tree_fixtures import Opener

STEPS = {
    4: {"read", "write", "edit"},
    5: {"exec"},
    6: {"process"},
    7: {"apply_patch"},
    8: {"message", "dial"},
    9: {
        *("web_search", "web_fetch", "memory_search", "memory_get", "sessions_list", "sessions_history"),
        *("sessions_send", "sessions_spawn", "subagents", "session_status", "browser", "canvas", "message"),
        *("cron", "gateway", "nodes", "agents_list", "image", "tts"),
    },
}
"""Tools that a step adds. Source: seed 001, section 8.1; ``dial`` is a tool of a channel."""
PLATFORM_TOOLS = 19
only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)
EVERYTHING = ToolPolicy(allow=("*",))


@tool(tier=PermissionTier.SYSTEM, capabilities=[CHANNEL])
async def dial(number: str, ctx: ToolContext) -> str:
    """Call a number on the channel.

    Args:
        number: It.
        ctx: The call's context.
    """
    return number


@tool(tier=PermissionTier.WORKSPACE, flags=[ToolFlag.OWNER_ONLY])
def halve(number: int) -> int:
    """Halve a number.

    Args:
        number: It.
    """
    return number // 2


def name_tools(request: ModelRequest) -> str:
    """Return the names of the tools that the model is shown, as JSON."""
    return json.dumps([spec.name for spec in request.tools])


async def shown(tree: SessionTree) -> set[str]:
    """Return the names of the tools that Main's model is shown."""
    return set(json.loads(await tree.main.send("which tools are there?")))


@pytest.mark.covers("S38")
@only_local
async def test_each_step_brings_its_tools(open_tree: Opener) -> None:
    """Steps 4 to 9, all nineteen tools of the platform; channel, web and model decide on some."""
    assert len(STEPS[9]) == PLATFORM_TOOLS
    model = FunctionModel(name_tools, "openai/gpt-5")
    web = WebSettings(search_url="http://127.0.0.1:9/")
    channel = QueueChannel()
    everything = PolicyConfig(tools=EVERYTHING)
    async with open_tree(model, policy=everything, tools=[dial], channel=channel, web=web) as tree:
        held = await shown(tree)
        assert {step: names - held for step, names in STEPS.items()} == {step: set() for step in STEPS}
    async with open_tree(model, policy=everything, tools=[dial], channel=None, web=None) as tree:
        lacking = {"message", "dial", "canvas", "web_search", "web_fetch", "browser"}
        assert set().union(*STEPS.values()) - await shown(tree) == lacking
    others = FunctionModel(name_tools, "anthropic/opus")
    for offered, lacking in (
        (ApplyPatchPolicy(), STEPS[7]),
        (ApplyPatchPolicy(offer="always"), set()),
    ):
        policy = PolicyConfig(tools=EVERYTHING, apply_patch=offered)
        async with open_tree(others, policy=policy, channel=None) as tree:
            assert STEPS[7] - await shown(tree) == lacking


@pytest.mark.covers("S38")
async def test_settings_of_commands_come_before_the_tool(open_tree: Opener) -> None:
    """Step 2: the host, whether it is asked for, and what the owner allows decide before a command runs."""
    allowed = AgentSpec(config=AgentConfig(exec_hosts=frozenset({"host"})))
    outcomes = {}
    for host in ("gateway", "host"):
        for agent in (AgentSpec(), allowed):
            for approvals in ("auto", "never"):
                model = steps(script_call("exec", command="echo ran", host=host), "done")
                async with open_tree(model, agents={"default": agent}, approvals=approvals) as tree:
                    await tree.main.send("go")
                    (result,) = results(tree, "main")
                    outcomes[host, agent is allowed, approvals] = result.text.strip() == "ran"
    assert {key for key, ran in outcomes.items() if ran} == {
        ("gateway", False, "auto"),
        ("gateway", True, "auto"),
        ("host", True, "auto"),
    }


class Watched(Hook):
    """Notes the calls that reach it; one of them does not come back by itself."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.entered = asyncio.Event()

    async def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer:
        self.seen.append(f"{call.tool} {dict(call.params)}")
        if call.params.get("number") == 0:
            self.entered.set()
            await asyncio.Event().wait()
        return None


@pytest.mark.covers("S38")
@only_local
async def test_each_step_sees_what_the_earlier_ones_left(open_tree: Opener) -> None:
    """Owners (10), policy (11), parameters (12), the hook (13), and around them the end of the call (14).

    A call that one of them refuses reaches none of the later ones. The hook sees checked parameters.
    """
    calls: list[Answer] = [
        script_call("write", path="a", content="b"),
        script_call("halve", number="many"),
        script_call("halve", number="8"),
        "done",
    ]
    hook = Watched()
    policy = PolicyConfig(sandbox=ToolLists(deny=("write",)))
    async with open_tree(steps(*calls), tools=[halve], hooks=[hook], policy=policy) as tree:
        await tree.main.send("go")
        assert [each.is_error for each in results(tree, "main")] == [True, True, False]
        assert hook.seen == ["halve {'number': 8}"]
        branch = await tree.main.spawn("branch", "halve it")
        await branch.result()
        assert "owner" in results(tree, branch.session_id)[1].text
        assert hook.seen == ["halve {'number': 8}"]
        call = asyncio.create_task(tree.main.call("halve", {"number": 0}))
        async with asyncio.timeout(PATIENCE_S):
            await hook.entered.wait()
            await tree.main.interrupt()
            await asyncio.wait((call,))
        assert call.exception() is not None
        resolved = [fact.outcome for fact in await facts_of(tree, CallResolved, "main")]
        assert resolved.count("ok") == 1, "the hook ended with its call, and the tool did not run"
