"""System calls: run by default, asked about or refused where an agent says so, never laxer below."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ConfigError,
    PermissionDenied,
    PolicyConfig,
    PolicyWarning,
    QueueChannel,
    Rule,
    ScriptedModel,
    ToolPolicy,
    script_call,
)
from sessiontree.contracts.kinds import SystemAnswer
from tests.behaviour.fact_fixtures import PATIENCE_S, results
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Late

MODEL = ScriptedModel(["fine"])


def agents(**answers: SystemAnswer) -> dict[str, AgentSpec]:
    """Return agents by name, each with its answer to System calls."""
    return {name: AgentSpec(config=AgentConfig(system_tier=answer)) for name, answer in answers.items()}


@pytest.mark.covers("A11")
async def test_system_call_runs_by_default(open_tree: Opener) -> None:
    """Nobody is asked, and the words arrive."""
    channel = QueueChannel()
    async with open_tree(MODEL, channel=channel) as tree:
        await tree.main.call("message", {"text": "hello"})
        assert await channel.messages.get() == "hello"


async def test_system_call_is_refused_where_the_agent_says_deny(open_tree: Opener) -> None:
    """The refusal names agent and tier, and nobody is asked."""
    async with open_tree(MODEL, agents=agents(default="deny")) as tree:
        with pytest.raises(PermissionDenied, match="no System calls"):
            await tree.main.call("message", {"text": "hello"})
        assert tree.approvals.pending() == []


@pytest.mark.covers("A12")
@pytest.mark.on_ray
async def test_system_call_is_asked_about_where_the_agent_says_ask(open_tree: Opener) -> None:
    """The person's no is the call's end."""
    asked: list[str] = []

    def approver(request: object) -> bool:
        asked.append(str(request))
        return False

    async with open_tree(MODEL, agents=agents(default="ask"), approver=approver) as tree:
        with pytest.raises(PermissionDenied, match="denied"):
            await tree.main.call("message", {"text": "hello"})
    assert len(asked) == 1


async def test_child_of_a_laxer_agent_is_held_to_what_its_parent_may(
    open_tree: Opener, board: Switchboard
) -> None:
    """Rights only shrink on the way down: a lax agent below a strict one stays strict."""
    model = Late(board, lambda request: "fine")
    async with (
        asyncio.timeout(PATIENCE_S),
        open_tree(model, agents=agents(default="deny", lax="allow")) as tree,
    ):
        branch = await tree.main.spawn("branch", "go on", agent="lax")
        above = "for agent 'default', the agent of session 'main' above it"
        with pytest.raises(PermissionDenied, match=f"no System calls: system_tier is 'deny' {above}"):
            await branch.call("message", {"text": "hello"})


@pytest.mark.covers("A12")
@pytest.mark.parametrize("said", ["ask", "deny"])
async def test_channel_holds_its_trees_to_what_it_says(open_tree: Opener, said: SystemAnswer) -> None:
    """A lax agent is no way around it, for Main and those below, also where the tree is taken up again."""
    channel = QueueChannel(system_tier=said)
    async with open_tree(MODEL, agents=agents(default="allow"), channel=channel) as tree:
        assert tree.main.status().system_tier == said
    tree = await open_tree.resume(tree.tree_id, MODEL, agents=agents(default="allow"), channel=QueueChannel())
    async with tree:
        branch = await tree.main.spawn("branch", "go on")
        assert branch.status().system_tier == said
        if said == "deny":
            with pytest.raises(PermissionDenied, match="no System calls"):
                await tree.main.call("message", {"text": "hello"})


@pytest.mark.covers("A12")
@pytest.mark.parametrize("variant", ["local"])
@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"channel": "deny"}, "in Main's channel"),
        ({"channel": "deny", "agents": agents(default="ask")}, "in Main's channel"),
        (
            {"channel": "deny", "policy": PolicyConfig(system_tier="deny")},
            "in Main's channel and in the tree's policy",
        ),
        ({"policy": PolicyConfig(system_tier="deny"), "approvals": "smart"}, "in the tree's policy"),
        (
            {"policy": PolicyConfig(system_tier_by_group={"family": "deny"}), "group": "family"},
            "in the tree's policy for group 'family'",
        ),
        (
            {"policy": PolicyConfig(system_tier_by_agent={"default": "deny"})},
            "in the tree's policy for agent 'default'",
        ),
        (
            {"agents": agents(default="deny"), "policy": PolicyConfig(system_tier="ask")},
            "for agent 'default'",
        ),
    ],
)
async def test_refusal_names_the_setting_that_makes_it(
    open_tree: Opener, options: dict[str, Any], place: str
) -> None:
    """Channel, policy or agent: whichever says ``deny``, and no other."""
    said = {**options, "channel": QueueChannel(system_tier=options.get("channel", "allow"))}
    async with open_tree(MODEL, **said) as tree:
        with pytest.raises(PermissionDenied) as refused:
            await tree.main.call("message", {"text": "hello"})
    assert refused.value.reason.endswith(f"may make no System calls: system_tier is 'deny' {place}")


@pytest.mark.parametrize("variant", ["local"])
async def test_refusal_by_the_mode_names_the_mode(open_tree: Opener) -> None:
    """No setting says ``deny``: the mode that is named refuses what it makes a question."""
    async with open_tree(MODEL, approvals="never") as tree:
        with pytest.raises(PermissionDenied, match="the tree's approval mode is 'never'"):
            await tree.main.call("message", {"text": "hello"})


async def test_what_a_channel_says_of_system_calls_is_one_of_three_words(open_tree: Opener) -> None:
    """Anything else is a mistake of the program's, reported before a tree is made."""
    with pytest.raises(ConfigError, match="system_tier 'maybe' is not one of allow, ask, deny"):
        open_tree(MODEL, channel=QueueChannel(system_tier="maybe"))  # type: ignore[arg-type]


@pytest.mark.covers("A12")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"systemTier": "deny"}, "deny"),
        ({"systemTierByAgent": {"default": "deny"}}, "deny"),
        ({"systemTierByGroup": {"family": "deny"}}, "deny"),
        ({"systemTier": "ask", "systemTierByAgent": {"default": "allow"}}, "ask"),
        ({"systemTierByGroup": {"strangers": "deny"}}, "allow"),
    ],
    ids=["everywhere", "agent", "group", "strictest", "others"],
)
async def test_policy_file_says_what_becomes_of_system_calls(
    open_tree: Opener, tmp_path: Path, said: dict[str, Any], answer: str
) -> None:
    """For all, for an agent, for the group of a channel; the strictest counts."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(said))
    channel = QueueChannel()
    rules = [Rule(tool="message", answer="deny")]
    async with open_tree(MODEL, channel=channel, policy=policy, group="family", approver=rules) as tree:
        if answer == "allow":
            await tree.main.call("message", {"text": "hello"})
            assert await channel.messages.get() == "hello"
        else:
            with pytest.raises(PermissionDenied, match="no System calls" if answer == "deny" else "denied"):
                await tree.main.call("message", {"text": "hello"})
        assert tree.main.status().system_tier == answer


async def test_answer_that_is_none_is_refused(open_tree: Opener, tmp_path: Path) -> None:
    """With the member's name."""
    policy = tmp_path / "policy.json"
    policy.write_text('{"systemTierByAgent": {"default": "maybe"}}')
    with pytest.raises(ConfigError, match=r"systemTierByAgent|system_tier_by_agent"):
        open_tree(MODEL, policy=policy)


async def test_agent_there_is_not_is_told(open_tree: Opener) -> None:
    """A restriction that a typo would lift is a warning with the nearest name, an error where asked for."""
    policy = PolicyConfig(system_tier_by_agent={"defualt": "deny"})
    with pytest.warns(PolicyWarning, match=r"no agent of that name; did you mean 'default'"):
        open_tree(MODEL, policy=policy)
    with pytest.raises(ConfigError, match="defualt"):
        open_tree(MODEL, policy=policy.model_copy(update={"strict": True}))


@pytest.mark.covers("I31")
@pytest.mark.parametrize("variant", ["local"])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"policy": PolicyConfig(tools=ToolPolicy(deny=("exec",)))}, "does not hold exec"),
        ({"agents": {"default": AgentSpec(system_tier="deny")}}, "may make no System calls"),
        (
            {"agents": {"default": AgentSpec(system_tier="ask")}, "approvals": "never"},
            "the tree's approval mode is 'never'",
        ),
        ({"agents": {"default": AgentSpec(exec_security="safe-bin")}}, "exec security is 'safe-bin'"),
    ],
)
async def test_what_a_policy_refuses_is_blocked_and_a_mistake_is_an_error(
    open_tree: Opener, options: dict[str, Any], why: str
) -> None:
    """The model reads ``blocked``, the reason and the tier; a wrong path is still an error."""
    model = ScriptedModel([script_call("exec", command="touch a"), script_call("read", path="../b"), "done"])
    async with open_tree(model, **options) as tree:
        await tree.main.send("go")
        blocked, failed = results(tree, "main")
    envelope = json.loads(blocked.text)
    assert envelope.keys() == {"status", "tool", "reason", "tier"}
    assert (envelope["status"], envelope["tool"], envelope["tier"]) == ("blocked", "exec", "System")
    assert why in envelope["reason"]
    assert json.loads(failed.text)["status"] == "error"
