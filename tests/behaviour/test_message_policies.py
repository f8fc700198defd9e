"""What Branches may send to people, by channel and policy; what tools say to people is shown on channels."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    CallbackChannel,
    ConfigError,
    FunctionModel,
    MessagePolicy,
    PermissionDenied,
    PermissionTier,
    PolicyConfig,
    PolicyWarning,
    QueueChannel,
    ToolResult,
    tool,
)
from sessiontree.api.tree.channel_prompts import MAX_LINES_BELOW
from tests.behaviour.fact_fixtures import PATIENCE_S
from tests.behaviour.tree_fixtures import Opener

AGENTS = {"clark": AgentSpec()}
MODEL = FunctionModel(lambda request: "fine")


@pytest.mark.covers("A38")
@pytest.mark.parametrize("by", ["channel", "policy file"])
async def test_branches_send_what_the_message_policy_lets_through(
    open_tree: Opener, tmp_path: Path, by: str
) -> None:
    """Who, how often and how long; Main sends what it likes, and the policy outlives the program."""
    options: dict[str, Any] = {"agents": AGENTS}
    if by == "channel":
        bounds = MessagePolicy(agents=("default",), per_minute=2, max_chars=10)
        channel = QueueChannel(message_policy=bounds)
    else:
        file = tmp_path / "policy.toml"
        file.write_text('[messages]\nagents = ["default"]\nperMinute = 2\nmaxChars = 10\n')
        channel, options["policy"] = QueueChannel(), file
    async with asyncio.timeout(PATIENCE_S), open_tree(MODEL, channel=channel, **options) as tree:
        other = await tree.main.spawn("branch", "go on", agent="clark")
        with pytest.raises(PermissionDenied, match="channel"):
            await other.call("message", {"text": "hello"})
        branch = await tree.main.spawn("branch", "go on")
        with pytest.raises(PermissionDenied, match=r"11 characters.*10 at once"):
            await branch.call("message", {"text": "hello there"})
        for text in ("one", "two"):
            await branch.call("message", {"text": text})
        with pytest.raises(PermissionDenied, match=r"within the last minute.*send 2"):
            await branch.call("message", {"text": "three"})
        await tree.main.call("message", {"text": "hello from Main"})
    heard = [channel.messages.get_nowait() for _ in range(channel.messages.qsize())]
    assert heard == ["one", "two", "hello from Main"]


async def test_what_no_message_policy_can_be_is_refused(open_tree: Opener) -> None:
    """An unknown setting, a bound that bounds nothing, another type, an unknown agent."""
    for wrong in ({"per_minute": 0}, {"max_chars": -1}, {"perminute": 3}, {"agents": "default"}):
        with pytest.raises(ConfigError, match="MessagePolicy"):
            MessagePolicy(**wrong)
    channel: Any = QueueChannel()
    channel.message_policy = {"per_minute": 3}
    with pytest.raises(ConfigError, match="message_policy"):
        open_tree(MODEL, channel=channel)
    unknown = MessagePolicy(agents=("clerk",))
    with pytest.raises(ConfigError, match="did you mean 'clark'"):
        open_tree(MODEL, channel=QueueChannel(message_policy=unknown), agents=AGENTS)
    with pytest.warns(PolicyWarning, match="did you mean 'clark'"):
        open_tree(MODEL, policy=PolicyConfig(messages=unknown), agents=AGENTS)
    for none in (7, "terminal", QueueChannel):
        with pytest.raises(ConfigError, match="send and ask"):
            open_tree(MODEL, channel=none)
    channel.message_policy, channel.show = None, "loudly"
    with pytest.raises(ConfigError, match="show"):
        open_tree(MODEL, channel=channel)


@tool(tier=PermissionTier.READ_ONLY)
def weigh(thing: str) -> ToolResult:
    """Weigh a thing."""
    return ToolResult(output={"grams": 7}, display=f"{thing}: 7 g")


@pytest.mark.covers("A22")
async def test_what_tools_say_to_people_is_shown_on_the_channel(open_tree: Opener) -> None:
    """Those of the channel's own session, in order; a failure loses no later one."""
    shown: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def show(name: str, display: str) -> None:
        shown.put_nowait((name, display))
        if display.startswith("stone"):
            raise OSError("no paper")

    troubles: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda loop, trouble: troubles.append(trouble))
    async with (
        asyncio.timeout(PATIENCE_S),
        open_tree(MODEL, channel=CallbackChannel(show=show), tools=[weigh]) as tree,
    ):
        branch = await tree.main.spawn("branch", "go on")
        await branch.call("weigh", {"thing": "feather"})
        for thing in ("stone", "apple"):
            await tree.main.call("weigh", {"thing": thing})
        assert [await shown.get(), await shown.get()] == [("weigh", "stone: 7 g"), ("weigh", "apple: 7 g")]
    loop.set_exception_handler(before)
    assert [str(each["exception"]) for each in troubles] == ["no paper"]


@pytest.mark.covers("A22")
async def test_lines_of_sessions_below_reach_the_channel_within_bounds(open_tree: Opener) -> None:
    """With path, visible characters, and a bound for each turn of the session that has the channel."""
    below: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
    channel = CallbackChannel(show_below=lambda *line: below.put_nowait(line))
    async with asyncio.timeout(PATIENCE_S), open_tree(MODEL, channel=channel, tools=[weigh]) as tree:
        branch = await tree.main.spawn("branch", "go on")
        inner = await branch.spawn("branch", "go on", approver=lambda request: True)
        await tree.main.call("weigh", {"thing": "main's own"})
        await branch.call("weigh", {"thing": "dead\u202eman"})
        assert await below.get() == ("main/b1", "weigh", "dead\\u{202e}man: 7 g")
        for _ in range(MAX_LINES_BELOW + 2):
            await inner.call("weigh", {"thing": "plum"})
        await tree.main.send("go on")
        seen = [await below.get() for _ in range(MAX_LINES_BELOW)]
        assert set(seen[:-1]) == {("main/b1/b1", "weigh", "plum: 7 g")}
        assert seen[-1] == ("main", "", "3 more lines of sessions below")
        await inner.call("weigh", {"thing": "fig"})
        assert await below.get() == ("main/b1/b1", "weigh", "fig: 7 g")
        assert below.empty()


async def test_message_passes_a_branch_whose_approver_hears_none(open_tree: Opener) -> None:
    """A function that answers requests is a channel for these alone; words go to the person above."""
    channel = QueueChannel()
    async with asyncio.timeout(PATIENCE_S), open_tree(MODEL, channel=channel) as tree:
        branch = await tree.main.spawn("branch", "go on", approver=lambda request: True)
        inner = await branch.spawn("branch", "go on")
        await inner.call("message", {"text": "hello"})
        assert await channel.messages.get() == "hello"
