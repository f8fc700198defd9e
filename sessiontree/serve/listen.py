"""Listening: the address of a server, who may choose one that other machines reach, and its life."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.serve.access import PARAMETER, Access
from sessiontree.serve.served_trees import ServedTrees
from sessiontree.serve.server import Api, Site, TreeSite, serve_app

MAX_CONNECTIONS: Final = 256
MAX_PROGRAMS: Final = 4_096
"""Most connections of a server that programs may ask, too."""
MAX_HEADERS: Final = 32 * 1024
"""Most bytes of a request's line and headers."""
MIN_TOKEN_CHARS: Final = 24
GRACE_S: Final = 2


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Raises:
        ConfigError: other machines could reach it, and it has no TLS or no token file.
    """

    host: str = "127.0.0.1"
    port: int = 0
    """0 = one that is free."""
    certificate: Path | None = None
    """File of its certificate chain, PEM."""
    key: Path | None = None
    """File of the certificate's key, PEM."""
    token_file: Path | None = None
    """File of the token that lets browsers in, readable by its owner alone."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a certificate and its key go together: give both or neither")
        if not self.is_loopback and (self.certificate is None or self.token_file is None):
            raise ConfigError(
                f"{self.host} can be reached by other machines, who would see and steer every tree; give "
                "TLS material and a token file, or listen on 127.0.0.1 and use an SSH tunnel"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "http" if self.certificate is None else "https"

    def read_token(self) -> str | None:
        """Return the token of its file; None where it has none.

        Raises:
            ConfigError: the file can't be read, others may read it, or the token is too short.
        """
        if self.token_file is None:
            return None
        try:
            mode, token = self.token_file.stat().st_mode, self.token_file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"the token file {self.token_file} can't be read: {error}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"others may read the token file {self.token_file}: chmod 600 it")
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"the token in {self.token_file} has fewer than {MIN_TOKEN_CHARS} characters")
        return token


class PageServer:
    """A server of pages.

    Args:
        served: A state directory, whose trees are served, or another site.
        address: Where it listens.
        api: What programs may ask, besides.

    Raises:
        ConfigError: it can't listen there, or its TLS material or its token can't be used.
    """

    def __init__(self, served: Path | Site, address: Address, api: Api | None = None) -> None:
        token = address.read_token()
        self._site = TreeSite(ServedTrees(served)) if isinstance(served, Path) else served
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener = _open_listener(address)
        port = self._listener.getsockname()[1]
        names = {_add_brackets(address.host)} | ({"127.0.0.1", "localhost"} if address.is_loopback else set())
        self._access = Access([f"{name}:{port}" for name in names], address.scheme, token)
        self.origin = f"{address.scheme}://{_add_brackets(address.host)}:{port}"
        """Scheme, host and port of its pages."""
        config = uvicorn.Config(
            serve_app(self._site, self._access, api),
            access_log=False,  # it would write tokens
            log_level="warning",
            lifespan="on",
            limit_concurrency=MAX_CONNECTIONS if api is None else MAX_PROGRAMS,
            h11_max_incomplete_event_size=MAX_HEADERS,
            http="h11",
            ws="none",
            server_header=False,
            # No proxy is in front, and whoever connects could send such headers.
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=None if address.certificate is None else str(address.certificate),
            ssl_keyfile=None if address.key is None else str(address.key),
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            self._listener.close()
            raise ConfigError(f"the TLS material can't be used: {error}") from error
        self._server = _QuietServer(config)

    def make_page_address(self, path: str = "/", place: str = "") -> str:
        """Return an address of a page that lets one browser in.

        Args:
            path: The page.
            place: What of it is shown first, if the page can show several things; quoted.
        """
        anchor = f"#{place}" if place else ""
        return f"{self.origin}{path}?{PARAMETER}={self._access.make_token()}{anchor}"

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until :meth:`stop` is called or the task is cancelled.

        Args:
            ready: Called when it listens.
        """
        self._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self._server.serve([self._listener]))
        try:
            ready()  # the socket listens already: who connects now waits for the first turn of the loop
            # If the caller is cancelled, the server still ends in order: pages hear the farewell first.
            await asyncio.shield(serving)
        finally:
            self.stop()
            await asyncio.wait([serving])

    def stop(self) -> None:
        """End the server; pages learn of it, and keep what they show. Any thread may call it."""
        if self._loop is not None and not self._loop.is_closed():
            # An asyncio event that another thread sets does not wake the loop.
            self._loop.call_soon_threadsafe(self._site.farewell.set)
        self._server.should_exit = True


class _QuietServer(uvicorn.Server):
    """Leaves signals to whoever started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _open_listener(address: Address) -> socket.socket:
    host = address.host.strip("[]")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0]
        # By its protocol asyncio knows it for TCP and sends at once: else an answer waits for the client's
        # delayed acknowledgement, some 40 ms.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"{address.host} is not an address of this machine: {error}") from error
    try:
        # Otherwise a server that starts again soon can't use its port while old connections time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port {address.port} of {address.host} can't be used: {error.strerror}; choose another --port"
        ) from error
    return listener


def _add_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
