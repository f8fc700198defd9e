"""The protocol's own servers on Node, in an environment of their own: ``make setup-servers``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentSpec, McpServer, ScriptedModel, SessionTree, script_call
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from tests.behaviour.fact_fixtures import results, until
from tests.behaviour.mcp_fixtures import accept_listed

pytestmark = pytest.mark.long
SERVERS = Path(__file__).parents[3] / ".ci" / "servers" / "node_modules" / ".bin"


def open_tree(place: Path, model: ScriptedModel, name: str, server: McpServer, *tools: str) -> SessionTree:
    """Return a tree whose sessions hold tools of a server."""
    agents = {"default": AgentSpec(tools=tuple(f"mcp__{name}__{tool}" for tool in tools))}
    options: dict[str, Any] = {"model": model, "mcp": {name: server}, "agents": agents}
    return SessionTree(place, state_dir=place.parent / "state", backend="local", **options)


async def test_worker_reads_files_and_a_branch_writes_one_after_a_yes(tmp_path: Path) -> None:
    """``server-filesystem``: what is outside its directory stays so, and its writes climb."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "a.txt").write_text("one\n")
    (tmp_path / "secret.txt").write_text("hidden")
    server = McpServer(
        command=str(SERVERS / "mcp-server-filesystem"),
        args=(str(place),),
        tiers={"read_text_file": "read-only"},
    )
    await accept_listed(tmp_path / "state", files=server)
    reads: Any = [
        script_call("mcp__files__read_text_file", path=str(path))
        for path in (place / "a.txt", tmp_path / "secret.txt")
    ]
    write = script_call("mcp__files__write_file", path=str(place / "b.txt"), content="two\n")
    model = ScriptedModel({"main": ["hello"], "main/w1": [reads, "read"], "main/b1": [write, "written"]})
    async with open_tree(place, model, "files", server, "read_text_file", "write_file") as tree:
        await (await tree.main.spawn("worker", "read")).result()
        found, outside = results(tree, "main/w1")
        assert "one" in found.text
        assert outside.is_error
        assert "hidden" not in outside.text
        branch = await tree.main.spawn("branch", "write")
        await until(tree, ApprovalWaiting)
        (pending,) = tree.approvals.pending()
        assert (pending.request.session_id, pending.request.tier) == ("main/b1", "Elevated")
        assert not (place / "b.txt").exists()
        await pending.approve()
        assert (await branch.result()).summary == "written"
    assert (place / "b.txt").read_text() == "two\n"


async def test_what_a_server_has_is_a_result_or_refused_by_name(tmp_path: Path) -> None:
    """``server-everything``: text and structured content reach the session; a damaged image does not."""
    place = tmp_path / "place"
    place.mkdir()
    tools = ("echo", "get-sum", "get-structured-content", "get-tiny-image")
    server = McpServer(
        command=str(SERVERS / "mcp-server-everything"),
        args=("stdio",),
        tiers=dict.fromkeys(tools, "read-only"),
    )
    await accept_listed(tmp_path / "state", every=server)
    arguments: list[dict[str, Any]] = [{"message": "hi"}, {"a": 2, "b": 3}, {"location": "New York"}, {}]
    calls: Any = [
        script_call(f"mcp__every__{tool}", **given) for tool, given in zip(tools, arguments, strict=True)
    ]
    model = ScriptedModel({"main": ["hello"], "main/w1": [calls, "done"]})
    async with open_tree(place, model, "every", server, *tools) as tree:
        await (await tree.main.spawn("worker", "try all")).result()
        echo, total, weather, image = results(tree, "main/w1")
    assert [each.text for each in (echo, total, weather) if each.is_error] == []
    assert "hi" in echo.text
    assert "5" in total.text
    assert "temperature" in weather.text
    assert image.is_error, "the image of this release is damaged: Pillow can't read it either"
    assert "not a PNG, JPEG, GIF or WebP image" in image.text
