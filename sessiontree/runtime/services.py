"""The handles that lead from a tool back to supervisor and memory, and what a supervisor offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sessiontree.contracts.errors import SessionClosed
from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, NewRecord, Selection
from sessiontree.contracts.ports import Page, SearchHit, SearchQuery, SessionReport, SpawnRequest, Web
from sessiontree.contracts.senders import Principal
from sessiontree.runtime.memory_protocol import MemoryService


class Services(Protocol):
    """What a host may ask its supervisor while a call executes; a grant says for whom.

    Raises (every method):
        SessionClosed: the grant does not count now.
        PermissionDenied: it does not cover what is asked.
    """

    async def spawn(
        self,
        grant: str,
        request: SpawnRequest,
        key: str,
        forbidden: str | None = None,
        asked_by: tuple[Principal, ...] = (),
    ) -> str:
        """Spawn a child of the session; returns its id. ``forbidden`` says why the tree's hooks refuse it."""
        ...

    async def say(self, grant: str, text: str) -> None:
        """Say something on the nearest channel at or above the session."""
        ...

    async def report(self, grant: str) -> SessionReport:
        """Return the session's standing."""
        ...


class Link:
    """One adoption's way to supervisor and memory: dead as soon as the host lets the session go."""

    __slots__ = ("_alive", "_memory", "_services", "acting_for", "grant", "session")

    def __init__(self, services: Services, memory: MemoryService, session: str, grant: str) -> None:
        self._services = services
        self._memory = memory
        self.session = session
        self.grant = grant
        self.acting_for: Callable[[], tuple[Principal, ...]] = tuple
        """Says whom the session acts for now; nobody but the program until it is embodied."""
        self._alive = True

    def cut(self) -> None:
        """End the link; every later use is refused."""
        self._alive = False

    def services(self) -> Services:
        """Return the supervisor's services.

        Raises:
            SessionClosed: the host has let the session go.
        """
        self._check()
        return self._services

    async def spawn(self, request: SpawnRequest, key: str, forbidden: str | None = None) -> str:
        """Spawn a child of the session, for those it acts for now; raises as :meth:`services`."""
        return await self.services().spawn(self.grant, request, key, forbidden, self.acting_for())

    def memory(self) -> MemoryService:
        """Return memory; raises as :meth:`services`."""
        self._check()
        return self._memory

    def _check(self) -> None:
        if not self._alive:
            raise SessionClosed(self.session, "its host has let it go; nothing more is done for it")


class ChannelHandle:
    """Says something on the nearest channel at or above the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def send(self, text: str) -> None:
        """Deliver a message; durable when this returns."""
        link = self._link
        await link.services().say(link.grant, text)


class SessionsHandle:
    """Spawns children of the session."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once; the same key gives the same child."""
        return await self._link.spawn(request, key)


class StatusHandle:
    """Tells the session how it stands."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
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


class MemoryHandle:
    """Finds what was remembered, as far as the session may see."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def search(self, query: MemoryQuery) -> list[Hit]:
        """Return the records that fit a query best, best first."""
        link = self._link
        return await link.memory().search(link.grant, query)

    async def select(self, selection: Selection, *, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names, oldest first."""
        link = self._link
        return await link.memory().select(link.grant, selection, limit)


class MemoryWriterHandle:
    """Adds to memory for the session, and takes from what it sees."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        self._link = link

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Return the new records' ids once they are durable; the same key adds them once."""
        link = self._link
        return await link.memory().store(link.grant, records, key)

    async def forget(self, selection: Selection, *, key: str) -> list[str]:
        """Remove the records a selection names; returns their ids."""
        link = self._link
        return await link.memory().forget(link.grant, selection, key)
