"""The pages that are published, as an ASGI application: each beneath a path that nobody can guess.

A page is hostile. Its address has the console's host, and cookies are shared by all ports of a host, so its
headers give it an origin of its own that has no cookies and no storage, and let it load its own files only.
Requests are answered from memory: a path is a key of a mapping, and names no file.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.previews import MAX_PAGE_BYTES, MAX_PAGE_FILES, page_type
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_PAGES: Final = 8
"""Most pages of one session."""
MAX_HELD_BYTES: Final = 256 * 2**20
"""Most bytes of all pages together."""
TOKEN_BYTES: Final = 24

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        # no allow-same-origin: scripts of the page are of no origin, so they have no cookie of this host
        "sandbox allow-scripts allow-popups allow-modals; "
        "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline'; "
        "style-src 'self' 'unsafe-inline'; "
        "object-src 'none'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    ),
    "access-control-allow-origin": "*",  # fonts and modules of a page without an origin; the path is secret
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",  # the path is secret
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


@dataclass(slots=True)
class _HeldPage:
    files: Mapping[str, bytes]
    entry: str
    size: int


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"
    location: str = ""


class PreviewSite:
    """Holds pages and answers requests for their files."""

    def __init__(self) -> None:
        self.hosts: frozenset[str] = frozenset()
        """Values of ``Host`` that requests may have: other names may be made to lead here by other sites."""
        self._pages: dict[str, _HeldPage] = {}
        self._tokens: dict[tuple[str, str, str], str] = {}
        """Token by tree, session and name of a page."""

    def publish(
        self, tree_id: str, session: str, name: str, files: Mapping[str, bytes], entry: str
    ) -> tuple[str, bool]:
        """Hold a page; return the path of its address, and whether it replaced another one.

        Raises:
            ExecutionError: there are too many pages or files, or they are too large.
        """
        place = tree_id, session, name
        size = sum(map(len, files.values()))
        old = self._pages.get(self._tokens.get(place, ""))
        if len(files) > MAX_PAGE_FILES or size > MAX_PAGE_BYTES:
            raise ExecutionError(
                f"the page has {len(files):,} files with {size:,} bytes; at most {MAX_PAGE_FILES:,} files "
                f"with {MAX_PAGE_BYTES:,} bytes are published"
            )
        # Checked before anything changes: a refused page leaves the one that it was to replace.
        if entry not in files:
            raise ExecutionError(f"the page has no file {entry!r} to begin with")
        if old is None and sum(each[:2] == place[:2] for each in self._tokens) >= MAX_PAGES:
            raise ExecutionError(f"this session has {MAX_PAGES} previews already; replace one of them")
        held = sum(page.size for page in self._pages.values()) - (0 if old is None else old.size)
        if held + size > MAX_HELD_BYTES:
            raise ExecutionError(f"all previews together would have more than {MAX_HELD_BYTES:,} bytes")
        # The same address for a page that is replaced, so that a person only loads it again.
        token = self._tokens.setdefault(place, secrets.token_urlsafe(TOKEN_BYTES))
        self._pages[token] = _HeldPage(dict(files), entry, size)
        return f"/{token}/{'' if entry == 'index.html' else quote(entry)}", old is not None

    def forget(self, tree_id: str, session: str | None = None) -> None:
        """Drop the pages of a session, or of a whole tree."""
        for place in [each for each in self._tokens if each[0] == tree_id and session in {None, each[1]}]:
            del self._pages[self._tokens.pop(place)]

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # a web socket is refused by not being accepted
        reply = self._reply(scope)
        headers = {**HEADERS, "content-type": reply.media_type, "content-length": str(len(reply.body))}
        if reply.location:
            headers["location"] = reply.location
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})

    def _reply(self, scope: Mapping[str, Any]) -> _Reply:
        named = [value for name, value in scope["headers"] if name == b"host"]
        # Exactly one name: a page elsewhere can make its own name lead to this address and read previews as
        # its own.
        if [host.decode("latin-1").lower() in self.hosts for host in named] != [True]:
            return _Reply(403, b"this server has another name\n")
        if scope["method"] not in {"GET", "HEAD"}:
            return _Reply(405, b"previews are only read\n")
        token, slash, path = scope["path"].removeprefix("/").partition("/")
        page = self._pages.get(token)
        if page is None:
            return _Reply(404, b"no such preview; it ends with its session\n")
        if not slash:
            return _Reply(308, location=f"/{token}/")
        if not path:
            path = page.entry
        elif path.endswith("/"):
            path += "index.html"
        elif f"{path}/index.html" in page.files and path not in page.files:
            return _Reply(308, location=f"/{token}/{quote(path)}/")
        body = page.files.get(path)
        if body is None:
            return _Reply(404, b"the preview has no such file\n")
        return _Reply(200, body, page_type(path) or "application/octet-stream")
