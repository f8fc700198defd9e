"""How many conversations are open at once: those of each principal, and all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar

from sessiontree.contracts.errors import ConfigError
from sessiontree.doors.principals import DoorPrincipal

MAX_OPEN: Final = 1_000
"""Most trees that are open at once."""


class OpenConversation(Protocol):
    """A conversation that is open."""

    principal: DoorPrincipal
    users: int
    """How many keep its tree open."""


T = TypeVar("T", bound=OpenConversation)


class OpenPlaces(Generic[T]):
    """The places of a door for open conversations.

    Args:
        occupied: The conversations that are open, oldest first.
        close_soon: Begins to close one unless it is used or at work, and returns the task that does it.
    """

    def __init__(self, occupied: Mapping[str, T], close_soon: Callable[[T], asyncio.Task[None]]) -> None:
        self._occupied = occupied
        self._close_soon = close_soon
        self._coming: Counter[str] = Counter()
        """How many trees of each principal are about to be open."""

    @asynccontextmanager
    async def reserve(self, principal: DoorPrincipal) -> AsyncIterator[None]:
        """Keep a place for one more conversation of a principal while its tree is opened.

        Raises:
            ConfigError: all places are used.
        """
        await self._make_room(principal)
        # Race: nothing is awaited between the look and this. Requests that come at once would otherwise all
        # take the same place.
        self._coming[principal.principal_id] += 1
        try:
            yield
        finally:
            self._coming[principal.principal_id] -= 1

    async def _make_room(self, principal: DoorPrincipal) -> None:
        """Close the oldest conversation of a principal that nobody uses, if it has as many as it may."""
        if self._has_room(principal):
            return
        for each in tuple(self._occupied.values()):
            if each.principal.principal_id == principal.principal_id and not each.users:
                # The request that waits here may be cancelled, and the closing must not be.
                await asyncio.shield(self._close_soon(each))
                if self._has_room(principal):
                    return
        most = min(principal.rights.max_open, MAX_OPEN)
        raise ConfigError(f"{most:,} conversations are open and at work; try again later")

    def _has_room(self, principal: DoorPrincipal) -> bool:
        own_id = principal.principal_id
        own = sum(each.principal.principal_id == own_id for each in self._occupied.values())
        is_within = own + self._coming[own_id] < principal.rights.max_open
        return is_within and len(self._occupied) + self._coming.total() < MAX_OPEN
