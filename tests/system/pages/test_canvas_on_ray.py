"""A canvas of a tree on Ray: shown, asked and acted on in a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from sessiontree import AgentSpec, FunctionModel, Rule, Runtime, SessionTree
from sessiontree.contracts.facts.session_facts import MessageReceived
from tests.behaviour.fact_fixtures import until
from tests.system.pages.canvas_fixtures import LATER, do, frame_in, lines_of
from tests.system.pages.page_fixtures import site_of

pytestmark = pytest.mark.slow


@pytest.mark.covers("S12")
async def test_canvas_is_shown_on_ray(tmp_path: Path, ray_runtime: Runtime, browser: Browser) -> None:
    """The host's call changes it, a frame answers the host, and an action comes back marked."""
    workspace = tmp_path / "workspace"
    await asyncio.to_thread(workspace.mkdir)
    async with (
        SessionTree(
            workspace,
            model=FunctionModel(lambda request: "heard"),
            runtime=ray_runtime,
            approver=[Rule(tool="canvas", answer="approve")],
            agents={"default": AgentSpec(tools=("canvas",))},
        ) as tree,
        site_of(ray_runtime.state_dir, browser) as site,
    ):
        screen = await site.open_tree(tree.tree_id)
        await do(tree, "a2ui_push", jsonl=lines_of(LATER))
        frame = frame_in(screen)
        await expect(frame.get_by_text("A table for tonight")).to_be_visible()
        assert '{"value":3}' in await do(tree, "eval", code="1 + 2")
        await frame.get_by_role("button", name="Reserve").click()
        heard = [fact for fact in await until(tree, MessageReceived) if fact.message.origin == "canvas"]
        assert "canvas action" in heard[0].message.text
        assert screen.problems == []
