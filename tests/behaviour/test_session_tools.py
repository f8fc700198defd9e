"""A session looks at the sessions below it and stops them, and reaches nothing else of its tree."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    AgentSpec,
    ChildKind,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    PolicyConfig,
    Retry,
    SessionStatus,
    Tool,
    ToolContext,
    ToolResult,
    script_call,
)
from sessiontree.contracts.facts.session_facts import MessageReceived, TurnReplied
from sessiontree.contracts.facts.tree_facts import CancelBegun, MessagePassed, SessionEnded
from sessiontree.contracts.settings.settings import MessagePolicy
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolPolicy
from tests.behaviour.fact_fixtures import asked, facts_of, results, until
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Nothing, Sleeper

CODING = PolicyConfig(tools=ToolPolicy(profile="coding"))


class Holder(Sleeper):
    """Changes something, and waits for ever."""

    name = "holder"
    tier = PermissionTier.WORKSPACE
    retry: ClassVar[Retry | None] = None
    kinds = MAIN_AND_BRANCH


class Risky(Tool[Nothing]):
    """Needs an approval."""

    name = "risky"
    description = "Do something."
    Params: ClassVar[type[BaseModel]] = Nothing

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        return ToolResult("done")


EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))


def offered(request: ModelRequest) -> Answer:
    """Reply with the session tools that the request offers."""
    names = {spec.name for spec in request.tools}
    return json.dumps(
        sorted(name for name in names if "session" in name or name in {"subagents", "agents_list"})
    )


@pytest.mark.covers("S9", "S10")
async def test_session_tools_are_offered_as_the_policy_says(open_tree: Opener) -> None:
    """Without a policy the short ones are; a profile brings the others; a Worker has its status only."""
    usual = ["session_status", "sessions_spawn", "subagents"]
    for policy, expected in (
        (PolicyConfig(), usual),
        (CODING, [*usual, "sessions_history", "sessions_list", "sessions_send"]),
    ):
        async with open_tree(FunctionModel(offered), policy=policy) as tree:
            assert json.loads(await tree.main.send("go")) == sorted(expected)
            kinds: list[tuple[ChildKind, list[str]]] = [
                ("branch", sorted(expected)),
                ("worker", ["session_status"]),
            ]
            for kind, held in kinds:
                child = await tree.main.spawn(kind, "go")
                assert json.loads((await child.result()).summary) == held


@pytest.mark.covers("S9", "S10", "REL-L50", "REL-L69")
@pytest.mark.on_ray
async def test_session_lists_and_kills_below_and_nowhere_else(open_tree: Opener, board: Switchboard) -> None:
    """The list is of its own subtree; other names are answered like names of nothing; a kill cascades."""
    sleeper = Sleeper(board)
    model = FunctionModel(lambda request: script_call("sleeper") if "/w" in request.session_id else "ready")
    async with open_tree(model, tools=[sleeper], policy=EVERYTHING) as tree:
        first = await tree.main.spawn("branch", "wait", label="one")
        second = await tree.main.spawn("branch", "wait", label="two")
        below = await second.spawn("worker", "wait", label="deep")
        await sleeper.started.wait()
        listed: Any = (await second.call("sessions_list")).output
        assert [(row["id"], row["label"]) for row in listed["sessions"]] == [("main/b2/w1", "deep")]
        errors = []
        for name in ("main/b1", "main/b7", "main", "main/b2", "one", "two"):
            with pytest.raises(ExecutionError) as caught:
                await second.call("subagents", {"action": "kill", "target": name})
            errors.append(str(caught.value).replace(repr(name), "it"))
        assert len(set(errors)) == 1
        assert await facts_of(tree, CancelBegun) == []
        killed: Any = (await tree.main.call("subagents", {"action": "kill", "target": "two"})).output
        assert [(row["id"], row["status"]) for row in killed["sessions"]] == [
            ("main/b2", "cancelled"),
            ("main/b2/w1", "cancelled"),
        ]
        assert below.status().status is SessionStatus.CANCELLED
        assert not first.status().status.is_final
        again: Any = (await tree.main.call("subagents", {"action": "kill", "target": "main/b2"})).output
        assert again["sessions"] == killed["sessions"]
        assert [fact.sessions for fact in await facts_of(tree, CancelBegun)] == [("main/b2", "main/b2/w1")]


def overseer(request: ModelRequest) -> Answer:
    """As Main, start two Branches, look at them, and stop one."""
    if request.session_id != "main":
        return script_call("sleeper")
    if request.turn == 1:
        return [
            script_call("sessions_spawn", kind="branch", task="wait", label=name) for name in ("one", "two")
        ]
    said = request.messages[-1].text
    if said == "look":
        return script_call("subagents", action="list")
    if '"left_out"' in said and '"killed"' not in said:
        return script_call("subagents", action="kill", target="one")
    return "over"


@pytest.mark.covers("S10")
async def test_model_lists_and_kills_its_children(open_tree: Opener, board: Switchboard) -> None:
    """What it reads says who runs which tool; the killed one has ended when it reads on."""
    sleeper = Sleeper(board)
    async with open_tree(FunctionModel(overseer), tools=[sleeper]) as tree:
        await tree.main.send("begin")
        await until(tree, TurnReplied, count=1, session="main/b1")
        await until(tree, TurnReplied, count=1, session="main/b2")
        assert await tree.main.send("look") == "over"
        shown, killed = [json.loads(each.text) for each in results(tree, "main")[-2:]]
        assert {row["label"]: row.get("tool") for row in shown["sessions"]} == {
            "one": "sleeper",
            "two": "sleeper",
        }
        assert [(row["label"], row["status"]) for row in killed["sessions"]] == [("one", "cancelled")]
        assert list(sleeper.ended) == ["cancelled"]


SECRET = "sk-ant-" + "a1B2c3D4" * 4


def household(request: ModelRequest) -> Answer:
    """As Main, start two Branches, look, read one, steer it, stop the other; a steered Branch reports."""
    said = request.messages[-1].text
    if request.session_id != "main":
        return "I heard: " + json.loads(said)["message"] if "hurry" in said else script_call("sleeper")
    if request.turn == 1:
        return [
            script_call("sessions_spawn", kind="branch", task=f"wait {SECRET}", label=name)
            for name in ("one", "two")
        ]
    steps = [
        script_call("sessions_list"),
        script_call("sessions_history", target="one"),
        script_call("subagents", action="steer", target="one", message="hurry"),
        script_call("subagents", action="kill", target="two"),
    ]
    if said == "look":
        return steps[0]
    done = sum(isinstance(message, ToolResultMessage) for message in request.messages) - 2
    return steps[done] if 0 < done < len(steps) else "over"


@pytest.mark.covers("S9", "S10")
async def test_model_reads_steers_and_kills_its_children(open_tree: Opener, board: Switchboard) -> None:
    """It reads no secret; the steered child's turn is cut; the killed one's result comes with the call."""
    sleeper = Sleeper(board)
    async with open_tree(FunctionModel(household), tools=[sleeper], policy=EVERYTHING) as tree:
        await tree.main.send("begin")
        for name in ("main/b1", "main/b2"):
            await until(tree, TurnReplied, session=name)
        assert await tree.main.send("look") == "over"
        shown, read, steered, killed = [json.loads(each.text) for each in results(tree, "main")[2:6]]
        assert [row["label"] for row in shown["sessions"]] == ["one", "two"]
        assert [each["role"] for each in read["messages"]] == ["user", "assistant"]
        assert SECRET not in json.dumps(read)
        assert "redacted" in read["messages"][0]["text"]
        assert steered == {"status": "sent", "session_id": "main/b1"}
        (row,) = killed["sessions"]
        assert (row["label"], row["status"]) == ("two", "cancelled")
        assert row["given_up"] == "sleeper: did not finish"
        ended = await until(tree, SessionEnded, count=2)
        assert {fact.session: fact.result.summary for fact in ended} == {
            "main/b1": "I heard: hurry",
            "main/b2": "main stopped it",
        }
        assert [(fact.to, fact.mode) for fact in await facts_of(tree, MessagePassed)] == [
            ("main/b1", "steer")
        ]


@pytest.mark.covers("S9", "REL-L50")
async def test_messages_go_down_and_one_step_up(open_tree: Opener) -> None:
    """Parent and child hear each other with the sender's name; a sibling is not reached; policies bind."""
    policy = PolicyConfig(tools=ToolPolicy(allow=("*",)), messages=MessagePolicy(max_chars=20))
    async with open_tree(FunctionModel(lambda request: "ready"), policy=policy) as tree:
        one = await tree.main.spawn("branch", "wait", label="one")
        two = await tree.main.spawn("branch", "wait", label="two")
        down = await tree.main.call("sessions_send", {"target": "one", "message": "a long word from above"})
        up = await one.call("sessions_send", {"target": "parent", "message": "from below"})
        assert (down.output, up.output) == (
            {"status": "sent", "session_id": "main/b1"},
            {"status": "sent", "session_id": "main"},
        )
        (below,) = await until(
            tree, MessageReceived, session="main/b1", where=lambda fact: "above" in fact.message.text
        )
        (above,) = await until(
            tree, MessageReceived, session="main", where=lambda fact: "below" in fact.message.text
        )
        assert (below.message.origin, above.message.origin) == ("parent", "child")
        assert json.loads(below.message.text) == {"session": "main", "message": "a long word from above"}
        assert json.loads(above.message.text) == {
            "session": "main/b1",
            "message": "from below",
            "label": "one",
        }
        for target in ("main/b2", "two", "x"):
            with pytest.raises(ExecutionError, match="no session below"):
                await one.call("sessions_send", {"target": target, "message": "psst"})
        with pytest.raises(ExecutionError, match="not steered from below"):
            await one.call("sessions_send", {"target": "parent", "message": "stop", "mode": "steer"})
        with pytest.raises(PermissionDenied, match="message policy lets a Branch send 20"):
            await two.call("sessions_send", {"target": "parent", "message": "x" * 21})
        assert len(await facts_of(tree, MessagePassed)) == 2


@pytest.mark.covers("A29")
async def test_killed_child_says_what_it_gave_up(open_tree: Opener, board: Switchboard) -> None:
    """A withdrawn approval and a call in progress are in the result, and with it in the row of a kill."""
    holder = Holder(board)
    model = FunctionModel(
        lambda request: script_call("risky" if request.session_id == "main/b1" else "holder")
    )
    async with open_tree(model, tools=[Risky(), holder]) as tree:
        one = await tree.main.spawn("branch", "go")
        two = await tree.main.spawn("branch", "go")
        await asked(tree)
        await holder.started.wait()
        for name in ("main/b1", "main/b2"):
            await tree.main.call("subagents", {"action": "kill", "target": name})
        (line,) = (await one.result()).given_up
        assert line == "risky: waited for an approval, which was withdrawn; did not run"
        assert (await two.result()).given_up == ("holder: was cut short; may have run in part",)


@pytest.mark.covers("S15")
async def test_agents_of_the_tree_are_listed(open_tree: Opener) -> None:
    """Those that a child may be of."""
    agents = {"default": AgentSpec(), "clerk": AgentSpec()}
    tree = open_tree(FunctionModel(lambda request: "ready"), agents=agents, policy=EVERYTHING)
    async with tree:
        found: Any = (await tree.main.call("agents_list")).output
        assert [each["name"] for each in found["agents"]] == ["default", "clerk"]
        assert found["yours"] == "default"
