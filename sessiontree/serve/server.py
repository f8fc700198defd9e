"""The server: its routes, the limits of what it takes, and the headers that keep a page to itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Any, Final, Protocol, TypeAlias

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sessiontree.contracts.errors import ConfigError, SessionTreeError, TreeNotFound, describe_error
from sessiontree.contracts.values.jsonable import dump_json, parse_json
from sessiontree.serve.access import PARAMETER, Access, remove_token
from sessiontree.serve.canvas_frames import HEADERS as FRAME_HEADERS
from sessiontree.serve.served_trees import ServedTrees
from sessiontree.view.feed import NewsFeed, Viewer

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types sessiontree"
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
MAX_BODY: Final = 256 * 1024
"""Most bytes of a request's body."""
MAX_STREAMS: Final = 128
"""Most feeds that are open at once."""
PING_S: Final = 15
_TYPES: Final = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}

WAY_IN: Final = "way_in"
"""The page, and its module, that opens an address again; nobody has to be known to get it."""

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Tell: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | str]]


class Site(Protocol):
    """What a server serves."""

    farewell: asyncio.Event
    """Set when the server is about to end: viewers learn of it, and do not come back."""

    def routes(self) -> list[Route]:
        """Return its pages and what they ask."""

    async def close(self) -> None:
        """Let go of everything that is open."""


class Api(Protocol):
    """What programs ask of a server, each with a token of its own."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the paths of its routes begin with."""

    def routes(self) -> list[Route]:
        """Return its routes; each of them refuses whoever has no token."""

    async def close(self) -> None:
        """Let go of everything that is open."""


def serve_app(site: Site, access: Access, api: Api | None = None) -> Starlette:
    """Return the application: pages, their modules, questions and feeds.

    Args:
        site: What is served.
        access: Who may use it.
        api: What programs may ask, besides.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        if api is not None:
            await api.close()
        await site.close()

    further = [] if api is None else api.routes()
    app = Starlette(routes=[*site.routes(), *further], lifespan=lifespan)
    app.add_middleware(_Gate, access=access, prefixes=() if api is None else api.prefixes)
    return app


class _Gate:
    """Refuses whoever may not use the server, before anything else is looked at, and sets the headers."""

    def __init__(self, app: ASGIApp, access: Access, prefixes: tuple[str, ...] = ()) -> None:
        self._app = app
        self._access = access
        self._prefixes = prefixes
        """What the paths begin with that programs ask with a token of their own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # a web socket is refused by not being accepted

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.lower().encode() not in names or name == "Cache-Control"
                ]
            await send(message)

        request = Request(scope)
        if request.url.path.startswith(self._prefixes):
            refusal = self._refuse_page(request)
        else:
            refusal = self._answer_way_in(request) or self._find_refusal(request)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refuse_page(self, request: Request) -> Response | None:
        """Refuse a page: no page of this server asks there, and one of another site must not."""
        foreign = self._access.explain_no_program(request.headers)
        return PlainTextResponse(f"{foreign}\n", 403) if foreign else None

    def _answer_way_in(self, request: Request) -> Response | None:
        """Answer who followed a link of another site, such as a notebook: the browser leaves the cookie out.

        The page that it gets holds nothing, and opens the same address from here.
        """
        if request.method != "GET" or self._access.explain_foreign(request.method, request.headers):
            return None
        if request.url.path == f"/assets/{WAY_IN}.js":
            return Response(_read(f"{WAY_IN}.js"), media_type=_TYPES["js"])
        if request.headers.get("sec-fetch-site") != "cross-site":
            return None
        value = self._access.take_token(request.query_params.get(PARAMETER, ""))
        headers = {} if value is None else {"Set-Cookie": self._access.set_cookie(value)}
        return Response(_read(f"{WAY_IN}.html"), headers=headers, media_type=_TYPES["html"])

    def _find_refusal(self, request: Request) -> Response | None:
        foreign = self._access.explain_foreign(request.method, request.headers)
        if foreign:
            return PlainTextResponse(f"{foreign}\n", 403)
        token = request.query_params.get(PARAMETER)
        if token is not None and request.method == "GET":
            value = self._access.take_token(token)
            if value is not None:
                place = remove_token(request.url.path, request.url.query)
                headers = {"Set-Cookie": self._access.set_cookie(value)}
                return RedirectResponse(place, 303, headers)
        if not self._access.is_known(_read_cookie(request.headers, self._access.cookie)):
            words = "open the address that `sessiontree serve` printed; each lets one browser in, once\n"
            return PlainTextResponse(words, 401)
        return None


def _read(name: str) -> bytes:
    return (files("sessiontree.view") / "page" / name).read_bytes()


def _read_cookie(headers: Headers, name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


class PageParts:
    """What all sites have: modules of pages, answers to what pages ask, and streams of news."""

    def __init__(self) -> None:
        self._streams = 0
        place = files("sessiontree.view") / "page"
        self._assets = {
            each.name: each.read_bytes() for each in place.iterdir() if each.name.rpartition(".")[2] in _TYPES
        }
        """Everything that a page loads, read once: a request's path names an entry, never a file."""

    def page(self, name: str) -> Handler:
        """Return what answers with a page."""

        async def answer(request: Request) -> Response:
            return Response(self._assets[name], media_type="text/html")

        return answer

    async def serve_asset(self, request: Request) -> Response:
        """Answer with a module."""
        name = request.path_params["name"]
        if name not in self._assets:
            return PlainTextResponse("no such module\n", 404)
        return Response(self._assets[name], media_type=_TYPES[name.rpartition(".")[2]])

    async def ask(self, request: Request, tell: Tell) -> Response:
        """Answer what a page asks: a JSON object with a verb and what it is given.

        Args:
            request: The request.
            tell: Returns the answer, as an object or as JSON text.
        """
        try:
            asked = parse_json(await read_body(request, MAX_BODY))
        except ValueError as error:
            return _make_refusal(ConfigError(f"the question is not JSON: {error}"), 400)
        except ClientDisconnect:
            return Response(status_code=400)
        except TooLongError as error:
            return _make_refusal(SessionTreeError(f"the question is longer than {error}"), 413)
        verb, given = (asked.get("verb"), asked.get("given", {})) if isinstance(asked, dict) else (None, None)
        if not isinstance(verb, str) or not isinstance(given, dict):
            return _make_refusal(ConfigError('ask {"verb": name, "given": {…}}'), 400)
        try:
            answer = await tell(verb, given)
        except SessionTreeError as error:
            return _make_refusal(error, 404 if isinstance(error, TreeNotFound) else 409)
        text = answer if isinstance(answer, str) else dump_json(answer)
        return Response(text, media_type="application/json")

    async def follow(
        self, request: Request, looking: AbstractAsyncContextManager[NewsFeed], farewell: asyncio.Event
    ) -> Response:
        """Answer with a stream of news.

        Args:
            request: The request; says which revision its page has.
            looking: Keeps what is followed open.
            farewell: Set when the server ends.
        """
        if self._streams >= MAX_STREAMS:
            return _make_refusal(ConfigError(f"{MAX_STREAMS} pages are open; close one"), 503)
        known, _, revision = (request.headers.get("last-event-id") or "").rpartition(".")
        known = known or request.query_params.get("feed", "")
        revision = revision or request.query_params.get("revision", "")
        # The length is bounded because `int` of many digits takes long.
        held = int(revision) if revision.isascii() and revision.isdecimal() and len(revision) < 16 else -1
        try:
            # Entered by hand, because the stream outlives this function and leaves it at its own end.
            feed = await looking.__aenter__()
        except SessionTreeError as error:
            return _make_refusal(error, 404)
        self._streams += 1

        async def let_go() -> None:
            self._streams -= 1
            await looking.__aexit__(None, None, None)

        return _NewsStream(_stream_news(Viewer(feed, known, held), farewell), let_go)


class _NewsStream(EventSourceResponse):
    """A stream of news, and what is done at its end."""

    def __init__(self, news: AsyncIterator[dict[str, str]], let_go: Callable[[], Awaitable[None]]) -> None:
        super().__init__(news, ping=PING_S, send_timeout=30)
        self._let_go = let_go

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Race: the client may leave before the first step of the news, whose own end would not run then.
        # A HEAD request never takes that step.
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._let_go()


class TreeSite:
    """The trees of a state directory: a list of them, and a page of each.

    Args:
        trees: The trees.
    """

    def __init__(self, trees: ServedTrees) -> None:
        self.farewell = asyncio.Event()
        self._trees = trees
        self._parts = PageParts()

    def routes(self) -> list[Route]:
        """Return its pages and what they ask."""
        return [
            Route("/", self._parts.page("trees.html")),
            Route("/trees", self._list_trees),
            Route("/t/{tree_id}", self._parts.page("index.html")),
            Route("/t/{tree_id}/ask", self._ask, methods=["POST"]),
            Route("/t/{tree_id}/feed", self._serve_feed),
            Route("/t/{tree_id}/canvas/{session:path}", self._answer_frame),
            Route("/assets/{name}", self._parts.serve_asset),
        ]

    async def close(self) -> None:
        """Close all trees."""
        await self._trees.close()

    async def _list_trees(self, request: Request) -> Response:
        return JSONResponse({"trees": await self._trees.list_trees()})

    async def _ask(self, request: Request) -> Response:
        asked = partial(self._trees.ask, request.path_params["tree_id"])

        async def tell(verb: str, given: dict[str, Any]) -> dict[str, Any]:
            answer = asyncio.create_task(asked(verb, given))
            if verb == "canvas_wait":  # whoever has gone does not count as a viewer any longer
                return await _answer_while_there(request, self.farewell, answer)
            return await answer

        return await self._parts.ask(request, tell)

    async def _answer_frame(self, request: Request) -> Response:
        """Answer with the document of a canvas's frame; only a frame gets it."""
        if request.headers.get("sec-fetch-dest", "iframe") != "iframe":
            return PlainTextResponse("a canvas is shown in the page of its tree\n", 403)
        try:
            made = await self._trees.frame(request.path_params["tree_id"], request.path_params["session"])
        except SessionTreeError as error:
            return PlainTextResponse(f"{describe_error(error)}\n", 404)
        headers = {**FRAME_HEADERS, "Content-Security-Policy": made.policy}
        return Response(made.html.encode("utf-8", "replace"), headers=headers, media_type="text/html")

    async def _serve_feed(self, request: Request) -> Response:
        looking = self._trees.follow(request.path_params["tree_id"])
        return await self._parts.follow(request, looking, self.farewell)


async def _stream_news(viewer: Viewer, farewell: asyncio.Event) -> AsyncIterator[dict[str, str]]:
    """Yield a viewer's news until the server ends, and then that it does."""
    ending = asyncio.create_task(farewell.wait())
    telling: asyncio.Task[str] | None = None
    try:
        while True:
            telling = asyncio.create_task(viewer.get_next_news())
            await asyncio.wait([telling, ending], return_when=asyncio.FIRST_COMPLETED)
            if not telling.done():
                break
            yield {"id": f"{viewer.known}.{viewer.revision}", "data": telling.result()}
        yield {"event": "farewell", "data": "{}"}
    finally:
        for task in (ending, telling):
            if task is not None:
                task.cancel()


async def _answer_while_there(
    request: Request, farewell: asyncio.Event, answer: asyncio.Task[dict[str, Any]]
) -> dict[str, Any]:
    """Return an answer; cancel it, and return no question, once the page has gone or the server ends."""
    ends = [asyncio.create_task(farewell.wait()), asyncio.create_task(_wait_until_gone(request))]
    try:
        await asyncio.wait([answer, *ends], return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else {"question": None}
    finally:
        for task in (answer, *ends):
            task.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class TooLongError(Exception):
    """The body of a request is longer than it may be; the text says how long that is."""


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Raises:
        TooLongError: it has more bytes than ``most``.
        ClientDisconnect: the client has gone.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        # Counted while it arrives: a header about the length may be missing or wrong.
        if size > most:
            raise TooLongError(f"{most:,} bytes")
        parts.append(part)
    return b"".join(parts)


def _make_refusal(error: SessionTreeError, status: int) -> Response:
    return JSONResponse({"error": describe_error(error)}, status)
