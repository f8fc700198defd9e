"""What comes bit by bit, for threads: a pump that takes it in on the loop, and the reader of progress."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.sync.blocking_bridge import Crossing
from sessiontree.sync.portal import not_open

if TYPE_CHECKING:
    from sessiontree.runtime import progress

T = TypeVar("T")


class Pump(Generic[T]):
    """Takes in what an async iterator yields, whether or not anybody reads; made on the loop.

    Args:
        crossing: Ends the pump when its owner closes.
        source: What to read.
        at_most: How many are held before the source has to wait; None = any number.
    """

    def __init__(self, crossing: Crossing, source: AsyncIterator[T], at_most: int | None = None) -> None:
        """Begin."""
        self._held: deque[T] = deque()
        self._at_most = at_most
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._over = False
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(source))
        crossing.keep(self._task)

    async def _run(self, source: AsyncIterator[T]) -> None:
        try:
            async for item in source:
                self._held.append(item)
                self._change()
                while self._at_most is not None and len(self._held) >= self._at_most:
                    await self._changed.wait()
        except asyncio.CancelledError:
            self._failure = not_open()  # an end without an error would say that the source has ended
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is read
            self._failure = error
        finally:
            self._over = True
            self._change()
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    def _change(self) -> None:
        """Wake all who wait, each of whom looks again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def take(self, at_most: int) -> list[T]:
        """Return the oldest held, waiting for the first; empty once the source has ended.

        Raises:
            Exception: whatever the source raised, after all that came before.
        """
        while not self._held and not self._over:
            await self._changed.wait()
        taken = [self._held.popleft() for _ in range(min(at_most, len(self._held)))]
        if taken:
            self._change()
        elif self._failure is not None:
            raise self._failure
        return taken

    def close(self) -> None:
        """Read no more. May be called from any thread, and does not wait."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the pump with it
            self._loop.call_soon_threadsafe(self._task.cancel)


class ProgressReader:
    """One watcher's ring: the newest events, and how many older ones were dropped.

    Iterate over it for events as they come, until the tree is closed. Made by :meth:`SessionTree.progress`.
    """

    def __init__(self, crossing: Crossing, reader: progress.ProgressReader) -> None:
        """Bind the loop's reader."""
        self._crossing = crossing
        self._reader = reader
        self.tree_id = reader.tree_id
        self.session = reader.session

    @property
    def dropped(self) -> int:
        """How many events were dropped because nobody read them."""
        return self._reader.dropped

    def next(self) -> progress.Progress:
        """Return the oldest event held, waiting for one.

        Raises:
            SessionTreeError: the tree is not open, or was closed meanwhile.
        """
        event: progress.Progress = self._crossing.wait(self._crossing.unless_closed, self._reader.next)
        return event

    def drain(self) -> list[progress.Progress]:
        """Return all events held, without waiting."""
        events: list[progress.Progress] = self._crossing.run(self._reader.drain)
        return events

    def catch_up(self) -> None:
        """Wait until what has happened so far is held, where it comes from another process.

        Raises:
            SessionTreeError: the tree is not open, or was closed meanwhile.
        """
        self._crossing.wait(self._crossing.unless_closed, self._reader.catch_up)

    def close(self) -> None:
        """Stop watching; harmless when the tree is closed."""
        if self._crossing.is_open:
            self._crossing.run(self._reader.close)

    def __iter__(self) -> Iterator[progress.Progress]:
        """Yield events as they come; ends when the tree is closed."""
        while self._crossing.is_open:
            try:
                event = self.next()
            except SessionTreeError:
                if self._crossing.is_open:
                    raise
                return
            yield event

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        self.close()
