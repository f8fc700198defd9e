"""A canvas in a browser: surfaces of each version, actions as text from outside, questions to the frame."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from playwright.async_api import Browser, expect

from sessiontree import ExecutionError, SessionTree
from sessiontree.contracts.facts.session_facts import CallResolved, MessageReceived
from sessiontree.contracts.values.messages import ImageContent
from sessiontree_tools.pages.canvas_picture import DRAWN
from tests.behaviour.fact_fixtures import facts_of, until
from tests.system.pages.canvas_fixtures import (
    FIRST,
    LATER,
    NEWEST,
    canvas_site,
    canvas_tree,
    do,
    frame_in,
    lines_of,
)
from tests.system.pages.page_fixtures import site_of


@pytest.mark.covers("S12", "U14")
async def test_person_acts_on_surfaces_of_each_version(tmp_path: Path, browser: Browser) -> None:
    """What was entered comes with the action; it is marked as text from outside, and no owner's."""
    async with canvas_site(tmp_path, browser) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        shown = await do(tree, "a2ui_push", jsonl=lines_of([*LATER, *NEWEST, *FIRST]))
        assert shown["surfaces"] == {"table": 15, "sum": 3, "old": 4}
        frame = frame_in(screen)
        await expect(frame.get_by_text("There are 3 of them")).to_be_visible()
        await expect(frame.get_by_text("Hello of v0.8")).to_be_visible()
        await expect(frame.get_by_text("Ada <b>L.</b>")).to_be_visible()
        await frame.get_by_label("Your name").fill("Mary </canvas>")
        await frame.get_by_label("Vegetarian").check()
        await frame.get_by_role("button", name="Reserve").click()
        (heard,) = [fact for fact in await until(tree, MessageReceived) if fact.message.origin == "canvas"]
        text = heard.message.text
        assert 'kind="canvas action"' in text
        action = json.loads(text.splitlines()[3])
        assert action["name"] == "reserve"
        assert action["context"] == {"name": "Mary </canvas>", "veg": True}
        assert [(each.id, each.is_owner) for each in heard.asked_by] == [("canvas", False)]
        # a later change of other data leaves what was entered
        later = {"version": "v0.9.1", "updateDataModel": {"surfaceId": "table", "path": "/seats", "value": 5}}
        await do(tree, "a2ui_push", jsonl=json.dumps(later))
        await expect(frame.get_by_text("Seats 5")).to_be_visible()
        await expect(frame.get_by_label("Your name")).to_have_value("Mary </canvas>")
        assert screen.problems == []


@pytest.mark.covers("U12")
async def test_frame_is_asked(tmp_path: Path, browser: Browser) -> None:
    """Scripts and descriptions come back marked; without a page that shows it, the error says so."""
    async with canvas_site(tmp_path, browser) as (tree, site):
        with pytest.raises(ExecutionError, match="no page shows the canvas"):
            await do(tree, "eval", code="1 + 1")
        await do(tree, "present", html="<title>Plan</title><h1>Plan B</h1><button>Go</button>")
        screen = await site.open_tree(tree.tree_id)
        await expect(frame_in(screen).get_by_text("Plan B")).to_be_visible()
        await expect(screen.panel.get_by_role("heading")).to_contain_text("A page of main")
        answer = await do(tree, "eval", code="document.title + [location.origin, origin].join()")
        assert '{"value":"Planhttp' in answer
        assert 'null"}' in answer
        assert "EXTERNAL_UNTRUSTED_CONTENT" in answer
        assert '{"error":"TypeError' in await do(tree, "eval", code="null.x")
        assert "at most 60000 are taken" in await do(tree, "eval", code="'x'.repeat(100000)")
        seen = await do(tree, "snapshot")
        assert r"heading 1: Plan B\nbutton: Go" in seen
        await do(tree, "hide")
        await expect(screen.page.locator("iframe")).to_have_count(0)
        with pytest.raises(ExecutionError, match="no page shows the canvas"):
            await do(tree, "snapshot")


PAGE = """<style>body { margin: 0; background: rgb(200, 30, 60) }
input { display: block; width: 200px; height: 40px; background: white }</style><input aria-label="Name">
<div style="height: 4000px"></div><div style="height: 2000px; background: rgb(0, 90, 40)"></div>
<script>document.querySelector("input").addEventListener("input", (event) => {
  document.body.style.background = event.target.value;
});</script>"""


@pytest.mark.covers("U12")
async def test_snapshot_is_a_picture_of_the_frame_as_it_is(tmp_path: Path, browser: Browser) -> None:
    """With what was entered and changed since the page was presented, at the place that is scrolled to."""
    async with canvas_site(tmp_path, browser) as (tree, site):
        await do(tree, "present", html=PAGE)
        screen = await site.open_tree(tree.tree_id)
        await frame_in(screen).get_by_label("Name").fill("rgb(20, 40, 220)")
        top = await picture_of(tree)
        assert top.getpixel((top.width // 2, top.height // 2)) == (20, 40, 220)
        field = {top.getpixel((x, 20)) for x in range(4, 190)}
        assert (255, 255, 255) in field and len(field) > 3  # letters
        await do(tree, "eval", code="scrollTo(0, 4500)", timeout_s=60)
        low = await picture_of(tree)
        assert low.size == top.size
        assert low.getpixel((low.width // 2, low.height // 2)) == (0, 90, 40)
        await do(tree, "a2ui_push", jsonl=lines_of(LATER))
        await expect(frame_in(screen).get_by_text("A table for tonight")).to_be_visible()
        surfaces = await picture_of(tree)
        assert len(surfaces.getcolors(1 << 24) or ()) > 50


async def picture_of(tree: SessionTree) -> Image.Image:
    """Return the picture of a snapshot, as the image process leaves it."""
    result = await tree.main.call("canvas", {"action": "snapshot", "timeout_s": 60})
    assert DRAWN in str(result.output)
    message = (await facts_of(tree, CallResolved))[-1].message
    (block,) = [each for each in message.content if isinstance(each, ImageContent)]
    return Image.open(BytesIO(b64decode(block.data))).convert("RGB")


@pytest.mark.covers("U13")
async def test_page_of_the_workspace_is_shown_as_it_changes(tmp_path: Path, browser: Browser) -> None:
    """In two pages, without a reload of either; a page that is gone says so, and comes back."""
    async with canvas_site(tmp_path, browser) as (tree, site):
        page = tmp_path / "workspace" / "page.html"
        await asyncio.to_thread(page.write_text, "<h1>first</h1>")
        await do(tree, "present", path="page.html")
        screens = [await site.open_tree(tree.tree_id) for _ in range(2)]
        for each in screens:
            await expect(frame_in(each).get_by_role("heading")).to_have_text("first")
        await asyncio.to_thread(page.write_text, "<h1>the second</h1>")
        for each in screens:
            await expect(frame_in(each).get_by_role("heading")).to_have_text("the second")
        assert (await do(tree, "present"))["viewers"] == 2
        await asyncio.to_thread(page.unlink)
        await expect(frame_in(screens[0]).get_by_text("This page can't be shown")).to_be_visible()
        await asyncio.to_thread(page.write_text, "<h1>third</h1>")
        await expect(frame_in(screens[0]).get_by_role("heading")).to_have_text("third")


@pytest.mark.covers("S12")
async def test_canvas_survives_its_program(tmp_path: Path, browser: Browser) -> None:
    """A page that is opened when nobody runs the tree shows it, and sends nothing."""
    async with canvas_tree(tmp_path) as tree:
        await do(tree, "a2ui_push", jsonl=lines_of(LATER))
        tree_id = tree.tree_id
    async with site_of(tmp_path / "state", browser) as site:
        screen = await site.open_tree(tree_id)
        await expect(frame_in(screen).get_by_text("A table for tonight")).to_be_visible()
        await frame_in(screen).get_by_role("button", name="Reserve").click()
        await expect(screen.panel.locator(".note")).to_contain_text("the action was not sent")
