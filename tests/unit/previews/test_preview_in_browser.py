"""A preview in a browser: it works, and it reaches nothing of the console on the same host."""

from __future__ import annotations

from typing import Final

import pytest

from sessiontree.browser.found import find_browser
from sessiontree.browser.session_browser import SessionBrowser
from sessiontree.previews.preview_server import PreviewServer
from tests.unit.web.site_fakes import Site, answer, local_web, serving

pytestmark = pytest.mark.skipif(not find_browser().is_ready, reason="no browser is installed")

ATTACK: Final = """async (console_) => {
  const tried = async (attempt) => {
    try { return String(await attempt()); } catch (error) { return error.name; }
  };
  const loaded = (element, url) => new Promise((done) => {
    element.onload = () => done("loaded");
    element.onerror = () => done("refused");
    element.src = url;
    document.body.append(element);
  });
  return {
    cookie: await tried(() => document.cookie),
    set: await tried(() => { document.cookie = "a=b"; return "set"; }),
    storage: await tried(() => localStorage.length),
    origin: self.origin,
    fetched: await tried(() => fetch(`${console_}/fetched`, { credentials: "include" })),
    image: await loaded(new Image(), `${console_}/image`),
    script: await loaded(document.createElement("script"), `${console_}/script`),
    socket: await tried(() => new Promise((done, fail) => {
      const socket = new EventSource(`${console_}/stream`);
      socket.onopen = () => done("open");
      socket.onerror = () => done("refused");
    })),
    form: await tried(() => {
      const form = document.createElement("form");
      form.action = `${console_}/form`;
      document.body.append(form);
      form.submit();
      return "sent";
    }),
    style: getComputedStyle(document.body).color,
    ran: document.title,
    module: await tried(() => import("./module.js").then((module) => module.value)),
  };
}"""


@pytest.mark.covers("U20")
async def test_hostile_page_reaches_no_cookie_of_its_host() -> None:
    """Cookies are shared by all ports: yet the page has none, and asks nothing but its own files."""
    files = {
        "index.html": b"<!doctype html><title>before</title><link rel=stylesheet href=a.css><body>"
        b"<script src=a.js></script>",
        "a.css": b"body { color: rgb(1, 2, 3) }",
        "a.js": b"document.title = 'ran'",
        "module.js": b"export const value = 7",
    }
    server = PreviewServer()
    page = server.publish("t", "main", "site", files, "index.html")
    cookie = "Set-Cookie: sessiontree-1=secret; Path=/"
    async with serving(answer(b"the console", headers=[cookie])) as console:
        browser = SessionBrowser(local_web(console, Site(int(page.url.split(":")[2].partition("/")[0]))))
        try:
            await browser.open(console.url)
            assert await browser.evaluate("document.cookie") == "sessiontree-1=secret"
            asked = len(console.requests)
            await browser.navigate(page.url)
            found = await browser.evaluate(ATTACK, argument=console.url)
            assert found == {
                "cookie": "SecurityError",
                "set": "SecurityError",
                "storage": "SecurityError",
                "origin": "null",
                "fetched": "TypeError",
                "image": "refused",
                "script": "refused",
                "socket": "refused",
                "form": "sent",  # it says nothing: the request is not sent
                "style": "rgb(1, 2, 3)",
                "ran": "ran",
                "module": "7",
            }
            assert len(console.requests) == asked
        finally:
            browser.end()
            await browser.ended()
            await server.close()
