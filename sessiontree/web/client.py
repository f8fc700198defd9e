"""One request: connections to judged addresses, redirects, limits, and decompression of the body.

A name is resolved when the connection is made. Every address of it is judged, and the connection goes to one
of these addresses: the name server is not asked a second time, so it cannot give a different answer.

Every redirect is a new connection to a newly judged address. It carries the same few headers and nothing
else: no cookie, credential, referrer or request body can reach another origin. The
environment's proxies are ignored. A body is never read past its limit, compressed or not.
Sources: RFC 9110, content codings and redirects; RFC 1952, gzip members.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, TypeAlias

import httpcore

from sessiontree.contracts.errors import ConfigError, ExecutionError, ToolError, ValidationError
from sessiontree.contracts.handles.http_requests import HttpResponse
from sessiontree.contracts.handles.ports import Page
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree.version import VERSION
from sessiontree.web.address import (
    Ip,
    Range,
    WebAddress,
    find_non_public_range,
    join_address,
    make_denial,
    normalise_host,
)
from sessiontree.web.connection import WebConnection
from sessiontree.web.sent_requests import BODIED, SentRequest
from sessiontree.web.settings import parse_allowed_network, parse_allowed_place


class AddressRules:
    """Judges addresses before anything is sent to them.

    Args:
        ports: The allowed ports of public hosts.
        allow_private: ``host:port`` or networks, as in ``WebSettings``.

    Raises:
        ConfigError: an entry is not valid.
    """

    def __init__(self, *, ports: Iterable[int], allow_private: Iterable[str]) -> None:
        self._ports = frozenset(ports)
        entries = tuple(allow_private)
        try:
            self._networks = tuple(parse_allowed_network(entry) for entry in entries if "/" in entry)
            places = [parse_allowed_place(entry) for entry in entries if "/" not in entry]
            self._places = frozenset((normalise_host(host), port) for host, port in places)
        except (ValueError, ToolError) as error:
            raise ConfigError(f"allow_private: {error}") from error

    def check_place(self, address: WebAddress) -> None:
        """Refuse a forbidden port or IP address; the addresses of a name are judged later.

        Raises:
            PermissionDenied: the port or the address is forbidden.
        """
        if address.port not in self._ports and (address.host, address.port) not in self._places:
            ports = ", ".join(str(port) for port in sorted(self._ports))
            raise make_denial(f"{address.authority}: port {address.port} is not allowed; ports are {ports}")
        if address.ip is not None:
            self.check_address(address.host, address.port, address.ip)

    def vet_addresses(self, host: str, port: int, found: Sequence[str]) -> list[str]:
        """Return a host's addresses in normal form, each once, in order, if all of them are allowed.

        Raises:
            PermissionDenied: one of them is not allowed; then none is used.
        """
        addresses = [_parse_address(text) for text in found]
        for address in addresses:
            self.check_address(host, port, address)
        return list(dict.fromkeys(str(address) for address in addresses))

    def check_address(self, host: str, port: int, address: Ip) -> None:
        """Refuse an address that is not public, unless the owner allowed this host or its network.

        Raises:
            PermissionDenied: the address is not allowed; the text names the rule.
        """
        found = find_non_public_range(address)
        if found is None or self._is_allowed(host, port, address, found):
            return
        shown = str(address) if host == str(address) else f"{host} ({address})"
        raise make_denial(f"{shown} is not a public address: {found.reason} ({found.network})")

    def _is_allowed(self, host: str, port: int, address: Ip, found: Range) -> bool:
        if any(address in network for network in self._networks):
            return True
        return found.sort == "local" and (host, port) in self._places


def _parse_address(text: str) -> Ip:
    """Return an address of a resolver, without its zone, which only local addresses have."""
    bare = text.partition("%")[0]
    try:
        return IPv6Address(bare) if ":" in bare else IPv4Address(bare)
    except AddressValueError as error:
        raise make_denial(f"the resolver returned {text!r}, which is not an address") from error


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, best first; raises OSError if it has none."""
MAX_TRIED = 4
"""How many addresses of one host are tried."""


async def resolve_with_system(host: str, port: int) -> list[str]:
    """Return a name's addresses from the system's resolver, in its order.

    Raises:
        OSError: the name has none, or no name server answers.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class JudgingBackend(httpcore.AsyncNetworkBackend):
    """Connects only to judged addresses, through another backend that gets the address itself.

    Certificate and ``Host`` header still use the name; only the connection uses the address.

    Args:
        rules: The rules for every address.
        resolve: Returns a name's addresses.
        connector: Makes the connections; by default the asyncio backend of httpcore.
    """

    def __init__(
        self, rules: AddressRules, resolve: Resolve, connector: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._rules = rules
        self._resolve = resolve
        self._connector = httpcore.AnyIOBackend() if connector is None else connector

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first judged address that answers.

        Raises:
            PermissionDenied: the host has an address that is not allowed.
            ExecutionError: the host has no address.
            httpcore.ConnectError, httpcore.ConnectTimeout: no address answers.
        """
        # All are judged before the first few are tried: a name with one private address is refused as a
        # whole.
        addresses = self._rules.vet_addresses(host, port, await self._resolve_host(host, port))[:MAX_TRIED]
        # Each address gets its share of the time, so that one that never answers leaves some for the others.
        share_s = None if timeout is None else timeout / len(addresses)
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._connector.connect_tcp(
                    address, port, share_s, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or ExecutionError(f"{host} has no address")

    async def _resolve_host(self, host: str, port: int) -> Sequence[str]:
        if ":" in host or host.replace(".", "").isdigit():
            return [host]  # already in normal form; a resolver might parse it differently
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ExecutionError(f"the name {host!r} can't be resolved: {error}") from error
        if not found:
            raise ExecutionError(f"the name {host!r} has no address")
        return found


ACCEPTED: Final = "gzip"
"""The Accept-Encoding header; an uncompressed body is always accepted."""
STEP_BYTES: Final = 64 * 1024
"""How many bytes are decompressed at a time at most."""
SPARE_WIRE_BYTES: Final = 2**20
"""How many bytes may arrive beyond the limit of the body, such as those of empty blocks."""
FREE_PIECES: Final = 4096
"""How many pieces of any size a body may have."""
LEAST_PIECE_BYTES: Final = 16
"""The minimum mean size of a body's pieces beyond that number."""
MAX_MEMBERS: Final = 64
"""The limit of gzip members in one body."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class Body:
    """Decodes a body piece by piece and keeps at most ``max_bytes`` of it.

    Args:
        coding: The Content-Encoding header.
        max_bytes: The limit of the decoded body; the rest is never decompressed.

    Raises:
        ExecutionError: the coding was not requested.
    """

    def __init__(self, coding: str, *, max_bytes: int) -> None:
        codings = [
            name for part in coding.split(",") if (name := part.strip().lower()) not in {"", "identity"}
        ]
        if codings not in ([], ["gzip"], ["x-gzip"]):
            raise ExecutionError("the answer has a coding that was not requested; only gzip was requested")
        self.truncated = False
        """Whether there was more than ``max_bytes``."""
        self._is_gzip = bool(codings)
        self._inflating = zlib.decompressobj(_GZIP)
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._wire_bytes = 0
        self._pieces = 0
        self._in_member = False
        self._members = 0

    def take(self, piece: bytes) -> bool:
        """Take the next piece; return whether more are wanted.

        Raises:
            ExecutionError: the data is not gzip, or the pieces are too small.
        """
        self._wire_bytes += len(piece)
        self._pieces += 1
        # A server that sends single bytes costs a step of the event loop for each of them.
        if self._pieces > FREE_PIECES and self._wire_bytes < self._pieces * LEAST_PIECE_BYTES:
            raise ExecutionError(f"stopped reading an answer that came in {self._pieces} tiny pieces")
        if self._wire_bytes > self._max_bytes + SPARE_WIRE_BYTES:
            self.truncated = True
        elif not self._is_gzip:
            self._keep(piece)
        else:
            try:
                self._inflate(piece)
            except zlib.error as error:
                raise ExecutionError(f"the answer claims to be gzip and is not: {error}") from error
        return not self.truncated

    def whole(self) -> bytes:
        """Return the decoded body, once it has ended or no more is wanted.

        Raises:
            ExecutionError: the gzip data is incomplete.
        """
        if self._in_member and not self.truncated:
            raise ExecutionError("the answer ended in the middle of its gzip data")
        return bytes(self._kept)

    def _keep(self, data: bytes) -> None:
        room = self._max_bytes - len(self._kept)
        self._kept += data[:room]
        self.truncated = len(data) > room

    def _inflate(self, data: bytes) -> None:
        while data and not self.truncated:
            if self._inflating.eof:
                # Servers pad with zeros, or send bytes that nothing reads; a member begins with its own mark
                # (RFC 1952, section 2.2).
                data = data.lstrip(b"\0")
                if not data or not data.startswith(b"\x1f"):
                    return
                self._members += 1
                if self._members >= MAX_MEMBERS:
                    raise ExecutionError(
                        f"stopped reading an answer with more than {MAX_MEMBERS} gzip members"
                    )
                self._inflating = zlib.decompressobj(_GZIP)
            # Bounded at each step: a few compressed bytes may hold gigabytes.
            self._keep(self._inflating.decompress(data, STEP_BYTES))
            self._in_member = not self._inflating.eof
            data = self._inflating.unconsumed_tail or self._inflating.unused_data


@dataclass(frozen=True, slots=True)
class HttpRedirect:
    """Where a response leads."""

    status: int
    target: WebAddress


REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
MAX_HEADER_VALUE_CHARS: Final = 8192
"""Longer header values count as empty."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The time limits of one page, and how many redirects it may have."""

    max_redirects: int
    connect_timeout_s: float
    read_timeout_s: float
    total_timeout_s: float


class WebClient:
    """Gets pages.

    Args:
        rules: The rules for every URL and address.
        network: Makes the connections.
        bounds: The limits of every page.
        turns: Limits how many pages are fetched at a time; a page's total time includes its wait.
        secured: Returns the TLS context; called at the first https address.
    """

    def __init__(
        self,
        rules: AddressRules,
        network: JudgingBackend,
        bounds: FetchLimits,
        turns: asyncio.Semaphore,
        secured: Callable[[], ssl.SSLContext],
    ) -> None:
        self._rules = rules
        self._network = network
        self._bounds = bounds
        self._turns = turns
        self._secured = secured

    async def get(self, address: WebAddress, *, max_bytes: int, accept: str) -> Page:
        """Return the page at an address, redirects followed, with any status; raises as :meth:`send`."""
        return (
            await self.send(address, SentRequest(headers=(("Accept", accept),)), max_bytes=max_bytes)
        ).page

    async def send(self, address: WebAddress, sent: SentRequest, *, max_bytes: int) -> HttpResponse:
        """Send a request and return the response, redirects followed, with any status.

        Raises:
            PermissionDenied: an address on the way is not allowed, or a redirect leaves https.
            ExecutionError: the page cannot be reached, takes too long, has too many redirects, or is not a
                valid answer.
        """
        limit_s = self._bounds.total_timeout_s
        try:
            # The time limit is outermost, so that the wait for a turn counts.
            async with asyncio.timeout(limit_s), self._turns:
                return await self._follow(address, sent, max_bytes)
        except TimeoutError as error:
            raise ExecutionError(
                f"stopped fetching {address.shown}: it took longer than {limit_s:g} s"
            ) from error

    async def connect(self, address: WebAddress) -> WebConnection:
        """Return a connection to the host and port of an address.

        Raises:
            PermissionDenied: the port, or an address of the host, is not allowed.
            ExecutionError: the host can't be reached.
        """
        self._rules.check_place(address)
        limit_s = self._bounds.connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                stream = await self._network.connect_tcp(address.host, address.port, limit_s)
        except (httpcore.NetworkError, httpcore.TimeoutException) as error:
            why = f"{address.authority} can't be reached: {_describe_error(error)}"
            raise ExecutionError(why, retryable=True) from error
        except TimeoutError as error:
            raise ExecutionError(f"{address.authority} did not answer within {limit_s:g} s") from error
        return WebConnection(stream)

    async def _follow(self, address: WebAddress, sent: SentRequest, max_bytes: int) -> HttpResponse:
        passed: list[str] = []
        begun = address
        while True:
            try:
                answer = await self._ask(address, sent, max_bytes, tuple(passed))
            except ToolError as error:
                if passed:  # a page chose this address
                    error.message = f"a redirect of {begun.shown} failed: {_mark_text(begun, error.message)}"
                raise
            if isinstance(answer, HttpResponse):
                return answer
            if len(passed) >= self._bounds.max_redirects:
                raise ExecutionError(
                    f"{begun.shown}: more than {len(passed)} redirects, the last one to "
                    f"{_mark_text(begun, answer.target.shown)}"
                )
            # Whoever listens on the way could read the request and change the page.
            if address.scheme == "https" and answer.target.scheme == "http":
                raise make_denial(
                    f"{begun.shown} redirects to what is not encrypted: "
                    f"{_mark_text(begun, answer.target.shown)}"
                )
            passed.append(str(address))
            sent = sent.follow_redirect(answer.status, stays=answer.target.origin == address.origin)
            address = answer.target

    async def _ask(
        self, address: WebAddress, sent: SentRequest, max_bytes: int, passed: tuple[str, ...]
    ) -> HttpResponse | HttpRedirect:
        """Return the response of one address, or its redirect if that is followed."""
        self._rules.check_place(address)
        # The first call reads the certificates from files, for which the event loop must not wait.
        context = await asyncio.to_thread(self._secured) if address.scheme == "https" else None
        connection = httpcore.AsyncHTTPConnection(
            httpcore.Origin(address.scheme.encode(), address.host.encode(), address.port),
            ssl_context=context,
            network_backend=self._network,
        )
        try:
            response = await connection.handle_async_request(self._request(address, sent))
            headers = _collect_headers(response.headers)
            location = headers.get("location")
            leads_to = ""
            if response.status in REDIRECTS and location is not None:
                target = _redirect_address(address, location)
                if sent.may_follow(response.status, stays=target.origin == address.origin):
                    return HttpRedirect(response.status, target)
                leads_to = str(target)
            body = Body(headers.get("content-encoding", ""), max_bytes=max_bytes)
            async for piece in _stream_pieces(response):
                if not body.take(piece):
                    break
            content_type, charset = _parse_content_type(headers.get("content-type", ""))
            page = Page(
                url=str(address),
                status=response.status,
                content_type=content_type,
                charset=charset,
                body=body.whole(),
                truncated=body.truncated,
                redirects=passed,
            )
            return HttpResponse(page, _select_shown_headers(response.headers), sent.method, leads_to)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            what = "can't be fetched" if sent.method == "GET" else f"gave no answer to {sent.method}"
            why = f"{address.shown} {what}: {_describe_error(error)}"
            raise ExecutionError(why, retryable=sent.is_safe) from error
        finally:
            await connection.aclose()

    def _request(self, address: WebAddress, sent: SentRequest) -> httpcore.Request:
        wait_s = self._bounds.read_timeout_s
        own = {
            "Host": address.authority,
            "Accept": "*/*",
            "Accept-Encoding": ACCEPTED,
            "User-Agent": f"sessiontree/{VERSION}",
            # Each request gets a connection of its own, whose address is judged when it is made.
            "Connection": "close",
        }
        if sent.body or sent.method in BODIED:
            own["Content-Length"] = str(len(sent.body))
        given = {name.lower() for name, _ in sent.headers}
        kept = [(name, value) for name, value in own.items() if name.lower() not in given]
        return httpcore.Request(
            sent.method,
            httpcore.URL(
                scheme=address.scheme, host=address.host, port=address.port, target=address.target.encode()
            ),
            headers=[(name.encode("ascii"), value.encode("utf-8")) for name, value in (*kept, *sent.headers)],
            content=sent.body,
            extensions={
                "timeout": {"connect": self._bounds.connect_timeout_s, "read": wait_s, "write": wait_s}
            },
        )


def _mark_text(begun: WebAddress, text: str) -> str:
    """Return what a page or its redirect says, between the marks of untrusted text."""
    return wrap_untrusted(text, kind="redirect", source=begun.shown)


def _redirect_address(address: WebAddress, location: str) -> WebAddress:
    try:
        return replace(join_address(address, location), is_secret=address.is_secret)
    except ValidationError as error:
        # This is the server's fault, not the caller's; the server's text is not quoted.
        raise ExecutionError(f"{address.shown} redirects to something that is not a web address") from error


def _stream_pieces(response: httpcore.Response) -> AsyncIterable[bytes]:
    stream = response.stream
    assert isinstance(stream, AsyncIterable)  # noqa: S101 - always true for an asynchronous connection
    return stream


def _collect_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the first value of each header, by its lower-case name."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        if key not in found:
            # Emptied and not cut: half of an address or of a media type would mean something else.
            if len(value) > MAX_HEADER_VALUE_CHARS:
                value = b""
            found[key] = value.decode("utf-8", errors="replace")
    return found


MAX_SHOWN_HEADERS: Final = 100
"""How many headers of a response are kept."""
_HEADER_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _select_shown_headers(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """Return a response's headers, names in lower case; cookies, which are credentials, are left out."""
    found = [
        (
            name.decode("latin-1").lower(),
            _HEADER_CONTROLS.sub(" ", value[:MAX_HEADER_VALUE_CHARS].decode("utf-8", errors="replace")),
        )
        for name, value in pairs
    ]
    return tuple(pair for pair in found if pair[0] not in {"set-cookie", "set-cookie2"})[:MAX_SHOWN_HEADERS]


def _parse_content_type(header: str) -> tuple[str, str | None]:
    """Return media type and charset, both lower-case; an empty type if the header holds none."""
    media, *parameters = (part.strip() for part in header.lower().split(";"))
    if not _MEDIA_TYPE.fullmatch(media):
        media = ""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and (charset := value.strip(" \"'")):
            return media, charset
    return media, None


def _describe_error(error: Exception) -> str:
    """Return what went wrong; texts of the protocol would quote the server."""
    if isinstance(error, httpcore.ProtocolError):
        return "its answer is incomplete, or not valid HTTP"
    words: dict[type[Exception], str] = {
        httpcore.ConnectTimeout: "it did not accept the connection in time",
        httpcore.ReadTimeout: "it did not answer in time",
        httpcore.WriteTimeout: "it did not accept the request in time",
        httpcore.ReadError: "it closed the connection before the end of its answer",
        httpcore.WriteError: "it closed the connection before it had the request",
    }
    return words.get(type(error)) or str(error) or type(error).__name__
