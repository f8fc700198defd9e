"""Tools of a real MCP server in trees: tiers, approvals, results, losses, and input that a person gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentConfig, AgentSpec, PolicyWarning, ScriptedModel, script_call
from sessiontree.contracts.facts.session_facts import CallDelegated, CallIntended, CallResolved, InputGiven
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from tests.behaviour.fact_fixtures import facts_of, results, until
from tests.behaviour.mcp_fixtures import READING, accept, fixture_server, notes, pin_place
from tests.behaviour.question_fixtures import ENDLESS, waiting
from tests.behaviour.tree_fixtures import Opener

pytestmark = pytest.mark.slow
ALL = ("add", "point", "picture", "link", "environment", "fail", "wait", "crash", "fill", "greet")
AGENTS = {"default": AgentSpec(tools=tuple(f"mcp__fix__{name}" for name in ALL))}


def fix(tool: str, **arguments: Any) -> Any:
    """Return a scripted call of a tool of the server."""
    return script_call(f"mcp__fix__{tool}", **arguments)


@pytest.mark.covers("A41")
async def test_worker_uses_what_the_owner_lowered(open_tree: Opener, tmp_path: Path) -> None:
    """Results are marked text, structured content, images and links; an error of the server is the tool's."""
    server = fixture_server(tmp_path, tiers=READING)
    await accept(pin_place(open_tree), fix=server)
    calls: Any = [
        [fix("add", a=1, b=2), fix("point", x=3), fix("picture"), fix("link"), fix("fail")],
        [fix("fill", chars=300_000)],
        "done",
    ]
    model = ScriptedModel({"main": ["hello"], "main/w1": calls})
    async with open_tree(model, mcp={"fix": server}, agents=AGENTS) as tree:
        worker = await tree.main.spawn("worker", "go")
        assert (await worker.result()).summary == "done"
        add, point, picture, link, fail, fill = results(tree, "main/w1")
        assert "UNTRUSTED" in add.text.upper()
        assert "3" in add.text
        assert '"x": 3' in point.text or '"x":3' in point.text
        assert [getattr(block, "mime_type", "") for block in picture.content[1:]] == ["image/png"]
        assert "file:///notes.txt" in link.text
        assert fail.is_error
        assert "Error executing tool fail" in fail.text
        assert len(fill.text) < 210_000
        assert await facts_of(tree, CallIntended) == []


@pytest.mark.covers("A41")
async def test_tool_is_elevated_until_the_owner_lowers_it(open_tree: Opener, tmp_path: Path) -> None:
    """A Branch's call climbs as a request, and runs once it is approved."""
    server = fixture_server(tmp_path)
    await accept(pin_place(open_tree), fix=server)
    model = ScriptedModel({"main": ["hello"], "*": [fix("add", a=1, b=2), "done"]})
    options = {"mcp": {"fix": server}, "agents": AGENTS}
    async with open_tree(model, limits=ENDLESS, **options) as tree:
        branch = await tree.main.spawn("branch", "go")
        await until(tree, ApprovalWaiting)
        assert notes(tmp_path) == []
        (request,) = tree.approvals.pending()
        assert request.request.tool == "mcp__fix__add"
        await request.approve()
        assert (await branch.result()).summary == "done"
        assert notes(tmp_path) == ["add 1 2"]
        worker = await tree.main.spawn("worker", "go")
        await worker.result()
        (message,) = results(tree, "main/w1")
        assert message.is_error
        assert notes(tmp_path) == ["add 1 2"]


async def test_loss_ends_calls_typed_and_the_server_starts_again(open_tree: Opener, tmp_path: Path) -> None:
    """A call that was cut says that its outcome is unknown; a time-out ends one call and not the server."""
    tiers = {**READING, "crash": "workspace"}
    server = fixture_server(tmp_path, tiers=tiers)
    await accept(pin_place(open_tree), fix=server)
    add = fix("add", a=2, b=2)
    calls = [fix("crash"), add, fix("wait", seconds=60), add, "done"]
    model = ScriptedModel({"main": ["hello"], "*": calls})
    config = AgentConfig(tool_timeouts={"mcp__fix__wait": 1.5})
    agents = {"default": AgentSpec(tools=AGENTS["default"].tools, config=config)}
    async with open_tree(model, mcp={"fix": server}, agents=agents) as tree:
        branch = await tree.main.spawn("branch", "go")
        assert (await branch.result()).summary == "done"
        crash, again, wait, after = results(tree, "main/b1")
        assert "whether the call was carried out is unknown" in crash.text
        assert wait.is_error
        assert "4" in again.text
        assert "4" in after.text
        assert notes(tmp_path).count("crash") == 1


@pytest.mark.parametrize("mode", ["modern", pytest.param("handshake", marks=pytest.mark.long)])
async def test_input_of_a_server_climbs_like_a_question(open_tree: Opener, tmp_path: Path, mode: str) -> None:
    """Two rounds, in order, with the server's own state in the journal; the answers reach the server."""
    server = fixture_server(tmp_path, mode, tiers={"greet": "workspace"})
    await accept(pin_place(open_tree), fix=server)
    model = ScriptedModel({"main": ["hello"], "*": [fix("greet"), "done"]})
    options = {"mcp": {"fix": server}, "agents": AGENTS}
    async with open_tree(model, limits=ENDLESS, **options) as tree:
        branch = await tree.main.spawn("branch", "go")
        (first,) = await waiting(tree)
        assert "The MCP server fix asks: The first name?" in first.question.items[0].question
        await first.answer("Ada", surface="notebook")
        (second,) = await waiting(tree, 2)
        assert "The second name?" in second.question.items[0].question
        await second.answer("Bob")
        assert (await branch.result()).summary == "done"
        (message,) = results(tree, "main/b1")
        assert "hello Ada and Bob" in message.text
        asked = [fact.input for fact in await facts_of(tree, CallDelegated)]
        states: list[Any] = [one.state for one in asked if one is not None]
        keys = [["first"], ["second"]] if mode == "modern" else [["1"], ["1"]]
        assert [list(state["requests"]) for state in states] == keys
        assert all(state["request_state"] and state["digest"] for state in states)
        assert len(await facts_of(tree, InputGiven)) == 2
        assert json.dumps(notes(tmp_path)).count("greet") == (3 if mode == "modern" else 1)


@pytest.mark.covers("A41")
async def test_changed_tool_is_refused_by_name(open_tree: Opener, tmp_path: Path) -> None:
    """The call is refused, the others go on; a changed configuration leaves all its tools out."""
    server = fixture_server(tmp_path, tiers=READING)
    await accept(pin_place(open_tree), fix=server)
    (tmp_path / "changed").touch()
    model = ScriptedModel({"main": ["hello"], "*": [[fix("add", a=1, b=2), fix("point", x=1)], "done"]})
    options = {"agents": AGENTS}
    async with open_tree(model, mcp={"fix": server}, **options) as tree:
        worker = await tree.main.spawn("worker", "go")
        await worker.result()
        add, point = results(tree, "main/w1")
        assert "has changed since its owner accepted it" in add.text
        assert not point.is_error
        assert notes(tmp_path) == []
        assert [fact.outcome for fact in await facts_of(tree, CallResolved)] == ["error", "ok"]
    other = server.model_copy(update={"args": (*server.args, "more")})
    with pytest.warns(PolicyWarning, match="sessiontree mcp accept fix"):
        tree = open_tree(model, mcp={"fix": other})
    assert not any(row.name.startswith("mcp__") for row in tree._config.tools)
