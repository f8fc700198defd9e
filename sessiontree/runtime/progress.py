"""Progress: deltas and updates for whoever watches. Lossy by design, never journaled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sessiontree.contracts.errors import EngineLost
from sessiontree.contracts.events import Event


@dataclass(frozen=True, slots=True)
class Progress:
    """One event of one session."""

    tree_id: str
    session: str
    event: Event


class ProgressReader:
    """One watcher's ring: the newest events, and how many older ones were dropped."""

    def __init__(self, hub: ProgressHub, tree_id: str, session: str | None, capacity: int) -> None:
        """Watch a tree, or one session of it."""
        self._hub = hub
        self.tree_id = tree_id
        self.session = session
        self.dropped = 0
        self.offered = 0
        """How many events there were, those dropped among them."""
        self._ring: deque[Progress] = deque(maxlen=capacity)
        self._news = asyncio.Event()
        self._failure: EngineLost | None = None

    def fail(self, error: EngineLost) -> None:
        """Let whoever waits know that nothing more will come; what is held can still be taken."""
        self._failure = error
        self._news.set()

    def offer(self, progress: Progress) -> None:
        """Take an event in, dropping the oldest when the ring is full."""
        self.offered += 1
        if len(self._ring) == self._ring.maxlen:
            self.dropped += 1
        self._ring.append(progress)
        self._news.set()

    async def next(self) -> Progress:
        """Return the oldest event held, waiting for one.

        Raises:
            EngineLost: none is held, and none will come: the Ray that sessions ran on is gone.
        """
        while not self._ring:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        return self._ring.popleft()

    def drain(self) -> list[Progress]:
        """Return all events held, without waiting."""
        events = list(self._ring)
        self._ring.clear()
        return events

    async def catch_up(self) -> None:
        """Wait until what has happened so far is held, where it comes from another process."""
        await self._hub.catch_up(self)

    def close(self) -> None:
        """Stop watching."""
        self._hub.forget(self)


class ProgressRelay:
    """Takes the progress of watched trees where it arises, to be carried to the supervisor.

    Args:
        hub: The hub of this process.
        wake: Called with each event.
        capacity: Most events held; the oldest is dropped first.
    """

    session: str | None = None
    """A relay takes every session's."""

    def __init__(self, hub: ProgressHub, wake: Callable[[], None], capacity: int = 1024) -> None:
        self._hub = hub
        self._wake = wake
        self._ring: deque[Progress] = deque(maxlen=capacity)

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Take a tree's progress from now on, or no more."""
        readers = self._hub.readers_of(tree_id)
        if watched and self not in readers:
            readers.append(self)
        elif not watched and self in readers:
            readers.remove(self)

    def offer(self, progress: Progress) -> None:
        """Take an event in."""
        self._ring.append(progress)
        self._wake()

    @property
    def holds(self) -> bool:
        """Whether anything is held."""
        return bool(self._ring)

    def drain(self) -> tuple[Progress, ...]:
        """Return what is held, and hold it no more."""
        events = tuple(self._ring)
        self._ring.clear()
        return events


class ProgressHub:
    """Hands events to the readers that watch them; costs nothing where nobody does."""

    def __init__(self) -> None:
        self._readers: dict[str, list[ProgressReader | ProgressRelay]] = {}

    def watch(self, tree_id: str, session: str | None = None, capacity: int = 1024) -> ProgressReader:
        """Return a new reader of a tree's events."""
        reader = ProgressReader(self, tree_id, session, capacity)
        self._readers.setdefault(tree_id, []).append(reader)
        return reader

    def forget(self, reader: ProgressReader) -> None:
        """Drop a reader."""
        readers = self._readers.get(reader.tree_id, [])
        if reader in readers:
            readers.remove(reader)

    async def catch_up(self, reader: ProgressReader) -> None:
        """Return at once: what happens here is held as it happens."""

    def readers_of(self, tree_id: str) -> list[ProgressReader | ProgressRelay]:
        """Return the living list of a tree's readers; empty = nobody watches."""
        return self._readers.setdefault(tree_id, [])

    def emit(self, tree_id: str, session: str, event: Event) -> None:
        """Hand an event to every reader that watches its session."""
        for reader in self._readers.get(tree_id, ()):
            if reader.session is None or reader.session == session:
                reader.offer(Progress(tree_id, session, event))
