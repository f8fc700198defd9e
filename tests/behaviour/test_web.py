"""Every session reads the web, a Worker too, as far as the owner's settings go and no further."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import ChildKind, ConfigError, ScriptedModel, WebSettings, script_call
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener
from tests.unit.web.site_fakes import answer, serving

HTML = b"<title>T</title><nav>menu</nav><h1>Head</h1><script>alert(1)</script>"


@pytest.mark.covers("S7")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["branch", "worker"])
@pytest.mark.on_ray
async def test_page_is_read_where_the_owner_allows_it(open_tree: Opener, kind: ChildKind) -> None:
    """A place of the owner's own, converted, marked as untrusted."""
    async with serving(answer(HTML, content_type="text/html")) as site:
        script: list[Answer] = [script_call("web_fetch", url=f"{site.url}/page"), "done"]
        settings = WebSettings(allow_private=(f"127.0.0.1:{site.port}",))
        async with open_tree(ScriptedModel(script), web=settings) as tree:
            session = await tree.main.spawn(kind, "look")
            await session.result()
            (result,) = results(tree, session.session_id)
    assert not result.is_error
    assert "# Head" in result.text
    assert "menu" not in result.text
    assert "alert" not in result.text
    assert "EXTERNAL_UNTRUSTED_CONTENT" in result.text
    assert len(site.requests) == 1


async def test_nothing_a_model_says_opens_another_place(open_tree: Opener) -> None:
    """The same server without the owner's word, by each of its spellings: denied, and never asked."""
    async with serving(answer(b"secret")) as site:
        hosts = ("127.0.0.1", "localhost", "0x7f.1", "[::ffff:127.0.0.1]")
        script: list[Answer] = [
            *(script_call("web_fetch", url=f"http://{host}:{site.port}/") for host in hosts),
            script_call("web_fetch", url="http://169.254.169.254/latest/meta-data/"),
            "done",
        ]
        settings = WebSettings(ports=(80, 443, site.port))
        async with open_tree(ScriptedModel(script), web=settings) as tree:
            worker = await tree.main.spawn("worker", "look")
            await worker.result()
            found = results(tree, worker.session_id)
    assert len(found) == 5
    for result in found:
        assert result.is_error
        assert "not a public address" in result.text
        assert '"tier":"ReadOnly"' in result.text
    assert site.requests == []


async def test_owner_may_give_no_web_at_all(open_tree: Opener) -> None:
    """The tools are there and find no handle."""
    script: list[Answer] = [
        script_call("web_fetch", url="http://a.b/"),
        script_call("web_search", query="x"),
        "done",
    ]
    async with open_tree(ScriptedModel(script), web=None) as tree:
        worker = await tree.main.spawn("worker", "look")
        await worker.result()
        found = results(tree, worker.session_id)
    assert [result.is_error for result in found] == [True, True]
    assert all("holds no web" in result.text for result in found)


async def test_search_is_the_owners_to_configure(open_tree: Opener) -> None:
    """Without a provider the error says how; with one the hits come, marked."""
    script: list[Answer] = [script_call("web_search", query="x"), "done"]
    async with open_tree(ScriptedModel(script)) as tree:
        worker = await tree.main.spawn("worker", "look")
        await worker.result()
        (result,) = results(tree, worker.session_id)
    assert result.is_error
    assert "search_url=" in result.text
    body = b'{"results": [{"title": "One", "url": "http://one.example/", "content": "says"}]}'
    async with (
        serving(answer(body, content_type="application/json")) as site,
        open_tree(ScriptedModel(script), web=WebSettings(search_url=site.url)) as tree,
    ):
        worker = await tree.main.spawn("worker", "look")
        await worker.result()
        (result,) = results(tree, worker.session_id)
    assert "1. One\nhttp://one.example/\nsays" in result.text
    assert "EXTERNAL_UNTRUSTED_CONTENT" in result.text


async def test_wrong_settings_are_told_before_any_session_runs(open_tree: Opener) -> None:
    """By name."""
    with pytest.raises(ConfigError, match=r"web is .*; give WebSettings"):
        open_tree(ScriptedModel(["x"]), web="yes")
    tree = open_tree(ScriptedModel(["x"]), web=WebSettings(allow_private=("a..b:80",)))
    with pytest.raises(ConfigError, match="allow_private"):
        await tree.start()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["local"], indirect=True)
async def test_what_may_pass_is_asked_once_more(open_tree: Opener) -> None:
    """A server that is busy, or hangs up, is asked again; one that has no such page is not."""
    busy, gone = answer(b"busy", status=503), answer(b"gone", status=404)

    async def respond(request: str, writer: asyncio.StreamWriter) -> None:
        path = request.split(" ")[1]
        if sum(each.split(" ")[1] == path for each in site.requests) > 1:
            await answer(b"here you are")(request, writer)
        elif path == "/hangs-up":
            writer.close()
        else:
            await (gone if path == "/gone" else busy)(request, writer)

    async with serving(respond) as site:
        fetched = [
            script_call("web_fetch", url=f"{site.url}/{name}") for name in ("busy", "hangs-up", "gone")
        ]
        settings = WebSettings(allow_private=(f"127.0.0.1:{site.port}",))
        async with open_tree(ScriptedModel([*fetched, "done"]), web=settings) as tree:
            await tree.main.send("go")
            found = results(tree, "main")
    assert [result.is_error for result in found] == [False, False, True]
    assert len(site.requests) == 5
