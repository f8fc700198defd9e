"""Contracts of the built-in tools for the web and for pages."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from sessiontree import App, ExecutionError, PermissionDenied, ToolReply, ValidationError, WebSettings
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.testing.tool_contract import ToolCase, ToolContract
from tests.behaviour.contract_fixtures import AT_ONCE, OUTSIDE, SHORT, TEXT, check_file, contract

ENDLESS = b"<script>for (;;) {}</script>"
"""A page whose script does not end."""
PAGE = b"<!doctype html><html lang=en><title>A page</title><h1>Hello</h1></html>"


def web_contracts(url: str, port: int) -> tuple[ToolContract, ...]:
    """Return the contracts of the tools that reach the web; see ``every_contract`` for the site."""
    app = App(web=WebSettings(allow_private=(f"127.0.0.1:{port}",)))
    return (
        contract(
            "web_fetch",
            ToolCase("a page", {"url": f"{url}/page"}, says="hello"),
            ToolCase("a private place", {"url": "http://127.0.0.1:8181/"}, error=PermissionDenied),
            ToolCase("no address", {"url": "nowhere"}, error=ValidationError, says="nowhere"),
            slow=ToolCase("a page that does not come", {"url": f"{url}/slow"}),
            huge=ToolCase("a long page", {"url": f"{url}/huge"}, says="line"),
            undecodable=ToolCase("bytes", {"url": f"{url}/bytes"}, says="a"),
            not_checked={},
            app=app,
        ),
        contract(
            "http_request",
            ToolCase("a request", {"url": f"{url}/page", "body": "x"}, says="hello"),
            ToolCase("saved", {"url": f"{url}/page", "save_as": "a"}, check=check_file("a", b"hello")),
            ToolCase("a private place", {"url": "http://127.0.0.1:8181/"}, error=PermissionDenied),
            ToolCase(
                "two bodies", {"url": url, "body": "x", "file": "a"}, error=ValidationError, says="body"
            ),
            slow=ToolCase("a service that does not answer", {"url": f"{url}/slow"}),
            huge=ToolCase("a long answer", {"url": f"{url}/huge"}, says="line"),
            undecodable=ToolCase("bytes", {"url": f"{url}/bytes"}, says="a"),
            not_checked={},
            app=app,
        ),
        contract(
            "browser",
            ToolCase("a page", {"action": "open", "url": f"{url}/page"}, says="opened"),
            ToolCase("not running", {"action": "stop"}, says="was not running"),
            ToolCase(
                "a private place", {"action": "open", "url": "http://127.0.0.1:8181/"}, error=PermissionDenied
            ),
            ToolCase("no address", {"action": "open"}, error=ValidationError, says="url"),
            ToolCase("no tab", {"action": "focus", "tab": "t9"}, error=ExecutionError, says="t9"),
            slow=ToolCase("a page that does not come", {"action": "open", "url": f"{url}/slow"}),
            undecodable=ToolCase("bytes", {"action": "open", "url": f"{url}/bytes"}, says="opened"),
            not_checked={"huge": "a snapshot needs a page that is open: tests of the browser"},
            app=app,
        ),
        contract(
            "web_search",
            ToolCase("a hit", {"query": "hello"}, says="http://one.example/"),
            ToolCase("no words", {"query": " "}, error=ValidationError, says="query"),
            slow=ToolCase("a provider that does not answer", {"query": "slow"}),
            undecodable=ToolCase("bytes", {"query": "bytes"}, error=ExecutionError),
            app=App(web=WebSettings(search_url=url)),
            not_checked=SHORT,
        ),
    )


def media_contracts() -> tuple[ToolContract, ...]:
    """Return the contracts of the tools for images and speech."""
    picture = io.BytesIO()
    Image.new("RGB", (4, 3), "red").save(picture, "PNG")
    look: dict[str, JsonValue] = {"images": ["a.png"], "question": "Which colour?"}
    return (
        contract(
            "image",
            ToolCase("a picture", look, files={"a.png": picture.getvalue()}, says="a.png"),
            ToolCase("no picture", look, files={"a.png": b"text"}, error=ExecutionError, says="a.png"),
            ToolCase("no file", look, error=ExecutionError, says="a.png"),
            ToolCase("outside", {**look, "images": ["/etc/a.png"]}, error=PermissionDenied, says=OUTSIDE),
            undecodable=ToolCase("bytes", look, files={"a.png": b"\xff\xfe"}, error=ExecutionError),
            not_checked={**AT_ONCE, **SHORT},
        ),
        contract(
            "tts",
            ToolCase("a text", {"text": "Hello", "path": "a.wav"}, says="a.wav", check=_check_is_sound),
            ToolCase("outside", {"text": "x", "path": "../a.wav"}, error=PermissionDenied, says=OUTSIDE),
            ToolCase("nothing", {"text": " ", "path": "a.wav"}, error=ValidationError, says="text"),
            not_checked={**AT_ONCE, **SHORT, **TEXT},
        ),
    )


def _check_is_sound(reply: ToolReply, workspace: Path) -> None:
    assert (workspace / "a.wav").read_bytes()[:4] == b"RIFF"


def page_contracts() -> tuple[ToolContract, ...]:
    """Return the contracts of the tools that make pages."""
    return (
        contract(
            "write_html",
            ToolCase(
                "a page", {"filename": "a.html", "content": PAGE.decode()}, check=check_file("a.html", PAGE)
            ),
            ToolCase(
                "no page", {"filename": "a.exe", "content": ""}, error=ValidationError, says="written in"
            ),
            ToolCase(
                "outside", {"filename": "../a.html", "content": ""}, error=PermissionDenied, says=OUTSIDE
            ),
            not_checked={**AT_ONCE, **SHORT, **TEXT},
        ),
        contract(
            "preview_screenshot",
            ToolCase("a page", {}, files={"index.html": PAGE}, says="desktop"),
            ToolCase("no page", {}, error=ExecutionError, says="index.html"),
            ToolCase("no picture's name", {"save_as": "a.html"}, error=ValidationError, says=".png"),
            ToolCase("outside", {"filename": "/etc/a.html"}, error=PermissionDenied, says=OUTSIDE),
            slow=ToolCase("a page", {}, files={"index.html": ENDLESS}),
            undecodable=ToolCase("bytes", {}, files={"index.html": b"<p>\xff"}, says="desktop"),
            not_checked=SHORT,
        ),
        contract(
            "validate_page",
            ToolCase("a page", {}, files={"index.html": PAGE}, says="score"),
            ToolCase("no page", {}, error=ExecutionError, says="index.html"),
            ToolCase("no check", {"checks": []}, error=ValidationError, says="checks"),
            ToolCase("outside", {"filename": "/etc/a.html"}, error=PermissionDenied, says=OUTSIDE),
            slow=ToolCase("a page", {}, files={"index.html": ENDLESS}),
            undecodable=ToolCase("bytes", {}, files={"index.html": b"<p>\xff"}, says="score"),
            not_checked=SHORT,
        ),
        contract(
            "canvas",
            ToolCase("a page", {"action": "present", "html": PAGE.decode()}, says="shown"),
            ToolCase("nothing to present", {"action": "present"}, error=ValidationError),
            ToolCase("no viewer", {"action": "eval", "code": "1"}, error=ExecutionError),
            ToolCase(
                "no file", {"action": "present", "path": "none.html"}, error=ExecutionError, says="none"
            ),
            ToolCase("no messages", {"action": "a2ui_push", "jsonl": "{}"}, error=ValidationError),
            undecodable=ToolCase(
                "bytes", {"action": "present", "path": "a.html"}, files={"a.html": b"<p>\xff"}, says="shown"
            ),
            not_checked={**AT_ONCE, **SHORT},
        ),
        contract(
            "deploy_preview",
            ToolCase("a page", {}, files={"index.html": PAGE}, says="preview_url"),
            ToolCase("no page", {}, error=ExecutionError, says="index.html"),
            ToolCase("outside", {"project_dir": "/etc"}, error=PermissionDenied, says=OUTSIDE),
            undecodable=ToolCase("bytes", {}, files={"index.html": b"\xff"}, says="preview_url"),
            not_checked={**AT_ONCE, **SHORT},
        ),
    )
