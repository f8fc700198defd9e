"""Listening for people who look at previews: one server on a free port of the loopback address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import uvicorn

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.previews import PublishedPage
from sessiontree.previews.preview_site import PreviewSite

HOST: Final = "127.0.0.1"
MAX_CONNECTIONS: Final = 64
MAX_HEADERS: Final = 16 * 1024
"""Most bytes of a request's line and headers."""
GRACE_S: Final = 1


class PreviewServer:
    """Serves the previews of one supervisor, on its event loop."""

    def __init__(self) -> None:
        self._site = PreviewSite()
        self._origin = ""
        self._server: _CalmServer | None = None
        self._serving: asyncio.Task[None] | None = None

    def publish(
        self, tree_id: str, session: str, name: str, files: Mapping[str, bytes], entry: str
    ) -> PublishedPage:
        """Publish a page; the first one begins to listen.

        Raises:
            ExecutionError: there are too many pages or files, they are too large, or no port is free.
        """
        self._listen()
        path, replaced = self._site.publish(tree_id, session, name, files, entry)
        return PublishedPage(self._origin + path, replaced)

    def forget(self, tree_id: str, session: str | None = None) -> None:
        """Take back the pages of a session, or of a whole tree."""
        self._site.forget(tree_id, session)

    async def close(self) -> None:
        """End the server; returns when its port is closed."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])

    def _listen(self) -> None:
        # A server that has failed is started again by the next page, on another port.
        if self._serving is not None and not self._serving.done():
            return
        # By its protocol asyncio knows it for TCP and sends at once: else an answer waits for the client's
        # delayed acknowledgement, some 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Bound here and not by the server, because the addresses of pages need the port before it serves.
            listener.bind((HOST, 0))
            listener.listen(MAX_CONNECTIONS)
        except OSError as error:
            listener.close()
            raise ExecutionError(f"no preview can be served on {HOST}: {error.strerror}") from error
        port = listener.getsockname()[1]
        self._origin = f"http://{HOST}:{port}"
        self._site.hosts = frozenset({f"{HOST}:{port}", f"localhost:{port}"})
        config = uvicorn.Config(
            self._site,
            access_log=False,  # it would write the secret paths
            log_level="warning",
            lifespan="off",
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEADERS,
            http="h11",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _CalmServer(config)
        self._serving = asyncio.create_task(self._server.serve([listener]))


class _CalmServer(uvicorn.Server):
    """Leaves signals to whoever started it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
