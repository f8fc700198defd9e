"""Progress: deltas and updates for watchers. Events may be lost by design and are never journaled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn, TypeAlias

from sessiontree.contracts.errors import EngineLost, SessionTreeError
from sessiontree.contracts.reports.events import Event
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One event of one session."""

    tree_id: str
    session: str
    event: Event


Push: TypeAlias = Callable[[tuple[Progress, ...], int], bool]


class ProgressBuffer:
    """One watcher's buffer: the newest events, and the number of older ones that were dropped.

    The hub writes into it; a program reads by a :class:`ProgressReader`.
    """

    def __init__(self, hub: ProgressHub, tree_id: str, session: str | None, capacity: int) -> None:
        """Watch a tree, or one session of it."""
        self._hub = hub
        self.tree_id = tree_id
        self.session = session
        self.dropped = 0
        self.offered = 0
        """How many events there were, including dropped ones."""
        self._ring: deque[Progress] = deque(maxlen=capacity)
        self._news = asyncio.Event()
        self._failure: EngineLost | None = None
        self._has_ended = False
        self._push: Push | None = None
        self._has_pushed = False
        """Whether an event was pushed in this turn of the event loop; those that follow go together."""

    def fail(self, error: EngineLost) -> None:
        """Wake those who wait, because no event will follow. Events that are held can still be taken."""
        self._failure = error
        self._news.set()

    def offer(self, progress: Progress) -> None:
        """Accept an event; if the buffer is full, drop the oldest."""
        self.offered += 1
        push = self._push
        if push is not None and not self._ring and not self._has_pushed and push((progress,), self.dropped):
            self._has_pushed = True
            asyncio.get_running_loop().call_soon(self._start_next_turn)
            return
        if len(self._ring) == self._ring.maxlen:
            self.dropped += 1
        self._ring.append(progress)
        self._news.set()

    async def next(self) -> Progress:
        """Return the oldest event held, waiting for one.

        Raises:
            EngineLost: no event is held and none will follow, because the Ray of the sessions has ended.
        """
        while not self._ring:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        return self._ring.popleft()

    async def wait_for_next(self) -> Progress | None:
        """Return the oldest event held, waiting for one; None if none is held once :meth:`end` was called.

        Raises:
            EngineLost: as :meth:`next`.
        """
        while not self._ring:
            if self._has_ended:
                return None
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        return self._ring.popleft()

    def end(self) -> None:
        """Wake who waits in :meth:`wait_for_next`: no event that follows is of interest."""
        self._has_ended = True
        self._news.set()

    async def follow(self, push: Push, has_room: Callable[[], Awaitable[None]]) -> NoReturn:
        """Push every event, in order and as it comes, until this is cancelled.

        Args:
            push: Sends events, and the number of those dropped so far; returns whether there was room.
            has_room: Waits until there is room. Meanwhile the newest events are held.
        """
        self._push = push
        try:
            while True:
                while not self._ring:
                    self._news.clear()
                    await self._news.wait()
                await has_room()
                if push(tuple(self._ring), self.dropped):
                    self._ring.clear()
        finally:
            self._push = None

    def _start_next_turn(self) -> None:
        self._has_pushed = False

    def drain(self) -> list[Progress]:
        """Return all events held, without waiting."""
        events = list(self._ring)
        self._ring.clear()
        return events

    async def catch_up(self) -> None:
        """Wait until all events so far are held, if they come from another process."""
        await self._hub.catch_up(self)

    def close(self) -> None:
        """Stop watching; a loop over the reader ends after the events that it holds."""
        self._hub.forget(self)
        self.end()


class ProgressReader:
    """Reads the events of a tree: iterate over it with ``async for``, or take them by hand.

    It holds the newest events, and counts older ones that were dropped because nobody read them in time. A
    program gets it from :meth:`SessionTree.progress`.
    """

    def __init__(self, buffer: ProgressBuffer) -> None:
        """Read a buffer."""
        self._buffer = buffer

    @property
    def tree_id(self) -> str:
        """The tree that is watched."""
        return self._buffer.tree_id

    @property
    def session(self) -> str | None:
        """The session that is watched; None = all of the tree."""
        return self._buffer.session

    @property
    def dropped(self) -> int:
        """How many events were dropped because nobody read them in time."""
        return self._buffer.dropped

    async def __aiter__(self) -> AsyncIterator[Progress]:
        """Yield events as they come, oldest first; ends when this or the tree is closed.

        Raises:
            EngineLost: no event is held and none will follow, because the Ray of the sessions has ended.
        """
        while (progress := await self._buffer.wait_for_next()) is not None:
            yield progress

    async def next(self) -> Progress:
        """Return the oldest event held, waiting for one.

        Raises:
            EngineLost: no event is held and none will follow, because the Ray of the sessions has ended.
            SessionTreeError: no event is held, and this or the tree is closed.
        """
        progress = await self._buffer.wait_for_next()
        if progress is None:
            reason = "the reader or the tree is closed; resume the tree"
            raise SessionTreeError(f"no more progress of tree {self.tree_id!r}: {reason}")
        return progress

    def drain(self) -> list[Progress]:
        """Return all events held, without waiting."""
        return self._buffer.drain()

    async def catch_up(self) -> None:
        """Wait until all events so far are held, if they come from another process."""
        await self._buffer.catch_up()

    def close(self) -> None:
        """Stop watching; a loop over the reader ends after the events that it holds."""
        self._buffer.close()


class ProgressRelay:
    """Collects the progress of watched trees in a host, for the supervisor.

    Args:
        hub: The hub of this process.
        wake: Called after each event.
        capacity: Most events held; the oldest is dropped first.
    """

    session: str | None = None
    """None: a relay takes the events of every session."""

    def __init__(self, hub: ProgressHub, wake: Callable[[], None], capacity: int = 1024) -> None:
        self._hub = hub
        self._wake = wake
        self._ring: deque[Progress] = deque(maxlen=capacity)

    def watch(self, tree_id: str, *, watched: bool) -> None:
        """Start or stop to accept a tree's progress."""
        readers = self._hub.get_readers(tree_id)
        if watched and self not in readers:
            readers.append(self)
        elif not watched and self in readers:
            readers.remove(self)

    def offer(self, progress: Progress) -> None:
        """Accept an event."""
        self._ring.append(progress)
        self._wake()

    @property
    def holds(self) -> bool:
        """Whether anything is held."""
        return bool(self._ring)

    def drain(self) -> tuple[Progress, ...]:
        """Return the events that are held, and remove them."""
        events = tuple(self._ring)
        self._ring.clear()
        return events


class ProgressHub:
    """Hands events to the readers that watch them. Without readers it costs nothing."""

    def __init__(self) -> None:
        self._readers: dict[str, list[ProgressBuffer | ProgressRelay]] = {}

    def watch(self, tree_id: str, session: str | None = None, capacity: int = 1024) -> ProgressBuffer:
        """Return a new reader of a tree's events."""
        reader = ProgressBuffer(self, tree_id, session, capacity)
        self._readers.setdefault(tree_id, []).append(reader)
        return reader

    def forget(self, reader: ProgressBuffer) -> None:
        """Drop a reader."""
        readers = self._readers.get(reader.tree_id, [])
        if reader in readers:
            readers.remove(reader)

    async def catch_up(self, reader: ProgressBuffer) -> None:
        """Return at once: events of this process are held immediately."""

    def get_readers(self, tree_id: str) -> list[ProgressBuffer | ProgressRelay]:
        """Return the list of a tree's readers, which changes with them; empty = nobody watches."""
        return self._readers.setdefault(tree_id, [])

    def emit(self, tree_id: str, session: str, event: Event) -> None:
        """Hand an event to every reader that watches its session."""
        for reader in self._readers.get(tree_id, ()):
            if reader.session is None or reader.session == session:
                reader.offer(Progress(tree_id, session, event))
