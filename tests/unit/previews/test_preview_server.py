"""Previews over HTTP: what is answered to whom, under which headers, and what there may be at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.previews import MAX_PAGE_BYTES, MAX_PAGE_FILES, page_type
from sessiontree.previews.preview_server import PreviewServer
from sessiontree.previews.preview_site import MAX_PAGES
from tests.system.serve.sending_fixtures import sends_at_once

FILES = {
    "index.html": b"<!doctype html><title>a</title>",
    "style/main.css": b"p{}",
    "deep/index.html": b"deep",
    "other.htm": b"other",
    "\u00fc b.png": b"\x89PNG",
}


@pytest.fixture
async def server() -> AsyncIterator[PreviewServer]:
    """A server without pages."""
    server = PreviewServer()
    yield server
    await server.close()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client that follows nothing."""
    async with httpx.AsyncClient(timeout=30) as client:
        yield client


@pytest.mark.covers("U20")
async def test_files_are_served_as_what_they_are(server: PreviewServer, client: httpx.AsyncClient) -> None:
    """A folder leads to its index, a name that is no file to 404; types are of a fixed list."""
    page = server.publish("t", "main", "site", FILES, "index.html")
    for path, body, media_type in [
        ("", FILES["index.html"], "text/html; charset=utf-8"),
        ("index.html", FILES["index.html"], "text/html; charset=utf-8"),
        ("style/main.css", b"p{}", "text/css; charset=utf-8"),
        ("deep/", b"deep", "text/html; charset=utf-8"),
        ("%C3%BC%20b.png?x=1", b"\x89PNG", "image/png"),
    ]:
        answer = await client.get(page.url + path)
        assert (answer.status_code, answer.content) == (200, body)
        assert answer.headers["content-type"] == media_type
    assert (await client.head(page.url)).content == b""
    moved = [await client.get(url) for url in (page.url.rstrip("/"), page.url + "deep")]
    assert [each.status_code for each in moved] == [308, 308]
    places = [each.headers["location"] for each in moved]
    assert [page.url.endswith(places[0]), places[1].endswith("/deep/")] == [True, True]
    for path in ("missing.css", "../index.html", "%2e%2e/index.html", "style", "/etc/passwd", "main.css/"):
        assert (await client.get(page.url + path)).status_code == 404


@pytest.mark.covers("U20")
async def test_nobody_else_is_answered(server: PreviewServer, client: httpx.AsyncClient) -> None:
    """Not whoever guesses, has another name for the server, or wants to change something."""
    page = server.publish("t", "main", "site", FILES, "index.html")
    origin, _, token = page.url.rstrip("/").rpartition("/")
    assert len(token) >= 32
    assert (await client.get(f"{origin}/")).status_code == 404
    assert (await client.get(f"{origin}/{token[:-1]}x/")).status_code == 404
    for host in ("evil.example", "127.0.0.1", f"127.0.0.1.evil.example:{origin.rpartition(':')[2]}"):
        assert (await client.get(page.url, headers={"Host": host})).status_code == 403
    assert (await client.post(page.url)).status_code == 405
    assert (await client.get(page.url.replace("127.0.0.1", "localhost"))).status_code == 200


@pytest.mark.covers("U20")
async def test_page_has_no_origin_and_loads_its_own_files_only(
    server: PreviewServer, client: httpx.AsyncClient
) -> None:
    """Every answer carries the headers that keep a page from cookies of this host."""
    page = server.publish("t", "main", "site", FILES, "index.html")
    for url in (page.url, page.url + "missing", page.url.rstrip("/")):
        headers = (await client.get(url)).headers
        parts = headers["content-security-policy"].split(";")
        policy = dict(part.strip().partition(" ")[::2] for part in parts)
        assert "allow-same-origin" not in policy["sandbox"]
        assert "allow-top-navigation" not in policy["sandbox"]
        assert policy["default-src"] == "'self' data: blob:"
        assert policy["frame-ancestors"] == policy["form-action"] == policy["object-src"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.covers("U20")
async def test_pages_end_with_their_session_and_keep_their_address(
    server: PreviewServer, client: httpx.AsyncClient
) -> None:
    """A second publication replaces the files at one address; each page is its session's own."""
    first = server.publish("t", "main", "site", FILES, "index.html")
    other = server.publish("t", "main/b1", "site", FILES, "other.htm")
    assert not first.replaced
    assert other.url.endswith("/other.htm")
    again = server.publish("t", "main", "site", {"index.html": b"new"}, "index.html")
    assert (again.url, again.replaced) == (first.url, True)
    assert (await client.get(first.url)).text == "new"
    assert (await client.get(first.url + "style/main.css")).status_code == 404
    server.forget("t", "main")
    assert [(await client.get(url)).status_code for url in (first.url, other.url)] == [404, 200]
    server.forget("another tree")
    assert (await client.get(other.url)).status_code == 200
    server.forget("t")
    assert (await client.get(other.url)).status_code == 404


async def test_port_closes_with_the_server(client: httpx.AsyncClient) -> None:
    """After the end nobody listens, and the end waits for that."""
    server = PreviewServer()
    page = server.publish("t", "main", "site", FILES, "index.html")
    assert (await client.get(page.url)).status_code == 200
    await server.close()
    with pytest.raises(httpx.ConnectError):
        await client.get(page.url)
    await PreviewServer().close()


async def test_bounds_are_kept(server: PreviewServer) -> None:
    """Too many files, bytes or pages are refused, and leave what was there."""
    page = {"index.html": b""}
    for number in range(MAX_PAGES):
        server.publish("t", "main", f"site{number}", page, "index.html")
    many = {f"{number}.txt": b"" for number in range(MAX_PAGE_FILES + 1)}
    large = {"index.html": bytes(MAX_PAGE_BYTES + 1)}
    for name, files, entry, words in [
        ("site0", many, "0.txt", "files"),
        ("site0", large, "index.html", "bytes"),
        ("site0", page, "other.html", "no file"),
        ("more", page, "index.html", "8 previews"),
    ]:
        with pytest.raises(ExecutionError, match=words):
            server.publish("t", "main", name, files, entry)
    assert server.publish("t", "main", "site0", page, "index.html").replaced
    full = {"index.html": bytes(MAX_PAGE_BYTES)}
    with pytest.raises(ExecutionError, match="all previews together"):
        for number in range(MAX_PAGES + 1):
            server.publish("t", f"main/b{number}", "site", full, "index.html")


async def test_client_that_sends_nonsense_or_nothing_harms_nobody(
    server: PreviewServer, client: httpx.AsyncClient
) -> None:
    """Bytes that are no request, an endless header and a silent connection."""
    page = server.publish("t", "main", "site", FILES, "index.html")
    port = int(page.url.split(":")[2].partition("/")[0])
    _, silent = await asyncio.open_connection("127.0.0.1", port)
    for said in (b"\xff\x00nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        assert b" 400 " in await reader.readline()
        writer.close()
    assert (await client.get(page.url)).status_code == 200
    silent.close()


def test_only_files_of_pages_have_a_type() -> None:
    """The ending decides, whatever its case; hidden files and others have none."""
    assert page_type("a/B.HTML") == "text/html; charset=utf-8"
    assert [page_type(each) for each in (".html", "a.py", "html", "a.", "css/x", ".env")] == [None] * 6


async def test_answers_are_sent_at_once(server: PreviewServer, client: httpx.AsyncClient) -> None:
    """A small answer does not wait for the client's delayed acknowledgement."""
    await client.get(server.publish("t", "main", "site", FILES, "index.html").url)
    assert sends_at_once(server._server)
