"""An owner's policy in a tree: what it removes is neither shown nor run, here, below and after resuming."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    PolicyConfig,
    PolicyWarning,
    QueueChannel,
    ScriptedModel,
    SessionKind,
    ToolFlag,
    ToolPolicy,
    tool,
)
from sessiontree.policy.settings import ProfiledTools, ToolLists
from sessiontree.testing.force import force_register
from tests.behaviour.fact_fixtures import PATIENCE_S
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Late

OWNERS_ALONE = r"Tool restricted to owner senders\."


def shown(request: ModelRequest) -> str:
    """Return the names of the tools a session is shown, as its final message."""
    return json.dumps([tool.name for tool in request.tools])


NAMING = FunctionModel(shown, "openai/gpt-5")
FINE = ScriptedModel(["fine"])


def fine(request: ModelRequest) -> str:
    """Say that all is well."""
    return "fine"


@tool(tier=PermissionTier.WORKSPACE, flags=[ToolFlag.OWNER_ONLY])
def ledger() -> str:
    """Open the ledger."""
    return "open"


@tool(tier=PermissionTier.WORKSPACE)
def link() -> str:
    """Link a device."""
    return "linked"


class LinkedChannel(QueueChannel):
    """A channel with a tool of its own."""

    tools = (link,)


@pytest.mark.covers("REL-L54", "REL-L59")
async def test_denied_tool_is_not_shown_and_not_run_by_any_name(open_tree: Opener) -> None:
    """The refusal names the step, the list and its entry."""
    policy = PolicyConfig(tools=ToolPolicy(deny=("Shell",)))
    async with open_tree(NAMING, policy=policy) as tree:
        names = json.loads(await tree.main.send("what is there?"))
        assert "exec" not in names
        assert "read" in names
        for spelling in ("exec", "Bash", "SHELL", "ｅｘｅｃ", "exec."):
            with pytest.raises(PermissionDenied, match=r"does not hold exec \(tools\.allow: .*'Shell'\)"):
                await tree.main.call(spelling, {"command": "true"})


@pytest.mark.covers("U16")
async def test_child_holds_no_more_than_its_parent_s_policy_left(
    open_tree: Opener, board: Switchboard
) -> None:
    """A laxer agent below a stricter one, and a Branch below a Branch, stay within what was left above."""
    policy = PolicyConfig(
        agents={"strict": ToolPolicy(profile="minimal", also_allow=("read", "sessions_spawn"))}
    )
    agents = {"default": AgentSpec(), "strict": AgentSpec(), "lax": AgentSpec()}
    naming = Late(board, shown)
    async with open_tree(naming, policy=policy, agents=agents) as tree:
        strict = await tree.main.spawn("branch", "look", agent="strict")
        lax = await strict.spawn("branch", "look", agent="lax")
        worker = await lax.spawn("worker", "look", agent="lax")
        free = await tree.main.spawn("branch", "look", agent="lax")
        naming.let_go.set()
        assert json.loads((await strict.result()).summary) == ["read", "session_status", "sessions_spawn"]
        assert json.loads((await lax.result()).summary) == ["read", "session_status", "sessions_spawn"]
        assert json.loads((await worker.result()).summary) == ["read", "session_status"]
        assert "write" in json.loads((await free.result()).summary)


async def test_lists_for_children_models_and_groups_bind_those_alone(open_tree: Opener) -> None:
    """Main keeps what children lose; the model's provider and the group count for the whole tree."""
    policy = PolicyConfig(
        tools=ToolPolicy(
            by_provider={"openai": ProfiledTools(deny=("edit",)), "other": ProfiledTools(allow=())}
        ),
        groups={"family": ToolLists(deny=("find",)), "club": ToolLists(allow=())},
        subagents=ToolLists(deny=("write",)),
    )
    async with open_tree(NAMING, policy=policy, group="family") as tree:
        branch = await tree.main.spawn("branch", "look")
        mine = set(json.loads(await tree.main.send("what is there?")))
        below = set(json.loads((await branch.result()).summary))
    assert {"write", "read", "grep"} <= mine
    assert mine.isdisjoint({"edit", "find"})
    assert mine - below == {"write"}
    async with open_tree(NAMING, policy=policy) as tree:
        assert "find" in json.loads(await tree.main.send("what is there?"))


@pytest.mark.covers("POL5")
async def test_resumed_tree_is_under_the_policy_it_was_made_with(open_tree: Opener) -> None:
    """Nothing comes back, also for a model the tree did not have then; a slip that is one now is no error."""
    policy = PolicyConfig(
        tools=ToolPolicy(deny=("exec", "link"), by_provider={"mistral": ProfiledTools(deny=("write",))}),
        strict=True,
    )
    async with open_tree(NAMING, policy=policy, tools=(link,)) as tree:
        assert "write" in json.loads(await tree.main.send("what is there?"))
    tree = await open_tree.resume(tree.tree_id, FunctionModel(shown, "mistral:large"))
    async with tree:
        names = json.loads(await tree.main.send("and now?"))
        assert "read" in names
        assert {"exec", "write"}.isdisjoint(names)
        with pytest.raises(PermissionDenied, match=r"does not hold exec \(tools\.allow"):
            await tree.main.call("exec", {"command": "true"})


@pytest.mark.covers("I34")
async def test_tool_of_owners_is_mains_and_refused_below(open_tree: Opener, board: Switchboard) -> None:
    """The creating program calls it at Main; a child does not hold it, whoever calls."""
    async with open_tree(Late(board, fine), tools=(ledger,)) as tree, asyncio.timeout(PATIENCE_S):
        assert (await tree.main.call("ledger", {})).output == "open"
        branch = await tree.main.spawn("branch", "look")
        with pytest.raises(PermissionDenied, match=OWNERS_ALONE):
            await branch.call("ledger", {})


@pytest.mark.covers("S37", "I34")
async def test_tool_of_owners_is_refused_where_it_is_forced(open_tree: Opener, board: Switchboard) -> None:
    """Removed *and* refused: what forces it on a Branch does not get it run."""
    tree = open_tree(Late(board, fine), tools=(ledger,))
    force_register(tree, "ledger", SessionKind.BRANCH)
    async with tree, asyncio.timeout(PATIENCE_S):
        branch = await tree.main.spawn("branch", "look")
        with pytest.raises(PermissionDenied, match=OWNERS_ALONE):
            await branch.call("ledger", {})


@pytest.mark.covers("S39", "REL-L52")
async def test_channel_s_tools_join_before_the_lists_and_go_with_it(open_tree: Opener) -> None:
    """Held while the channel is there, judged as any other, gone after resuming with another channel."""
    async with open_tree(NAMING, channel=LinkedChannel()) as tree:
        assert (await tree.main.call("link", {})).output == "linked"
    tree = await open_tree.resume(tree.tree_id, NAMING, channel=QueueChannel())
    async with tree:
        assert "link" not in json.loads(await tree.main.send("what is there?"))
    denied = PolicyConfig(tools=ToolPolicy(deny=("link",)))
    async with open_tree(NAMING, channel=LinkedChannel(), policy=denied) as tree:
        with pytest.raises(PermissionDenied, match=r"does not hold link \(tools\.allow"):
            await tree.main.call("link", {})


async def test_policy_may_lie_in_a_file(open_tree: Opener, tmp_path: Path) -> None:
    """JSON or TOML, by its path."""
    for name, text in (
        ("p.json", '{"tools": {"allow": ["read"]}}'),
        ("p.toml", '[tools]\nallow = ["read"]\n'),
    ):
        path = tmp_path / name
        path.write_text(text)
        async with open_tree(NAMING, policy=path) as tree:
            assert json.loads(await tree.main.send("what is there?")) == ["read"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("nowhere.json", "can't be read"),
        ("policy.yaml", r"must end in \.json or \.toml"),
        ({"tools": {}}, "give a PolicyConfig"),
        (PolicyConfig(tools=ToolPolicy(deny=("exce",)), strict=True), "'exce' does not name a tool"),
        (PolicyConfig(agents={"clark": ToolPolicy()}, strict=True), "no agent of that name"),
    ],
)
async def test_policy_that_can_t_be_used_is_refused_at_once(
    open_tree: Opener, policy: Any, words: str
) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError, match=words):
        open_tree(FINE, policy=policy)


@pytest.mark.covers("S42")
async def test_slip_is_warned_of_and_the_tree_opens(open_tree: Opener) -> None:
    """One warning for each, at the line that makes the tree."""
    with pytest.warns(PolicyWarning, match="'exce' does not name a tool"):
        tree = open_tree(FINE, policy=PolicyConfig(tools=ToolPolicy(deny=("exce",))))
    async with tree:
        assert await tree.main.send("hello") == "fine"
