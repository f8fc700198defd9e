"""Requests that change something: a Branch sends them where the owner asks for the tool, a Worker never."""

from __future__ import annotations

import pytest

from sessiontree import AgentSpec, ScriptedModel, WebSettings, script_call
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener
from tests.unit.web.service_fakes import service

TOOLS = ["http_request", "read", "write"]


@pytest.mark.covers("A8", "A36")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_branch_sends_and_a_worker_has_nothing_to_send_with(open_tree: Opener) -> None:
    """One request arrives, with its body; the Worker's call is refused and nothing arrives."""
    async with service() as there:
        call = script_call("http_request", url=f"{there.url}/a", json_body={"n": 1}, save_as="answer.txt")
        script: list[Answer] = [call, "done"]
        settings = WebSettings(allow_private=(f"127.0.0.1:{there.port}",))
        agents = {"default": AgentSpec(tools=TOOLS)}
        async with open_tree(ScriptedModel(script), web=settings, agents=agents) as tree:
            branch = await tree.main.spawn("branch", "send")
            await branch.result()
            worker = await tree.main.spawn("worker", "send")
            await worker.result()
            (done,) = results(tree, branch.session_id)
            (refused,) = results(tree, worker.session_id)
    assert not done.is_error, done.text
    assert "EXTERNAL_UNTRUSTED_CONTENT" in done.text
    assert (open_tree.workspace / "answer.txt").read_bytes() == b"done"
    assert refused.is_error
    assert [(got.method, got.path, got.body) for got in there.received] == [("POST", "/a", b'{"n":1}')]


async def test_it_is_held_only_where_it_is_named(open_tree: Opener) -> None:
    """Without a list that names it, a call finds no such tool; without the web, it is gone, too."""
    async with service() as there:
        script: list[Answer] = [script_call("http_request", url=there.url), "done"]
        settings = WebSettings(allow_private=(f"127.0.0.1:{there.port}",))
        async with open_tree(ScriptedModel(script), web=settings) as tree:
            await tree.main.send("go")
            (unnamed,) = results(tree, "main")
        agents = {"default": AgentSpec(tools=TOOLS)}
        async with open_tree(ScriptedModel(script), web=None, agents=agents) as tree:
            await tree.main.send("go")
            (webless,) = results(tree, "main")
    assert unnamed.is_error
    assert webless.is_error
    assert "holds no web" in webless.text
    assert there.received == []
