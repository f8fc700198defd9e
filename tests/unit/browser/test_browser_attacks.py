"""Nothing that a page does reaches a place that the address rules do not allow.

The page tries every way it has. A server that is allowed hears all of them (else the test would prove
nothing); a server that is not allowed hears no connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sessiontree.browser.session_browser import SessionBrowser
from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb
from tests.unit.browser.browser_fixtures import browsing, pages
from tests.unit.web.site_fakes import Names, Respond, redirect, serving

WAYS = ("img", "css", "import", "script", "frame", "fetch", "beacon", "socket", "redirect", "form", "hint")


def hostile_page(port: int, host: str = "127.0.0.1") -> str:
    """Return a page that asks a port of this machine for something in every way."""
    there = f"http://{host}:{port}"
    return f"""<!doctype html><title>Trap</title>
<link rel=stylesheet href="{there}/css"><link rel=prefetch href="{there}/hint">
<link rel=preconnect href="{there}"><link rel=dns-prefetch href="//{host}:{port}">
<style>@import url("{there}/import");</style>
<img src="{there}/img"><iframe src="{there}/frame"></iframe><script src="{there}/script"></script>
<img src="/away"><iframe src="file:///etc/passwd"></iframe>
<form id=f action="{there}/form" method=post target=box></form><iframe name=box></iframe>
<a id=local href="file:///etc/passwd">local</a>
<script>
const done = [];
const attempt = (name, work) => {{ try {{ work(); }} catch (error) {{ done.push(name + ": " + error); }} }};
attempt("fetch", () => fetch("{there}/fetch", {{ mode: "no-cors" }}).catch(() => 0));
attempt("beacon", () => navigator.sendBeacon("{there}/beacon", "x"));
attempt("socket", () => new WebSocket("ws://{host}:{port}/socket"));
attempt("events", () => new EventSource("{there}/events"));
attempt("form", () => document.querySelector("#f").submit());
attempt("worker", () => new Worker(URL.createObjectURL(new Blob(
  ["fetch('{there}/worker', {{ mode: 'no-cors' }})"]))));
attempt("service worker", () => navigator.serviceWorker?.register("/sw.js").catch(() => 0));
attempt("webrtc", () => {{
  const peer = new RTCPeerConnection({{ iceServers: [
    {{ urls: "stun:{host}:{port}" }},
    {{ urls: "turn:{host}:{port}?transport=tcp", username: "u", credential: "p" }},
    {{ urls: "turn:{host}:{port}?transport=udp", username: "u", credential: "p" }} ] }});
  peer.createDataChannel("x");
  peer.createOffer().then((offer) => peer.setLocalDescription(offer));
}});
attempt("popup", () => window.open("{there}/popup"));
attempt("local", () => document.querySelector("#local").click());
</script>"""


@contextmanager
def deaf_ear() -> Iterator[socket.socket]:
    """Yield a UDP socket; what arrives there waits to be seen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.setblocking(False)
        yield ear


def heard(ear: socket.socket) -> bytes:
    """Return what arrived; empty = nothing."""
    try:
        return ear.recv(4096)
    except BlockingIOError:
        return b""


@pytest.mark.covers("S11")
@pytest.mark.slow
async def test_no_way_of_a_page_reaches_another_server() -> None:
    """In every way, by the address and by names and spellings of it; nothing arrives, by TCP or UDP."""
    connections: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((await reader.read(200)).decode("latin-1"))
        writer.close()

    canary = await asyncio.start_server(note, "127.0.0.1", 0)
    port = canary.sockets[0].getsockname()[1]
    with deaf_ear() as ear:
        ear.bind(("127.0.0.1", port))
        shown: dict[str, str | Respond] = {
            "index": hostile_page(port),
            "away": redirect(f"http://127.0.0.1:{port}/redirect"),
            "meta": f'<meta http-equiv=refresh content="0; url=http://127.0.0.1:{port}/meta">',
            "name": hostile_page(port, "inside.example"),
            "spelled": hostile_page(port, "2130706433"),
        }
        async with serving(pages(**shown)) as site:
            names = Names(inside_example=[["127.0.0.1"]])
            settings = WebSettings(allow_private=(f"127.0.0.1:{site.port}",))
            browser = SessionBrowser(OutboundWeb(settings, resolve=names))
            try:
                for path in ("", "meta", "name", "spelled"):
                    await browser.open(f"{site.url}/{path}")
                    await browser.evaluate("() => new Promise((done) => setTimeout(done, 300))")
                with pytest.raises(PermissionDenied, match="not allowed"):
                    await browser.navigate(f"{site.url}/away")
                status = await browser.status()
            finally:
                browser.end()
                await browser.ended()
        assert heard(ear) == b""
    canary.close()
    assert connections == []
    assert any(f"127.0.0.1:{port}: port {port} is not allowed" in reason for reason in status.refused)
    assert not any(tab.url.startswith("file:") for tab in status.tabs)
    assert any(request.startswith("GET /away ") for request in site.requests)


@pytest.mark.covers("S11")
@pytest.mark.slow
async def test_ways_of_the_page_are_real() -> None:
    """An allowed server hears each of them: the page of the other test does what it says."""
    async with serving(pages()) as canary:
        shown: dict[str, str | Respond] = {
            "index": hostile_page(canary.port),
            "away": redirect(f"{canary.url}/redirect"),
        }
        async with serving(pages(**shown)) as site, browsing(site, canary) as browser:
            await browser.open(site.url)
            await browser.evaluate("() => new Promise((done) => setTimeout(done, 500))")
            missing = set(WAYS) - {request.split("/", 2)[1].split(" ")[0] for request in canary.requests}
            assert missing <= {"hint"}, canary.requests


@pytest.mark.slow
async def test_browser_sees_no_file_of_the_user_and_no_other_process() -> None:
    """Chromium's own pages and local files are refused also where a page leads there."""
    async with serving(pages(index="<title>ok</title>")) as site, browsing(site) as browser:
        await browser.open(site.url)
        for place in ("file:///etc/passwd", "chrome://version", "devtools://x", "view-source:http://x"):
            await browser.evaluate("(place) => { location.href = place }", argument=place)
            tab = (await browser.status()).tabs[0]
            assert tab.url == f"{site.url}/"
        with pytest.raises(ExecutionError, match="script failed"):
            await browser.evaluate("() => fetch('file:///etc/passwd').then((found) => found.text())")
