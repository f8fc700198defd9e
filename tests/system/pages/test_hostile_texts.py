"""Whatever a model, a tool, a person or a sample wrote is text in a page: live, and saved as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from sessiontree.journal.journal import Journal
from sessiontree.view.saved_page import write_page
from tests.system.pages.hostile_fixtures import ATTACKS, HOSTILE_TREE, record_hostile_tree
from tests.system.pages.page_fixtures import Screen, site_of

FIND_FOREIGN = """() => {
  const tags = new Set(("script iframe object embed link style base meta audio video math template frame " +
    "mglyph noscript x-session-tree").split(" "));
  const targets = new Set("href src action formaction xlink:href srcdoc background".split(" "));
  const names = new Set("class id name style for role type".split(" "));
  const ours = new RegExp(["^(\\/(t\\/t[0-9a-f]{16})?", '#\\/(run|runs|pair)(\\/[^<>"\\\\s]*)?',
    "data:image\\/(png|jpeg|gif|webp);base64,[\\\\w+\\/=]*)$"].join("|"));
  const found = [];
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      const tag = element.localName;
      if (tags.has(tag) && !element.matches("body > script[type=module]")) found.push(tag);
      for (const { name, value } of element.attributes) {
        const isTheirs = name.startsWith("on") || (targets.has(name) && !ours.test(value));
        const isName = names.has(name) && /alert\\(|a\\.example/.test(value);
        if (isTheirs || isName) found.push(`${tag} ${name}=${value}`);
      }
      if (element.shadowRoot) look(element.shadowRoot);
    }
  };
  look(document.body);
  return found;
}"""
EVERY = pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
"""Of so many sessions one is opened."""
OPEN_ALL = """() => {
  const root = document.querySelector("session-tree").shadowRoot;
  for (const each of root.querySelectorAll("details")) each.open = true;
  for (const each of root.querySelectorAll("figure button")) each.click();
}"""


async def _read_everything(screen: Screen, *, every: int) -> None:
    """Open each session and each tab, and look for what does not belong there."""
    number = await screen.rows.count()
    assert number > 30
    assert await screen.page.evaluate(FIND_FOREIGN) == []
    for index in range(0, number, every):
        await screen.rows.nth(index).click()
        await screen.tab("Transcript").click()
        await expect(screen.panel.locator(".item").first).to_be_visible()
        await screen.page.evaluate(OPEN_ALL)
        image = screen.panel.locator("img").first
        await image.wait_for()
        assert await image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1
        assert await screen.page.evaluate(FIND_FOREIGN) == []
    for tab in ("Inbox", "Tools", "Timeline", "Account", "Receipt"):
        await screen.tab(tab).click()
        await expect(screen.panel).not_to_contain_text("Reading…")
        assert await screen.page.evaluate(FIND_FOREIGN) == []
    await screen.page.get_by_placeholder("Filter").fill("alert")
    await screen.page.keyboard.press("Enter")
    await screen.page.wait_for_timeout(100)
    assert await screen.page.evaluate(FIND_FOREIGN) == []


@pytest.fixture
async def state_dir(tmp_path: Path) -> Path:
    """A state directory with the tree."""
    await record_hostile_tree(tmp_path / "state")
    return tmp_path / "state"


@EVERY
async def test_attacks_stay_text_in_a_page(state_dir: Path, browser: Browser, every: int) -> None:
    """Through every field: no element, attribute, request, dialog or error comes of them."""
    async with site_of(state_dir, browser) as site:
        screen = await site.open_tree(HOSTILE_TREE, viewport={"width": 1280, "height": 2000})
        assert await screen.cards.count() == len(ATTACKS) + 2
        await _read_everything(screen, every=every)
        assert all(address.startswith(site.origin) for address in screen.requests if address[:5] != "data:")
        assert screen.problems == []
        listed = await site.open("/", screen.page.context)
        await expect(listed.page.get_by_role("link")).to_have_count(1)
        assert await listed.page.evaluate(FIND_FOREIGN) == []
        assert listed.problems == []


@EVERY
async def test_attacks_stay_text_in_a_saved_page(
    state_dir: Path, tmp_path: Path, browser: Browser, every: int
) -> None:
    """The same in one file that is opened without a server; it asks for nothing, and its styles apply."""
    with Journal.open(state_dir, read_only=True) as journal:
        page = write_page(journal, HOSTILE_TREE)
    file = tmp_path / "tree.html"
    file.write_text(page, "utf-8")
    context = await browser.new_context(viewport={"width": 1280, "height": 2000})
    try:
        screen = Screen(await context.new_page())
        screen.watch()
        await screen.page.goto(file.as_uri())
        await screen.rows.first.wait_for()
        await _read_everything(screen, every=every)
        assert await screen.rows.first.evaluate("(row) => getComputedStyle(row).position") == "absolute"
        assert [each for each in screen.requests if not each.startswith("data:image/png")] == [file.as_uri()]
        assert screen.problems == []
    finally:
        await context.close()
