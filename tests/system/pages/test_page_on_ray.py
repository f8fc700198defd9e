"""A tree on Ray in a browser: it grows, and a person approves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from sessiontree import FunctionModel, ModelRequest, Runtime, SessionTree, script_call
from sessiontree.models.answers import Answer
from tests.system.pages.page_fixtures import site_of

pytestmark = pytest.mark.slow


def _answer(request: ModelRequest) -> Answer:
    if request.session_id == "main" and request.turn == 1:
        return [script_call("exec", command="touch made")]
    return f"{request.session_id} is **done**"


async def test_person_approves_on_ray(tmp_path: Path, ray_runtime: Runtime, browser: Browser) -> None:
    """Its Worker shows up and ends, and its command runs when a person says so in the page."""
    workspace = tmp_path / "workspace"
    await asyncio.to_thread(workspace.mkdir)
    async with (
        SessionTree(workspace, model=FunctionModel(_answer), runtime=ray_runtime, approvals="always") as tree,
        site_of(ray_runtime.state_dir, browser) as site,
    ):
        screen = await site.open_tree(tree.tree_id)
        worker = await tree.main.spawn("worker", "look", label="reader")
        await worker.result()
        await expect(screen.row("reader")).to_contain_text("completed")
        reply = asyncio.ensure_future(tree.main.send("begin"))
        await screen.page.get_by_role("button", name="waits for you").click()
        await screen.cards.get_by_role("button", name="Approve").click()
        assert await reply == "main is **done**"
        assert screen.problems == []
