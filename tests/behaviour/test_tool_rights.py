"""A tool is given what its class declares and its session holds, and no other handle, by no way round."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from sessiontree import (
    CHANNEL,
    WRITER,
    AgentSpec,
    ApprovalAnswer,
    ApprovalRequest,
    ClientTool,
    FunctionModel,
    Hook,
    ModelRequest,
    PermissionDenied,
    PermissionTier,
    SessionKind,
    SessionTree,
    Tool,
    ToolContext,
    ToolResult,
    schema_tool,
    script_call,
    tool,
)
from sessiontree.contracts.recorded.capabilities import (
    CAPABILITIES,
    Capability,
    find_highest,
    list_capabilities,
)
from sessiontree.contracts.recorded.results import json_result
from sessiontree.contracts.tools.hooks import (
    CalledTool,
    HookContext,
    HookResult,
    HookText,
    KeptResult,
    Spawning,
)
from sessiontree.contracts.values.jsonable import to_json_value
from sessiontree.contracts.values.messages import AssistantMessage, ToolResultMessage
from sessiontree.models.answers import Answer
from sessiontree.testing.force import force_register
from tests.behaviour.fact_fixtures import results
from tests.behaviour.object_graph_oracle import handles, insides, reachable
from tests.behaviour.tree_fixtures import Opener

SYSTEM, ELEVATED = PermissionTier.SYSTEM, PermissionTier.ELEVATED
EVERYTHING = list_capabilities(SessionKind.BRANCH)
"""What Main and Branches may hold; timed jobs are Main's alone."""
SETS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"reader"}),
    frozenset({"writer"}),
    frozenset({"shell", "web"}),
    frozenset({"channel"}),
    frozenset({"sessions", "memory"}),
    frozenset({"memory_writer"}),
    EVERYTHING,
)


class Nothing(BaseModel):
    """No parameters."""


def told(ctx: ToolContext) -> ToolResult:
    """Tell what a context holds, what else it leads to, and who it says it is."""
    ctx.update("begun")
    found = reachable(ctx)
    return ToolResult(
        to_json_value(
            {
                "held": [name for name in CAPABILITIES if getattr(ctx, name) is not None],
                "reached": sorted(handles(found)),
                "insides": insides(found),
                "denied": {name: _denial(ctx, name) for name in CAPABILITIES},
                "agent": ctx.agent_id,
                "session": ctx.session_id,
                "call": ctx.call_id,
                "root": str(ctx.workspace_root),
            }
        )
    )


def _denial(ctx: ToolContext, name: str) -> str:
    try:
        ctx.require(Capability(name, SYSTEM))
    except PermissionDenied as denied:
        return denied.reason
    return ""


class Look(Tool[Nothing]):
    """Tells what its context holds."""

    description = "Tell what there is."
    Params: ClassVar[type[BaseModel]] = Nothing
    tier = SYSTEM

    async def execute(self, params: Nothing, ctx: ToolContext) -> ToolResult:
        return told(ctx)


def looks(declared: Iterable[str], number: int) -> Tool[Any]:
    """Return a tool with these capabilities, the last of them optional."""
    names = sorted(declared)
    highest = find_highest(names)

    class Declared(Look):
        name = f"look_{number}"
        tier = SYSTEM if highest is None else max(SYSTEM, highest.tier)
        capabilities = frozenset(names[:-1])
        optional_capabilities = frozenset(names[-1:])

    return Declared()


@tool(tier=SYSTEM, capabilities=[WRITER], optional_capabilities=[CHANNEL])
def look_function(ctx: ToolContext) -> ToolResult:
    """Tell what there is."""
    return told(ctx)


@schema_tool({"type": "object"}, tier=SYSTEM, capabilities=[WRITER], optional_capabilities=[CHANNEL])
async def look_schema(params: dict[str, Any], ctx: ToolContext) -> ToolResult:
    """Tell what there is."""
    return told(ctx)


@tool(tier=ELEVATED, capabilities=CAPABILITIES)
def look_all(ctx: ToolContext) -> ToolResult:
    """Tell what there is."""
    return told(ctx)


@tool(tier=PermissionTier.READ_ONLY, kinds=SessionKind)
def look_on(ctx: ToolContext) -> ToolResult:
    """Tell what there is."""
    return told(ctx)


class Listens(Hook):
    """Takes part wherever a handle leads past hooks, and supplies the result of one tool."""

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookResult | None:
        """Tell what can be reached from what a hook is given."""
        if call.tool != "supplied":
            return None
        found = reachable((call, ctx))
        return HookResult(json_result({"reached": sorted(handles(found)), "insides": insides(found)}))

    def message_sending(self, words: HookText, ctx: HookContext) -> HookText:
        return words

    def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> None:
        return None

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        return result


@tool(tier=SYSTEM)
def supplied(ctx: ToolContext) -> str:
    """Never run: a hook supplies the result."""
    raise AssertionError(ctx.call_id)


HOOKED = pytest.mark.parametrize("hooks", [(), (Listens(),)], ids=["plain", "hooked"])


def asking(*names: str) -> FunctionModel:
    """Return a model whose every session calls these tools, one a turn, and is done."""

    def reply(request: ModelRequest) -> Answer:
        made = sum(isinstance(each, AssistantMessage) for each in request.messages)
        return script_call(names[made]) if made < len(names) else "done"

    return FunctionModel(reply)


async def answers(
    tree: SessionTree, kind: SessionKind, **options: Any
) -> tuple[str, list[ToolResultMessage]]:
    """Let a session of a kind do what the model says; return its id and the results of its calls."""
    if kind is SessionKind.MAIN:
        await tree.main.send("look")
        return "main", results(tree, "main")
    child = await tree.main.spawn(kind, "look", **options)
    await child.result()
    return child.session_id, results(tree, child.session_id)


@HOOKED
@pytest.mark.parametrize("kind", [SessionKind.MAIN, SessionKind.BRANCH])
@pytest.mark.covers("A17", "A18", "A36", "RGT9")
@pytest.mark.on_ray
async def test_tool_holds_what_it_declares_and_nothing_else(
    open_tree: Opener, kind: SessionKind, hooks: tuple[Hook, ...]
) -> None:
    """A20, seed 004: by name, by ``require``, and by every way a plain look can follow."""
    given = [looks(declared, number) for number, declared in enumerate(SETS)]
    model = asking(*(each.name for each in given))
    agents = {"default": AgentSpec(image_model=model.name)}
    async with open_tree(model, tools=given, agents=agents, hooks=hooks, approvals="auto") as tree:
        _, told_ = await answers(tree, kind)
        for number, (declared, message) in enumerate(zip(SETS, told_, strict=True)):
            found = json.loads(message.text)
            assert set(found["held"]) == declared
            assert set(found["reached"]) - {"status"} == declared
            assert found["insides"] == []
            for name, why in found["denied"].items():
                missing = f"tool 'look_{number}' does not declare capability {name!r}; add it to capabilities"
                assert why == ("" if name in declared else missing)


@HOOKED
async def test_every_form_of_tool_is_narrowed(open_tree: Opener, hooks: tuple[Hook, ...]) -> None:
    """Functions and schemas as classes; the program's call as a model's; the declarations are all of it."""
    names = ("look_function", "look_schema", "look_on")
    async with open_tree(asking(*names), tools=[look_function, look_schema, look_on], hooks=hooks) as tree:
        _, told_ = await answers(tree, SessionKind.MAIN)
        outputs = [json.loads(each.text) for each in told_]
        outputs += [(await tree.main.call(name, {})).output for name in names]
        for found in outputs:
            wanted = [] if found["held"] == [] else ["writer", "channel"]
            assert found["held"] == wanted
            assert set(found["reached"]) == {"status", *wanted}
            assert found["insides"] == []
        assert [found["held"] == [] for found in outputs] == [False, False, True] * 2


async def test_result_that_a_hook_supplies_holds_nothing(open_tree: Opener) -> None:
    """What a hook is given leads to no handle, whatever the tool would have held."""
    async with open_tree(asking(), tools=[supplied], hooks=[Listens()]) as tree:
        assert (await tree.main.call("supplied", {})).output == {"reached": [], "insides": []}


async def test_client_tool_is_given_nothing_here(open_tree: Opener) -> None:
    """It declares no handle and can't: the program answers it, and no context of it exists."""
    ask = ClientTool("ask", "Ask the person.", Nothing, tier=PermissionTier.WORKSPACE)
    assert (ask.capabilities, ask.optional_capabilities) == (frozenset(), frozenset())
    async with open_tree(asking("ask"), tools=[ask]) as tree:
        reply = tree.main.send("ask")
        async for waiting in tree.client_calls:
            await waiting.answer({"said": "yes"})
            break
        assert await reply == "done"


@pytest.mark.parametrize("kind", list(SessionKind))
async def test_what_a_kind_never_holds_no_declaration_gives(open_tree: Opener, kind: SessionKind) -> None:
    """REL-P11: the intersection, for a tool that declares all there is, forced on a Worker too."""
    model = asking("look_all")
    agents = {"default": AgentSpec(image_model=model.name)}
    tree = open_tree(model, tools=[look_all], agents=agents, approvals="auto")
    force_register(tree, "look_all", SessionKind.WORKER)
    async with tree:
        _, (message,) = await answers(tree, kind)
        found = json.loads(message.text)
        assert set(found["held"]) == list_capabilities(kind)
        assert set(found["reached"]) == {"status", *list_capabilities(kind)}


@pytest.mark.covers("A17", "A18")
@pytest.mark.on_ray
async def test_context_says_whose_it_is(open_tree: Opener) -> None:
    """A18, A17: agent, session, call and workspace of the session itself, for every agent and kind."""
    agents = {"default": AgentSpec(), "clerk": AgentSpec(), "judge": AgentSpec()}
    async with open_tree(asking("look_on"), tools=[look_on], agents=agents) as tree:
        calls = set()
        for agent, kind in (
            ("default", SessionKind.MAIN),
            ("clerk", SessionKind.BRANCH),
            ("judge", SessionKind.WORKER),
            ("default", SessionKind.WORKER),
        ):
            options = {} if kind is SessionKind.MAIN else {"agent": agent}
            session, (message,) = await answers(tree, kind, **options)
            found = json.loads(message.text)
            assert (found["agent"], found["session"]) == (agent, session)
            assert Path(found["root"]) == open_tree.workspace
            calls.add(found["call"])
        assert len(calls) == 4


@pytest.mark.covers("A20")
@pytest.mark.parametrize("kind", [SessionKind.MAIN, SessionKind.BRANCH])
async def test_without_a_channel_nobody_holds_one(open_tree: Opener, kind: SessionKind) -> None:
    """A20: None for Main and Branch of a tree without one; ``message`` is not offered, and it says why."""
    shown: list[str] = []

    def reply(request: ModelRequest) -> Answer:
        if request.turn > 1:
            return json.dumps([each.name for each in request.tools])
        return [script_call("message", text="hello"), script_call("look_all"), script_call("look_1")]

    tools = [look_all, looks({"channel"}, 1)]
    async with open_tree(FunctionModel(reply), tools=tools, approvals="auto", channel=None) as tree:
        if kind is SessionKind.MAIN:
            shown = json.loads(await tree.main.send("look"))
            found = results(tree, "main")
        else:
            child = await tree.main.spawn(kind, "look")
            shown = json.loads((await child.result()).summary)
            found = results(tree, child.session_id)
        assert {"write", "exec", "look_1"} <= set(shown)
        assert {"message", "look_all"}.isdisjoint(shown)
        for message, name in zip(found[:2], ("message", "look_all"), strict=True):
            assert f"does not hold {name} (channel: it needs a channel, and no session at or" in message.text
        assert json.loads(found[2].text)["held"] == []


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True])
async def test_channel_comes_from_the_nearest_session_that_has_one(open_tree: Opener, own: bool) -> None:
    """A Branch with a callable approver has one in a tree without; its siblings have none."""
    optional = looks({"channel"}, 1)

    async def nobody(request: ApprovalRequest) -> ApprovalAnswer | None:
        return None

    async with open_tree(asking("look_1"), tools=[optional], channel=None) as tree:
        options = {"approver": nobody} if own else {}
        _, (message,) = await answers(tree, SessionKind.BRANCH, **options)
        assert json.loads(message.text)["held"] == (["channel"] if own else [])
        _, (message,) = await answers(tree, SessionKind.MAIN)
        assert json.loads(message.text)["held"] == []
