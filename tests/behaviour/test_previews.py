"""Pages that sessions publish: one server for a tree, addresses that end with their session."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from sessiontree import AgentSpec, ScriptedModel, script_call
from sessiontree.browser.found import find_browser
from sessiontree.contracts.facts.session_facts import CallResolved
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

PAGE = "<!doctype html><html lang=en><title>Bees</title><p>hello"
TOOLS = ("write_html", "preview_screenshot", "deploy_preview")


def build(folder: str, *, looks: bool = False) -> list[Any]:
    """Return replies that write a page, perhaps look at it, and publish it."""
    page = f"{folder}/index.html"
    look = [script_call("preview_screenshot", filename=page, viewport="mobile", save_as=f"{folder}.png")]
    return [
        [script_call("write_html", filename=page, content=PAGE)],
        *([look] if looks else []),
        [script_call("deploy_preview", project_dir=folder)],
        "done",
    ]


@pytest.mark.on_ray
@pytest.mark.covers("U18", "U20")
async def test_preview_is_there_until_its_session_ends(open_tree: Opener) -> None:
    """A Branch's page ends with the Branch, and Main's with the tree, and it stays as it was."""
    model = ScriptedModel({"main": build("a", looks=find_browser().is_ready), "main/b1": build("b")})
    agents = {"default": AgentSpec(tools=TOOLS)}
    async with (
        httpx.AsyncClient(timeout=60) as client,
        open_tree(model, agents=agents, approvals="auto") as tree,
    ):
        await tree.main.send("go")
        branch = await tree.main.spawn("branch", "go")
        await branch.result()
        calls = await facts_of(tree, CallResolved)
        texts = [call.message.text for call in calls if call.message.tool_name != "preview_screenshot"]
        outputs = [json.loads(text) for text in texts]
        urls = [each["preview_url"] for each in outputs if "preview_url" in each]
        assert len(set(urls)) == 2
        assert (open_tree.workspace / "a.png").is_file() == find_browser().is_ready
        (open_tree.workspace / "a/index.html").write_text("changed later")
        assert (await client.get(urls[0])).text == PAGE
        await branch.cancel()
        gone = [(await client.get(url)).status_code for url in urls]
        assert sorted(gone) == [200, 404]
        await tree.finish("over")
        answers = [await status_of(client, url) for url in urls]
        assert set(answers) <= {0, 404}
        assert {row.outcome for row in calls} == {"ok"}


async def status_of(client: httpx.AsyncClient, url: str) -> int:
    """Return the status of an answer; 0 if nobody answers."""
    try:
        return (await client.get(url)).status_code
    except httpx.ConnectError:
        return 0
