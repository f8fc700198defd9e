"""The server: a page of a live tree grows, answers and stops it; a stored one is only read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from sessiontree import AgentSpec, ConfigError, FunctionModel, ModelRequest, SessionTree, script_call
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting, ClientCallEnded
from sessiontree.models.answers import Answer
from sessiontree.serve import served_tree
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.served_tree import ServedTree
from sessiontree.serve.server import HEADERS, MAX_BODY
from tests.behaviour.fact_fixtures import facts_of, until
from tests.system.serve.sending_fixtures import sends_at_once
from tests.system.serve.serve_fixtures import Browser, running, serving


def _answer(request: ModelRequest) -> Answer:
    if request.turn == 1:
        return [script_call("exec", command="touch made")]
    return "**done**"


def _tree(tmp_path: Path) -> SessionTree:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    return SessionTree(
        workspace,
        model=FunctionModel(_answer),
        backend="local",
        state_dir=tmp_path / "state",
        approvals="always",
        purpose="a tree <b>of</b> tests",
    )


async def _until_asked(browser: Browser, tree_id: str, kind: str = "approvals") -> dict[str, Any]:
    """Follow the feed until somebody asks for an approval, or one of ``questions``; return it."""
    async for news in browser.news(tree_id):
        if news.get(kind):
            return dict(news[kind][0])
    raise AssertionError("the feed ended")


async def test_live_tree_is_answered_in_a_page(tmp_path: Path) -> None:
    """The request shows in the feed, an approval by id lets the call run, and a second one is too late."""
    async with _tree(tmp_path) as tree, serving(tmp_path / "state") as browser:
        (listed,) = (await browser.client.get("/trees")).json()["trees"]
        assert listed["is_live"]
        assert listed["purpose"] == "a tree <b>of</b> tests"
        reply = asyncio.ensure_future(tree.main.send("begin"))
        request = await _until_asked(browser, tree.tree_id)
        assert request["arguments"] == [["command", "touch made", False]]
        answers = [await browser.ask(tree.tree_id, "approve", id=request["id"]) for _ in range(2)]
        assert answers[0] == {}
        assert "AnswerTooLate" in answers[1]["error"]
        assert await reply == "**done**"
        assert (tmp_path / "workspace" / "made").exists()
        items = (await browser.ask(tree.tree_id, "transcript", session="main"))["items"]
        assert items[-1]["html"] == "<p><strong>done</strong></p>\n"
        assert "error" in await browser.ask(tree.tree_id, "nothing")
        assert (await browser.ask(tree.tree_id, "replay"))["differences"] == []
        lines = (await browser.ask(tree.tree_id, "cancel", session="main", reason="enough"))["lines"]
        assert lines[0][:2] == ["main", "cancelled"]


def _asking(request: ModelRequest) -> Answer:
    if request.turn == 1:
        options: list[Any] = [{"label": "red"}, {"label": "blue", "description": "like the sea"}]
        return [script_call("ask_user", questions=[{"question": "Which colour?", "options": options}])]
    return request.messages[-1].text


async def test_question_is_answered_in_a_page(tmp_path: Path) -> None:
    """By a label or not at all; the answer reaches the model, and the journal says that a browser gave it."""
    tree = SessionTree(
        tmp_path,
        model=FunctionModel(_asking),
        backend="local",
        state_dir=tmp_path / "state",
        agents={"default": AgentSpec(tools=("ask_user",))},
    )
    async with tree, serving(tree.state_dir) as browser:
        reply = asyncio.ensure_future(tree.main.send("begin"))
        question = await _until_asked(browser, tree.tree_id, "questions")
        (item,) = question["items"]
        assert [each["label"] for each in item["options"]] == ["red", "blue"]
        for wrong in ([{"chosen": ["green"]}], [], "blue", [{"chosen": "blue"}]):
            refused = await browser.ask(tree.tree_id, "answer", id=question["id"], answers=wrong)
            assert refused["error"]
        given: dict[str, Any] = {"id": question["id"], "answers": [{"chosen": ["blue"]}]}
        assert await browser.ask(tree.tree_id, "answer", **given) == {}
        assert "already answered" in (await browser.ask(tree.tree_id, "answer", **given))["error"]
        assert '"chosen":["blue"]' in await reply
        (ended,) = await facts_of(tree, ClientCallEnded)
        assert ended.surface == "browser"


async def test_large_tree_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first rows at once, without requests that a later fact may have closed; whatever is asked waits."""
    async with _tree(tmp_path) as tree:
        reply = asyncio.ensure_future(tree.main.send("begin"))
        await until(tree, ApprovalWaiting)
        reply.cancel()
    monkeypatch.setattr(served_tree, "FIRST_READ", 1)
    monkeypatch.setattr(served_tree, "READ_AT_ONCE", 1)
    served = ServedTree(tree.state_dir, tree.tree_id, "browser")
    await served.open()
    first = await served.ask("snapshot", {})
    assert not first["tree"]["is_whole"]
    assert first["seq"] == 1
    assert (await served.ask("receipt", {}))["lines"]
    whole = await served.ask("snapshot", {})
    assert whole["tree"]["is_whole"]
    assert whole["feed"] != first["feed"]
    assert [len(each["approvals"]) for each in (first, whole)] == [0, 1]
    await served.close()


async def test_denial_and_a_steer_reach_the_tree(tmp_path: Path) -> None:
    """Its reason is in the journal; a message steers."""
    async with _tree(tmp_path) as tree, serving(tmp_path / "state") as browser:
        reply = asyncio.ensure_future(tree.main.send("begin"))
        request = await _until_asked(browser, tree.tree_id)
        assert await browser.ask(tree.tree_id, "deny", id=request["id"], reason="not here") == {}
        await reply
        assert await browser.ask(tree.tree_id, "steer", session="main", text="look again") == {}
        items = (await browser.ask(tree.tree_id, "transcript", session="main"))["items"]
        told = [item["text"] for item in items]
        assert "not here" in told
        assert "look again" in told
        assert "error" in await browser.ask(tree.tree_id, "steer", session="main", text=" ")
        assert "error" in await browser.ask(tree.tree_id, "steer", session="main/b9", text="x")
        assert not (tmp_path / "workspace" / "made").exists()


async def test_feed_goes_on_where_a_viewer_was(tmp_path: Path) -> None:
    """From the revision that it has it gets a delta; from another feed, the whole."""
    async with _tree(tmp_path) as tree, serving(tmp_path / "state") as browser:
        feed = browser.news(tree.tree_id)
        first = await anext(feed)
        while "approve" not in first["can"]:
            first = await anext(feed)
        await feed.aclose()
        reply = asyncio.ensure_future(tree.main.send("begin"))
        again = browser.news(tree.tree_id, feed=first["feed"], revision=first["revision"])
        delta = await anext(again)
        assert delta["kind"] == "delta"
        assert delta["from"] == first["revision"]
        await again.aclose()
        other = browser.news(tree.tree_id, feed="0" * 16, revision=3)
        assert (await anext(other))["kind"] == "snapshot"
        await other.aclose()
        reply.cancel()


async def test_stored_tree_is_only_read(tmp_path: Path) -> None:
    """Nobody runs it: it can be looked at, and an answer is refused in words."""
    async with _tree(tmp_path) as tree:
        pass
    async with serving(tmp_path / "state") as browser:
        assert (await browser.ask(tree.tree_id, "snapshot"))["can"] == ["fork"]
        assert "no program runs" in (await browser.ask(tree.tree_id, "approve", id="r1"))["error"]
        missing = await browser.client.get("/t/t0000000000000000/feed")
        assert missing.status_code == 404


async def test_strangers_get_nothing(tmp_path: Path) -> None:
    """Without a cookie, with another host, from another site, with a used token: no page, no tree."""
    async with _tree(tmp_path) as tree:
        pass
    async with serving(tmp_path / "state") as browser:
        async with httpx.AsyncClient(base_url=browser.origin) as stranger:
            for path in ("/", "/trees", f"/t/{tree.tree_id}", f"/t/{tree.tree_id}/feed", "/assets/main.js"):
                answer = await stranger.get(path)
                assert answer.status_code == 401
                assert tree.tree_id not in answer.text
            assert (await stranger.get("/?token=wrong")).status_code == 401
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            assert (await browser.client.get("/trees", headers=headers)).status_code == 403
        posted = await browser.client.post(f"/t/{tree.tree_id}/ask", json={"verb": "snapshot"})
        assert posted.status_code == 403


async def test_every_answer_keeps_a_page_to_itself(tmp_path: Path) -> None:
    """Pages, modules, answers and refusals have the headers, and no page has a script of its own."""
    async with _tree(tmp_path) as tree:
        pass
    async with serving(tmp_path / "state") as browser:
        for path in ("/", f"/t/{tree.tree_id}", "/assets/main.js", "/assets/../server.py", "/nothing"):
            answer = await browser.client.get(path)
            for name, value in HEADERS.items():
                assert answer.headers[name] == value
            assert "<script>" not in answer.text
        assert (await browser.client.get("/assets/..%2f__init__.py")).status_code == 404
        for body in ("x", "[]", '{"verb": 1}', '{"verb": "snapshot", "given": []}', "[" * 100_000):
            answer = await browser.client.post(
                f"/t/{tree.tree_id}/ask", content=body, headers={"Origin": browser.origin}
            )
            assert answer.status_code == 400
            assert answer.json()["error"]
        answer = await browser.client.post(
            f"/t/{tree.tree_id}/ask", content="x" * (MAX_BODY + 1), headers={"Origin": browser.origin}
        )
        assert answer.status_code == 413


def test_other_machines_need_tls_and_a_token(tmp_path: Path) -> None:
    """An address that they reach is refused without both; a token file that others may read, too."""
    with pytest.raises(ConfigError, match="TLS"):
        Address("0.0.0.0")  # noqa: S104 - refused
    with pytest.raises(ConfigError, match="together"):
        Address(certificate=tmp_path / "c.pem")
    token = tmp_path / "token"
    token.write_text("t" * 40, "utf-8")
    token.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Address(token_file=token).read_token()
    token.chmod(0o600)
    assert Address(token_file=token).read_token() == "t" * 40
    token.write_text("short", "utf-8")
    with pytest.raises(ConfigError, match="fewer"):
        Address(token_file=token).read_token()
    token.write_text("t" * 40, "utf-8")
    with pytest.raises(ConfigError, match="not an address"):
        PageServer(
            tmp_path, Address("127.0.0.1.evil.invalid", certificate=token, key=token, token_file=token)
        )


async def test_answers_are_sent_at_once(tmp_path: Path) -> None:
    """A small answer does not wait for the client's delayed acknowledgement."""
    server = PageServer(tmp_path, Address())
    async with running(server), httpx.AsyncClient(base_url=server.origin) as client:
        await client.get("/trees")
        assert sends_at_once(server._server)
