"""Who speaks decides what a turn holds: strangers get no owner's tools, and owners alone answer requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree import (
    ApprovalAnswer,
    ApprovalRequest,
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    PolicyConfig,
    QueueChannel,
    Sender,
    SessionKind,
    ToolCall,
    ToolFlag,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import ActsFor, RunFinished
from sessiontree.contracts.facts.tree_facts import ApprovalDecided, ApprovalRequested, DecisionRefused
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.policy.settings import ToolLists
from sessiontree.testing.force import force_register
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.tree_fixtures import Opener

APPROVERS = "tests.behaviour.approver_fakes"
OWNERS_ALONE = "Tool restricted to owner senders."
BOB = Sender("bob", name="olga", channel="terminal")
CLUB = Sender("bob", group="club")


def obey(request: ModelRequest) -> str | ToolCall:
    """Show what is there, or make the one call that was asked for and say what came of it."""
    last = request.messages[-1]
    if isinstance(last, ToolResultMessage):
        return last.text
    assert isinstance(last, UserMessage)
    if last.text.startswith("{") or last.text == "look":
        listed = [each.name for each in request.tools]
        assert f"\nYour tools: {', '.join(listed)}." in request.system_prompt
        return json.dumps(listed)
    name, _, arguments = last.text.partition(" ")
    return script_call(name, **json.loads(arguments or "{}"))


async def obey_later(request: ModelRequest) -> str | ToolCall:
    """As above, alongside the sessions."""
    return obey(request)


OBEYING = FunctionModel(obey, "openai/gpt-5")
EACH_SORT = pytest.mark.parametrize(
    "model", [OBEYING, AsyncFunctionModel(obey_later, "openai/gpt-5")], ids=["instant", "waiting"]
)


@tool(tier=PermissionTier.WORKSPACE, flags=[ToolFlag.OWNER_ONLY])
def ledger() -> str:
    """Open the ledger."""
    return "open"


@tool(tier=PermissionTier.ELEVATED)
def deploy() -> str:
    """Deploy."""
    return "deployed"


def channel() -> QueueChannel:
    """Return a channel that Olga owns."""
    return QueueChannel(owners=["olga"])


@pytest.mark.covers("I34", "S37")
@EACH_SORT
async def test_tool_of_owners_goes_by_who_speaks(open_tree: Opener, model: Any) -> None:
    """Neither shown nor listed nor run for a stranger, whatever name they give; there again for an owner."""
    async with open_tree(model, tools=(ledger,), channel=channel()) as tree:
        for sender, is_owner in (
            (None, True),
            (BOB, False),
            ("olga", True),
            ("Olga", False),
            (Sender("olga"), True),
        ):
            names = json.loads(await tree.main.send("look", sender=sender))
            assert ("ledger" in names, "read" in names) == (is_owner, True)
            said = await tree.main.send("ledger", sender=sender)
            assert (said == "open") is is_owner
            assert (OWNERS_ALONE in said) is not is_owner
        assert (await tree.main.call("ledger")).output == "open"
        told = [[asker.id for asker in fact.askers] for fact in await facts_of(tree, ActsFor, "main")]
    assert told == [["bob"], ["olga"], ["Olga"], ["olga"]]


@pytest.mark.covers("S37", "I34")
async def test_tool_of_owners_is_refused_to_strangers_where_it_is_forced(open_tree: Opener) -> None:
    """Removed *and* refused: what forces it on Main does not get it run for a stranger."""
    policy = PolicyConfig(tools=ToolPolicy(deny=("ledger",)))
    tree = open_tree(OBEYING, tools=(ledger,), channel=channel(), policy=policy)
    force_register(tree, "ledger", SessionKind.MAIN)
    async with tree:
        assert await tree.main.send("ledger", sender="olga") == "open"
        assert OWNERS_ALONE in await tree.main.send("ledger", sender="bob")


async def test_where_nobody_is_listed_no_sender_is_an_owner(open_tree: Opener) -> None:
    """The program itself is one; a sender must have an id."""
    async with open_tree(OBEYING, tools=(ledger,)) as tree:
        assert OWNERS_ALONE in await tree.main.send("ledger", sender="olga")
        assert await tree.main.send("ledger") == "open"
        for nobody in ("", "  ", 7):
            with pytest.raises(ConfigError, match="sender"):
                tree.main.send("look", sender=nobody)  # type: ignore[arg-type]


async def test_group_s_lists_bind_those_who_speak_there_and_all_below(open_tree: Opener) -> None:
    """A child of such a turn, and the turn that hears of it, hold no more; the next one does again."""
    policy = PolicyConfig(groups={"club": ToolLists(deny=("find", "exec"))})
    async with open_tree(OBEYING, policy=policy) as tree:
        assert "find" in json.loads(await tree.main.send("look"))
        assert "find" not in json.loads(await tree.main.send("look", sender=CLUB))
        assert "group tools.allow" in await tree.main.send('find {"pattern": "*"}', sender=CLUB)
        await tree.main.send('sessions_spawn {"kind": "branch", "task": "look"}', sender=CLUB)
        branch = tree.session("main/b1")
        assert "find" not in json.loads((await branch.result()).summary)
        listed = await until(
            tree, RunFinished, count=3, session="main", where=lambda fact: fact.text[:1] == "["
        )
        assert "find" not in json.loads(listed[-1].text)
        own = await tree.main.spawn("branch", "look")
        assert "find" in json.loads((await own.result()).summary)
        assert "find" in json.loads(await tree.main.send("look"))


@pytest.mark.covers("REL-L51")
@pytest.mark.own_runtime
async def test_whom_a_turn_acts_for_survives(open_tree: Opener) -> None:
    """A stranger's call that waited over a restart is a stranger's still, and so is what follows from it."""

    def follow(request: ModelRequest) -> str | ToolCall:
        last = request.messages[-1]
        if isinstance(last, ToolResultMessage):
            return script_call("ledger") if last.tool_name == "deploy" else last.text
        return script_call("deploy")

    model = FunctionModel(follow)
    options: dict[str, Any] = {"tools": (ledger, deploy), "channel": channel()}
    async with open_tree(model, **options) as tree:
        tree.main.send("go", sender="bob")
        await asked(tree)
    tree = await open_tree.resume(tree.tree_id, model, **options)
    async with tree:
        (request,) = await asked(tree)
        assert [(asker.id, asker.is_owner) for asker in request.request.asked_by] == [("bob", False)]
        await request.approve(sender="olga")
        (last_word,) = await until(tree, RunFinished, session="main")
        assert OWNERS_ALONE in last_word.text
        assert [asker.id for fact in await facts_of(tree, ActsFor) for asker in fact.askers] == ["bob"]


async def test_who_is_asked_learns_whom_a_call_is_for(open_tree: Opener) -> None:
    """People and functions alike, for what is spawned in such a turn too; the journal keeps it."""

    def pass_on(request: ModelRequest) -> str | ToolCall:
        last = request.messages[-1]
        if isinstance(last, ToolResultMessage):
            return "well"
        if isinstance(last, UserMessage) and last.text == "go on":
            return script_call("sessions_spawn", kind="branch", task="deploy")
        return script_call("deploy")

    async with open_tree(FunctionModel(pass_on), tools=(deploy,), channel=channel()) as tree:
        branch = await tree.main.spawn("branch", "deploy", approver=f"{APPROVERS}:approves_owners")
        (own,) = await asked(tree)
        branch.send("go on", sender=CLUB)
        (denied,) = await until(tree, ApprovalDecided)
        assert (denied.decision, denied.by) == ("denied", "function")
        tree.main.send("go on", sender=Sender("olga"))
        shown = [each.request.asked_by for each in await asked(tree, count=2)]
        asked_by = [fact.question.asked_by for fact in await facts_of(tree, ApprovalRequested)]
    assert own.request.asked_by == ()
    bob = Principal("bob", "", "", "club", is_owner=False)
    olga = Principal("olga", "", "", "", is_owner=True)
    assert shown == [(), (olga,)]
    assert asked_by == [(), (bob,), (olga,)]


class Crowd(QueueChannel):
    """A channel on which strangers answer first."""

    def __init__(self, *answers: str) -> None:
        super().__init__(owners=["olga"])
        self.answers = list(answers)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        if not self.answers:
            return None
        return ApprovalAnswer(approve=True, always=True, sender=Sender(self.answers.pop(0)))


@pytest.mark.covers("A13", "REL-L13", "I34", "APP19")
async def test_only_an_owner_s_answer_decides(open_tree: Opener) -> None:
    """REL-L13: a stranger's is written down and changes nothing; the request is asked again."""
    async with open_tree(OBEYING, tools=(deploy,), channel=channel()) as tree:
        reply = tree.main.send("deploy")
        (request,) = await asked(tree)
        for answer in (request.approve, request.deny):
            with pytest.raises(PermissionDenied, match=r"'bob' answered approval .* owners"):
                await answer(sender=BOB)
        assert [each.request for each in await asked(tree)] == [request.request]
        await request.approve(sender="olga")
        assert await reply == "deployed"
        (decided,) = await facts_of(tree, ApprovalDecided)
        refused = await facts_of(tree, DecisionRefused)
    assert decided.decision == "approved"
    assert [(each.by.id, each.by.name, each.approve) for each in refused] == [
        ("bob", "olga", True),
        ("bob", "olga", False),
    ]


@pytest.mark.covers("REL-L13")
async def test_stranger_s_answer_on_the_channel_is_dropped(open_tree: Opener) -> None:
    """The channel is asked again until an owner answers; a crowd of strangers leaves it to the program."""
    async with open_tree(OBEYING, tools=(deploy,), channel=Crowd("bob", "eve", "olga")) as tree:
        assert await tree.main.send("deploy", sender="bob") == "deployed"
        assert [each.by.id for each in await facts_of(tree, DecisionRefused)] == ["bob", "eve"]
    async with open_tree(OBEYING, tools=(deploy,), channel=Crowd(*["bob"] * 40)) as tree:
        reply = tree.main.send("deploy", sender="bob")
        await until(tree, DecisionRefused, count=16)
        (request,) = await asked(tree)
        await request.approve()
        assert await reply == "deployed"
        assert len(await facts_of(tree, DecisionRefused)) == 16


@pytest.mark.parametrize("owners", ["olga", [""], [7], ["olga", None]])
async def test_list_of_owners_is_a_list_of_ids(open_tree: Opener, owners: Any) -> None:
    """One text would make an owner of every letter."""
    with pytest.raises(ConfigError, match="a channel's owners"):
        open_tree(OBEYING, channel=QueueChannel(owners=owners))
