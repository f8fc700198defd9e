"""A live tree in a browser: it grows, and a person approves, denies, steers, interrupts and cancels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from sessiontree import AgentSpec, AsyncFunctionModel, ModelRequest, SessionFailed, SessionTree, script_call
from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import facts_of
from tests.system.pages.page_fixtures import Site, site_of

PRESS_TWICE = """() => new Promise((resolve) => {
  const root = document.querySelector("session-tree").shadowRoot;
  const press = () =>
    root.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
  new MutationObserver((changes, observer) => {
    if (!changes.some((each) => [...each.removedNodes].some((node) => node.matches?.(".card")))) return;
    observer.disconnect();
    press();
    const busy = root.querySelectorAll(".card[aria-busy]").length;
    resolve(root.querySelectorAll(".card").length - busy);
  }).observe(root, { childList: true, subtree: true });
  press();
})"""
"""Press "d", and again when the focus went to the next card; gives how many cards nobody decided."""
NOTE_CARDS = """() => {
  const list = document.querySelector("session-tree").shadowRoot;
  new MutationObserver((changes) => {
    const left = changes.some((each) => [...each.removedNodes].some((node) => node.matches?.(".card")));
    if (left) window.goneAt ??= Date.now();
  }).observe(list, { childList: true, subtree: true });
}"""


QUESTIONS: list[dict[str, Any]] = [
    {"question": "Which <b>colour</b>?", "options": [{"label": "red"}, {"label": "blue"}]},
    {"question": "Why?", "allow_free_text": True},
]


class Work:
    """What the sessions of a test do: Main runs commands, one a turn, as long as it has one."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.commands = ["touch one", "touch two", "touch three"]
        self.at_once = 1

    async def answer(self, request: ModelRequest) -> Answer:
        """Return a reply."""
        if request.session_id != "main":
            await self.go_on.wait()
            return "looked"
        told = request.messages[-1]
        if getattr(told, "text", "") == "wait":
            await self.go_on.wait()
            return "waited"
        if getattr(told, "text", "") == "ask":
            return [script_call("ask_user", questions=[*QUESTIONS])]
        if self.commands:
            now, self.commands = self.commands[: self.at_once], self.commands[self.at_once :]
            return [script_call("exec", command=each) for each in now]
        return "**done**"


@asynccontextmanager
async def live_site(tmp_path: Path, browser: Browser, work: Work) -> AsyncIterator[tuple[SessionTree, Site]]:
    """Run a tree and serve it."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with (
        SessionTree(
            workspace,
            model=AsyncFunctionModel(work.answer),
            backend="local",
            state_dir=tmp_path / "state",
            approvals="always",
            agents={"default": AgentSpec(tools=("ask_user", "exec"))},
            purpose="a tree of tests",
        ) as tree,
        site_of(tmp_path / "state", browser) as site,
    ):
        yield tree, site


async def test_person_watches_and_decides(tmp_path: Path, browser: Browser) -> None:
    """Rows come as sessions do; a mouse approves, keys deny with a reason and approve for good."""
    work = Work()
    async with live_site(tmp_path, browser, work) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        await expect(screen.rows).to_have_count(1)
        await tree.main.spawn("worker", "look", label="reader")
        await expect(screen.row("reader")).to_be_visible()
        reply = asyncio.ensure_future(tree.main.send("begin"))
        await screen.page.get_by_role("button", name="waits for you").click()
        card = screen.cards.filter(has_text="touch one")
        await card.get_by_role("button", name="Approve").click()
        card = screen.cards.filter(has_text="touch two")
        await expect(card).to_be_visible()
        assert (tmp_path / "workspace" / "one").exists()
        await card.focus()
        await screen.page.keyboard.press("r")
        await screen.page.keyboard.type("not <b>here</b>")
        await screen.page.keyboard.press("Enter")
        await screen.page.keyboard.press("d")
        card = screen.cards.filter(has_text="touch three")
        await expect(card).to_be_visible()
        await card.focus()
        await screen.page.keyboard.press("Shift+A")
        assert await reply == "**done**"
        assert not (tmp_path / "workspace" / "two").exists()
        assert (tmp_path / "workspace" / "three").exists()
        await expect(screen.cards).to_have_count(0)
        await screen.row("main").click()
        await screen.tab("Transcript").click()
        await expect(screen.panel.get_by_text("not <b>here</b>", exact=True)).to_be_visible()
        await expect(screen.panel.locator("strong", has_text="done")).to_be_visible()
        work.go_on.set()
        await expect(screen.row("reader")).to_contain_text("completed")
        assert screen.problems == []


async def test_person_answers_a_question(tmp_path: Path, browser: Browser) -> None:
    """With options and own words, in one of two pages; what is left out is asked for."""
    work = Work()
    work.commands = []
    async with live_site(tmp_path, browser, work) as (tree, site):
        screen, other = await site.open_tree(tree.tree_id), await site.open_tree(tree.tree_id)
        reply = asyncio.ensure_future(tree.main.send("ask"))
        for each in (screen, other):
            await each.page.get_by_role("button", name="waits for you").click()
        card = screen.cards.filter(has_text="Which <b>colour</b>?")
        await card.get_by_role("radio", name="blue").check()
        await card.get_by_role("button", name="Answer").click()
        await expect(card).to_contain_text("Answer “Why?”.")
        await card.get_by_role("textbox", name="Your own words on: Why?").fill("like the <i>sea</i>")
        await expect(other.cards).to_have_count(1)
        await card.get_by_role("button", name="Answer").click()
        assert await reply == "**done**"
        for each in (screen, other):
            await expect(each.cards).to_have_count(0)
            assert each.problems == []
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert (ended.how, ended.surface) == ("ok", "browser")
        await screen.tab("Transcript").click()
        await screen.panel.locator("summary", has_text="ask_user").last.click()
        await expect(screen.panel.get_by_text("like the <i>sea</i>").first).to_be_visible()


async def test_keys_alone_do_everything(tmp_path: Path, browser: Browser) -> None:
    """From the first Tab on: steer, read, filter, and approve."""
    work = Work()
    async with live_site(tmp_path, browser, work) as (tree, site):
        await tree.main.spawn("worker", "look", label="reader")
        work.commands = ["touch one"]
        screen = await site.open_tree(tree.tree_id)
        keys = screen.page.keyboard
        while "grid" not in await screen.focused():
            await keys.press("Tab")
        await keys.press("End")
        await keys.press("Shift+S")
        await keys.type("look at b.txt, too")
        await keys.press("Tab")
        await keys.press("Enter")
        await expect(screen.page.get_by_role("dialog")).to_have_count(0)
        await keys.press("Enter")
        await expect(screen.panel.get_by_text("look at b.txt, too")).to_be_visible()
        await keys.press("Escape")
        await keys.press(".")
        await expect(screen.page.get_by_role("menu")).to_be_visible()
        await keys.press("Escape")
        reply = asyncio.ensure_future(tree.main.send("begin"))
        await expect(screen.page.get_by_role("button", name="waits for you")).to_be_visible()
        await keys.press("/")
        await keys.type("reader")
        await expect(screen.page.locator(".count")).to_have_text("1 match")
        await keys.press("Escape")
        await keys.press("?")
        await expect(screen.page.get_by_role("dialog")).to_contain_text("approve, deny, always")
        await keys.press("Escape")
        await keys.press("Escape")
        while "inbox" not in await screen.focused():
            await keys.press("Shift+Tab")
        await keys.press("Enter")
        await keys.press("a")
        assert await reply == "**done**"
        assert screen.problems == []


CLOSE_AND_OPEN = """() => {
  const root = document.querySelector("session-tree").shadowRoot;
  root.querySelector("dialog").close();
  const press = { key: "X", shiftKey: true, bubbles: true, composed: true };
  root.activeElement.dispatchEvent(new KeyboardEvent("keydown", press));
}"""


async def test_dialog_that_follows_at_once_stays(tmp_path: Path, browser: Browser) -> None:
    """A browser reports that a dialog was closed a moment later, when the next one may be open."""
    async with live_site(tmp_path, browser, Work()) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        while "grid" not in await screen.focused():
            await screen.page.keyboard.press("Tab")
        await screen.page.keyboard.press("Home")
        await screen.page.keyboard.press("Shift+S")
        await screen.page.evaluate(CLOSE_AND_OPEN)
        await screen.page.keyboard.type("over")
        await screen.page.keyboard.press("Enter")
        receipt = screen.page.get_by_role("dialog").get_by_role("row")
        await expect(receipt).to_have_count(2)
        await screen.page.keyboard.press("Enter")
        await expect(screen.page.get_by_role("dialog")).to_have_count(0)
        assert "grid" in await screen.focused()
        assert screen.problems == []


async def test_keys_end_what_runs(tmp_path: Path, browser: Browser) -> None:
    """Interrupt a turn, and cancel the tree with its receipt."""
    work = Work()
    async with live_site(tmp_path, browser, work) as (tree, site):
        await tree.main.spawn("worker", "look", label="reader")
        screen = await site.open_tree(tree.tree_id)
        keys = screen.page.keyboard
        held = asyncio.ensure_future(tree.main.send("wait"))
        await expect(screen.row("main")).to_contain_text("waiting for model")
        while "grid" not in await screen.focused():
            await keys.press("Tab")
        await keys.press("Home")
        await keys.press("Shift+I")
        await keys.type("enough")
        await keys.press("Enter")
        with pytest.raises(SessionFailed, match="enough"):
            await held
        await expect(screen.page.get_by_role("dialog")).to_have_count(0)
        await keys.press("Shift+X")
        await keys.type("over")
        await keys.press("Enter")
        receipt = screen.page.get_by_role("dialog").get_by_role("row")
        await expect(receipt).to_have_count(3)
        await expect(receipt.nth(2)).to_contain_text("cancelled")
        await keys.press("Enter")
        await expect(screen.row("reader")).to_contain_text("cancelled")
        assert screen.problems == []


async def test_key_pressed_twice_decides_once(tmp_path: Path, browser: Browser) -> None:
    """The card that comes under the key by itself does not hear it; who turned to it is heard at once."""
    work = Work()
    work.commands, work.at_once = ["touch one", "touch two"], 2
    async with live_site(tmp_path, browser, work) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        reply = asyncio.ensure_future(tree.main.send("begin"))
        await screen.page.get_by_role("button", name="wait for you").click()
        await expect(screen.cards).to_have_count(2)
        await screen.cards.first.focus()
        assert await screen.page.evaluate(PRESS_TWICE) == 1
        await expect(screen.cards).to_have_count(1)
        await screen.cards.first.focus()
        await screen.page.keyboard.press("r")
        await screen.page.keyboard.press("Escape")
        await screen.page.keyboard.press("a")
        assert await reply == "**done**"
        left = sorted(path.name for path in (tmp_path / "workspace").iterdir())
        assert len(left) == 1
        assert screen.problems == []


@pytest.mark.parametrize("late_ms", [None, pytest.param(300, marks=pytest.mark.long)])
async def test_two_pages_show_the_same(tmp_path: Path, browser: Browser, late_ms: int | None) -> None:
    """An answer in one closes the card in the other, soon; a reload shows what was there."""
    work = Work()
    async with live_site(tmp_path, browser, work) as (tree, site):
        context = await site.context()
        first = await site.open_tree(tree.tree_id, context)
        second = await site.open_tree(tree.tree_id, context)
        reply = asyncio.ensure_future(tree.main.send("begin"))
        for screen in (first, second):
            await screen.page.evaluate(NOTE_CARDS)
            await screen.page.get_by_role("button", name="waits for you").click()
            await expect(screen.cards).to_contain_text("touch one")
        await first.cards.get_by_role("button", name="Deny").click()
        for screen in (first, second):
            await expect(screen.cards).to_contain_text("touch two")
        gone = [await screen.page.evaluate("() => window.goneAt") for screen in (first, second)]
        assert late_ms is None or abs(gone[1] - gone[0]) <= late_ms
        await second.page.reload()
        await expect(second.cards).to_contain_text("touch two")
        for name in ("two", "three"):
            await second.cards.filter(has_text=name).get_by_role("button", name="Approve").click()
        assert await reply == "**done**"
        await expect(first.cards).to_have_count(0)
        assert first.problems + second.problems == []


async def test_page_survives_a_lost_connection(tmp_path: Path, browser: Browser) -> None:
    """What happened meanwhile comes as a delta; a page of a server that ended keeps what it has."""
    work = Work()
    async with live_site(tmp_path, browser, work) as (tree, site):
        screen = await site.open_tree(tree.tree_id)
        await expect(screen.page.locator(".link-state")).to_have_text("live")
        asked = len(screen.requests)
        for connection in tuple(site.server._server.server_state.connections):
            connection.transport.abort()
        await expect(screen.page.locator(".link-state")).to_have_text("reconnecting…")
        await tree.main.spawn("worker", "look", label="reader")
        await expect(screen.row("reader")).to_be_visible()
        await expect(screen.page.locator(".link-state")).to_have_text("live")
        again = [address for address in screen.requests[asked:] if "/feed?" in address]
        assert all("revision=0" not in address for address in again)
        screen.problems.clear()
        site.server.stop()
        await expect(screen.page.get_by_text("The program has ended")).to_be_visible()
        await expect(screen.row("reader")).to_be_visible()
        await screen.row("reader").click(button="right")
        await expect(screen.page.get_by_role("menuitem", name="Cancel")).to_have_count(0)
        work.go_on.set()
        assert screen.problems == []


async def test_past_of_a_live_tree(tmp_path: Path, browser: Browser) -> None:
    """The scrubber leads to a time before a session was there, in which nothing can be done, and back."""
    work = Work()
    async with live_site(tmp_path, browser, work) as (tree, site):
        reply = asyncio.ensure_future(tree.main.send("begin"))
        await tree.main.spawn("worker", "look", label="reader")
        screen = await site.open_tree(tree.tree_id)
        await expect(screen.cards).to_have_count(1)
        slider = screen.page.get_by_role("slider")
        await slider.focus()
        await screen.page.keyboard.press("Home")
        await screen.page.keyboard.press("ArrowRight")
        await expect(screen.page.get_by_text("The tree as it was at fact")).to_be_visible()
        await expect(screen.rows).to_have_count(1)
        await expect(screen.cards.get_by_role("button", name="Approve")).to_have_count(0)
        await screen.page.get_by_role("button", name="Back to live").click()
        await expect(screen.row("reader")).to_be_visible()
        await expect(screen.cards.get_by_role("button", name="Approve")).to_have_count(1)
        work.go_on.set()
        reply.cancel()
        assert screen.problems == []


async def test_fork_has_a_page(tmp_path: Path, browser: Browser) -> None:
    """From an item of a transcript a new tree begins, whose page is a link away and leads to the list."""
    work = Work()
    work.commands = []
    async with live_site(tmp_path, browser, work) as (tree, site):
        await tree.main.send("begin")
        screen = await site.open_tree(tree.tree_id)
        item = screen.panel.locator("article", has_text="done")
        await item.get_by_role("button", name="Fork").click()
        dialog = screen.page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Fork").click()
        await dialog.get_by_role("link").click()
        await expect(screen.page.locator(".link-state")).to_have_text("recorded")
        assert tree.tree_id not in screen.page.url
        await screen.page.get_by_role("link", name="Trees").click()
        await expect(screen.page.get_by_role("link", name="a tree of tests")).to_have_count(2)
        assert screen.problems == []
