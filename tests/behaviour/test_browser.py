"""The browser on every backend: a Branch uses a page, a Worker has none, and its end leaves no process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sessiontree import AgentSpec, ScriptedModel, WebSettings, script_call
from sessiontree.models.answers import Answer
from sessiontree.sandbox.process_tree import find_descendants
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener
from tests.unit.browser.browser_fixtures import pages
from tests.unit.web.site_fakes import serving

PAGE = "<!doctype html><title>Desk</title><button onclick=\"document.title = 'Pressed'\">Press</button>"


async def until_no_browser_is_left() -> None:
    """Wait until no browser is below this process; the hosts of both backends are."""
    async with asyncio.timeout(20):
        while any(map(is_browser, find_descendants(os.getpid()))):  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.05)


def is_browser(pid: int) -> bool:
    """Whether a process is the sandbox of a session's browser, or its program."""
    try:
        return b"sessiontree.browser.inside.program" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended just now
        return False


@pytest.mark.covers("S11", "S48", "A36")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_branch_uses_a_page_and_a_worker_has_no_browser(open_tree: Opener) -> None:
    """It opens, reads and presses; pictures reach the model; the tree's end ends the browser."""
    async with serving(pages(index=PAGE)) as site:
        script: list[Answer] = [
            script_call("browser", action="open", url=site.url),
            script_call("browser", action="snapshot"),
            script_call("browser", action="act", do="click", ref=1),
            script_call("browser", action="screenshot"),
            script_call("browser", action="open", url=f"http://127.0.0.1:{site.port + 1}/"),
            "done",
        ]
        settings = WebSettings(allow_private=(f"127.0.0.1:{site.port}",))
        agents = {"default": AgentSpec(tools=["browser", "read"])}
        async with open_tree(ScriptedModel(script), web=settings, agents=agents) as tree:
            branch = await tree.main.spawn("branch", "browse")
            await branch.result()
            opened, seen, pressed, shown, refused = results(tree, branch.session_id)
            worker = await tree.main.spawn("worker", "browse")
            await worker.result()
            without = results(tree, worker.session_id)
    assert not opened.is_error, opened.text
    assert '[1] button "Press"' in seen.text
    assert "EXTERNAL_UNTRUSTED_CONTENT" in seen.text
    assert "Title: Pressed" in pressed.text
    assert not shown.is_error, shown.text
    assert refused.is_error
    assert "not allowed" in refused.text
    assert all(each.is_error for each in without)
    assert site.requests[0].startswith("GET / ")
    await until_no_browser_is_left()
