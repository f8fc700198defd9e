"""Hostile content of a canvas: it reaches nothing of the page, of the server, or of the network."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from sessiontree.contracts.facts.session_facts import MessageReceived
from tests.behaviour.fact_fixtures import facts_of
from tests.system.pages.canvas_fixtures import canvas_site, do, frame_in, lines_of
from tests.system.pages.page_fixtures import Screen

ATTACKS = """
const found = {};
const tries = async (name, attempt) => {
  try { found[name] = String(await attempt()); } catch (error) { found[name] = `stopped: ${error.name}`; }
};
const address = new URL(document.URL);
(async () => {
  await tries("parent", () => parent.document.title);
  await tries("top", () => top.location.href);
  await tries("lead", () => { top.location = "about:blank"; return "tried"; });
  await tries("cookie", () => document.cookie);
  await tries("storage", () => localStorage.length);
  await tries("database", () => new Promise((settle, fail) => {
    const asked = indexedDB.open("x");
    asked.onsuccess = () => settle("opened");
    asked.onerror = () => fail(asked.error);
  }));
  await tries("api", () =>
    fetch(`${address.origin}/trees`, { credentials: "include" }).then((it) => it.status));
  const tree = `${address.origin}${address.pathname.split("/canvas/")[0]}`;
  await tries("act", () => fetch(`${tree}/ask`,
    { method: "POST", mode: "no-cors", body: "{}" }).then((it) => it.type));
  await tries("private", () => fetch(PRIVATE).then((it) => it.text()));
  await tries("image", () => new Promise((settle, fail) => {
    const image = new Image();
    image.onload = () => settle("loaded");
    image.onerror = () => fail(new Error("no image"));
    image.src = `${PRIVATE}/image.png`;
  }));
  await tries("beacon", () => navigator.sendBeacon(PRIVATE, "x"));
  await tries("socket", () => new Promise((settle, fail) => {
    const socket = new WebSocket(PRIVATE.replace("http", "ws"));
    socket.onopen = () => settle("opened");
    socket.onerror = () => fail(new Error("no socket"));
  }));
  await tries("worker", () => new Worker(URL.createObjectURL(new Blob(["1"]))));
  await tries("window", () => open("about:blank"));
  await tries("form", () => { document.forms[0].submit(); return "tried"; });
  for (const kind of ["ready", "answer", "drawn", "farewell"]) {
    parent.postMessage({ kind, id: "1", text: "{}" }, "*");
  }
  const claim = { name: "approve", context: { id: "all", approve: true } };
  parent.postMessage({ kind: "action", action: claim }, "*");
  parent.postMessage({ kind: "action", action: { name: "x".repeat(10_000_000) } }, "*");
  parent.postMessage(null, "*");
  document.getElementById("found").textContent = JSON.stringify(found);
})();
"""
STEALING = """
<input autofocus>
<script>
let tried = 0;
const field = document.querySelector("input");
setInterval(() => {
  window.focus();
  field.blur();
  field.focus();
  parent.postMessage({ kind: "action", action: { name: "stolen", context: {} } }, "*");
  if (document.hasFocus()) console.log(`stolen ${++tried}`);
}, 20);
</script>
"""
"""Takes the focus by itself all the time, and sends actions."""
CONSUME = "open('about:blank').close()"
"""A script that the test runs counts as a click; after this one none is left that counts."""
HARMLESS = {"form": "tried", "window": "null", "beacon": "true", "worker": "[object Worker]"}
"""What does not throw, and does nothing: the sandbox ignores it, or the policy stops it later."""


@asynccontextmanager
async def private_address() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Listen on this machine; yield the address, and what came."""
    came: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read(1_000))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came
    finally:
        server.close()
        await server.wait_closed()


async def found_by(screen: Screen) -> dict[str, str]:
    """Return what the attacks of a frame came to."""
    place = frame_in(screen).locator("#found")
    await expect(place).not_to_be_empty()
    return dict(json.loads(await place.inner_text()))


@pytest.mark.covers("U13")
async def test_hostile_page_reaches_nothing(tmp_path: Path, browser: Browser) -> None:
    """Neither the console nor the network; what it sends by itself does not reach the session."""
    async with canvas_site(tmp_path, browser) as (tree, site), private_address() as (address, came):
        screen = await site.open_tree(tree.tree_id)
        html = (
            f'<form action="{address}/form"></form><pre id="found"></pre>'
            f'<link rel=prefetch href="{address}/p"><iframe src="{address}/frame"></iframe>'
            f'<script>const PRIVATE = "{address}";{ATTACKS}</script>'
            f'<meta http-equiv=refresh content="1; url={address}/led">'
            f'<object data="{address}/object"></object>'
        )
        await do(tree, "present", html=html)
        found = await found_by(screen)
        left = {name: what for name, what in found.items() if not what.startswith("stopped: ")}
        assert left == HARMLESS
        element = screen.page.locator("session-tree").locator("iframe.canvas-frame")
        await expect(element).to_have_attribute(
            "sandbox", "allow-scripts"
        )  # besides the policy of its document
        await expect(screen.panel.locator(".note")).to_contain_text("An action without a click was dropped.")
        assert not [fact for fact in await facts_of(tree, MessageReceived) if fact.message.origin == "canvas"]
        assert came == []
        assert "/t/" in screen.page.url
        await expect(screen.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.covers("U13")
@pytest.mark.parametrize("tries", [20, pytest.param(800, marks=pytest.mark.long)])
async def test_frame_that_takes_the_focus_sends_nothing_by_a_click_elsewhere(
    tmp_path: Path, browser: Browser, tries: int
) -> None:
    """A click on the console counts for no action of the frame, as long as browsers count it as one."""
    async with canvas_site(tmp_path, browser) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        seen = asyncio.Queue[str]()
        screen.page.on("console", lambda message: seen.put_nowait(message.text))
        await screen.page.evaluate(CONSUME)
        await do(tree, "present", html=STEALING)
        while not (await seen.get()).startswith("stolen"):
            pass
        for clicks in range(3):
            await screen.page.mouse.click(200 + clicks, 700)  # in the list of sessions, below its rows
            for _ in range(tries // 3):
                await seen.get()
        assert not [fact for fact in await facts_of(tree, MessageReceived) if fact.message.origin == "canvas"]
        note = screen.panel.locator(".note")
        await expect(note).to_have_text(re.compile("waits for some seconds|without a click was dropped"))


@pytest.mark.covers("U14")
async def test_click_in_the_frame_counts_after_one_elsewhere(tmp_path: Path, browser: Browser) -> None:
    """Its action is sent as soon as the other click does not count any more."""
    html = """<button onclick='sendAction("meant", {})'>Send it</button>"""
    async with canvas_site(tmp_path, browser) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        await do(tree, "present", html=html)
        button = frame_in(screen).get_by_role("button", name="Send it")
        await screen.panel.locator("h2").first.click()
        await button.click()
        await expect(screen.panel.locator(".note")).to_contain_text("An action waits for some seconds")
        await expect(screen.panel.locator(".note")).to_contain_text("It approves nothing.")
        heard = [fact for fact in await facts_of(tree, MessageReceived) if fact.message.origin == "canvas"]
        assert len(heard) == 1


async def test_address_of_a_frame_alone_is_of_no_use(tmp_path: Path, browser: Browser) -> None:
    """A window of its own is refused, and nobody is let in without a cookie; the policy holds there, too."""
    async with canvas_site(tmp_path, browser) as (tree, site):
        await do(tree, "present", html="<script>document.title = origin + document.cookie</script>")
        context = await site.context()
        screen = await site.open_tree(tree.tree_id, context)
        address = f"{site.origin}/t/{tree.tree_id}/canvas/main"
        answer = await screen.page.request.get(address, headers={"sec-fetch-dest": "iframe"})
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'; ")
        assert "allow-same-origin" not in policy
        opened = await context.new_page()
        told = await opened.goto(address)
        assert told is not None
        assert told.status == 403
        stranger = await (await site.context()).new_page()
        refused = await stranger.goto(address)
        assert refused is not None
        assert refused.status == 401


async def test_surfaces_that_never_end_are_cut(tmp_path: Path, browser: Browser) -> None:
    """Parts in each other over two messages, doubled again and again, and names of prototypes."""
    double = [
        {"id": f"d{level}", "component": "Row", "children": [f"d{level + 1}", f"d{level + 1}"]}
        for level in range(30)
    ]
    messages: list[dict[str, Any]] = [
        {"version": "v1.0", "createSurface": {"surfaceId": name, "components": parts}}
        for name, parts in {
            "circle": [
                {"id": "root", "component": "Card", "child": "a"},
                {"id": "a", "component": "Card", "child": "b"},
            ],
            "many": [
                {"id": "root", "component": "Column", "children": ["d0"]},
                *double,
                {"id": "d30", "component": "Divider"},
            ],
            "__proto__": [
                {"id": "root", "component": "Column", "children": ["constructor", "js", "out"]},
                {"id": "constructor", "component": "Text", "text": {"path": "/__proto__/polluted"}},
                {"id": "js", "component": "Image", "url": "javascript:document.title='x'"},
                {"id": "out", "component": "Image", "url": "http://127.0.0.1:1/x.png"},
            ],
        }.items()
    ]
    async with canvas_site(tmp_path, browser) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        later = [
            {
                "version": "v1.0",
                "updateComponents": {
                    "surfaceId": "circle",
                    "components": [{"id": "b", "component": "Card", "child": "a"}],
                },
            },
            {
                "version": "v1.0",
                "updateDataModel": {
                    "surfaceId": "__proto__",
                    "path": "/__proto__/polluted",
                    "value": "a value of its own",
                },
            },
        ]
        await do(tree, "a2ui_push", jsonl=lines_of(messages))
        for each in later:
            await do(tree, "a2ui_push", jsonl=json.dumps(each))
        frame = frame_in(screen)
        await expect(frame.get_by_text("a contains itself")).to_be_visible()
        await expect(frame.get_by_text("a value of its own")).to_be_visible()
        await expect(frame.locator(".missing")).to_have_count(2)
        assert await frame.locator("hr").count() < 2_100
        answer = await do(tree, "eval", code="String({}.polluted) + document.title + document.images.length")
        assert '{"value":"undefinedCanvas0"}' in answer
