"""The handles that lead from a tool back to the supervisor, and what the supervisor must offer for them."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.errors import SessionClosed
from sessiontree.contracts.ports import Page, SearchHit, SearchQuery, SessionReport, SpawnRequest, Web


class Services(Protocol):
    """What a host may ask its supervisor while a call executes; a grant says for whom.

    Raises (every method):
        SessionClosed: the grant does not count now.
        PermissionDenied: it does not cover what is asked.
    """

    async def spawn(self, grant: str, request: SpawnRequest, key: str) -> str:
        """Spawn a child of the session; returns its id."""
        ...

    async def say(self, grant: str, text: str) -> None:
        """Say something on the nearest channel at or above the session."""
        ...

    async def report(self, grant: str) -> SessionReport:
        """Return the session's standing."""
        ...


class Link:
    """One adoption's way to the supervisor: dead as soon as the host lets the session go."""

    __slots__ = ("_alive", "_services", "grant", "session")

    def __init__(self, services: Services, session: str, grant: str) -> None:
        """Bind session and grant."""
        self._services = services
        self.session = session
        self.grant = grant
        self._alive = True

    def cut(self) -> None:
        """End the link; every later use is refused."""
        self._alive = False

    def services(self) -> Services:
        """Return the supervisor's services.

        Raises:
            SessionClosed: the host has let the session go.
        """
        if not self._alive:
            raise SessionClosed(self.session, "its host has let it go; nothing more is done for it")
        return self._services


class ChannelHandle:
    """Says something on the nearest channel at or above the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        """Keep the link."""
        self._link = link

    async def send(self, text: str) -> None:
        """Deliver a message; durable when this returns."""
        link = self._link
        await link.services().say(link.grant, text)


class SessionsHandle:
    """Spawns children of the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        """Keep the link."""
        self._link = link

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once; the same key gives the same child."""
        link = self._link
        return await link.services().spawn(link.grant, request, key)


class StatusHandle:
    """Tells the session how it stands."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        """Keep the link."""
        self._link = link

    async def report(self) -> SessionReport:
        """Return the session's standing now."""
        link = self._link
        return await link.services().report(link.grant)


class WebHandle:
    """Reads the web for the session, as long as it is embodied here."""

    __slots__ = ("_link", "_web")

    def __init__(self, link: Link, web: Web) -> None:
        """Keep the link and the process's own web."""
        self._link = link
        self._web = web

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return what a GET of an address leads to."""
        self._link.services()
        return await self._web.get(url, max_bytes=max_bytes, accept=accept)

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits of the owner's search provider."""
        self._link.services()
        return await self._web.search(query)
