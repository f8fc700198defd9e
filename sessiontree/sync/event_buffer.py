"""Streams for threads: a pump reads an async iterator on the loop; readers give facts and events."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.sync.bridge import LoopBridge
from sessiontree.sync.portal import make_not_open_error

if TYPE_CHECKING:
    from sessiontree.api.tree import fact_reader
    from sessiontree.journal.record import JournalRecord
    from sessiontree.runtime.transport import progress

T = TypeVar("T")


class Pump(Generic[T]):
    """Reads an async iterator on the loop and holds its items, whether or not anybody reads them.

    Make it on the loop.

    Args:
        crossing: Ends the pump when the tree closes.
        source: The iterator.
        at_most: How many items are held before the source has to wait; None = any number.
    """

    def __init__(self, crossing: LoopBridge, source: AsyncIterator[T], at_most: int | None = None) -> None:
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
            self._failure = (
                make_not_open_error()
            )  # an end without an error would mean that the source has ended
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is read
            self._failure = error
        finally:
            self._over = True
            self._change()
            if isinstance(source, AsyncGenerator):
                # After the readers were woken, since closing a source may take a while.
                await source.aclose()

    def _change(self) -> None:
        """Wake all waiting tasks, which check again."""
        # A new event for each change: one that is set and cleared again could be missed by a task that has
        # not run yet.
        self._changed.set()
        self._changed = asyncio.Event()

    async def take(self, at_most: int) -> list[T]:
        """Return the oldest items, waiting for the first; empty once the source has ended.

        Raises:
            Exception: the exception of the source, after all items before it.
        """
        while not self._held and not self._over:
            await self._changed.wait()
        taken = [self._held.popleft() for _ in range(min(at_most, len(self._held)))]
        if taken:
            self._change()
        # Only when nothing is held: items that came before the failure are given first.
        elif self._failure is not None:
            raise self._failure
        return taken

    def close(self) -> None:
        """Stop reading. May be called from any thread, and does not wait."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the pump with it
            self._loop.call_soon_threadsafe(self._task.cancel)


def drain_iterator(
    crossing: LoopBridge, source: Callable[[], AsyncIterator[T]], at_most: int, at_once: int
) -> Generator[T, None, None]:
    """Yield the items of an async iterator that is read on the loop.

    Args:
        crossing: Calls the loop; this thread asks questions while it waits.
        source: Makes the iterator, on the loop, at the first item.
        at_most: How many items are held before the source has to wait.
        at_once: How many items are fetched from the loop at a time.
    """
    pump: Pump[T] = crossing.run(lambda: Pump(crossing, source(), at_most))
    try:
        while items := crossing.wait(pump.take, at_once):
            yield from items
    finally:
        pump.close()


class FactReader(Iterator["JournalRecord"]):
    """Reads the durable facts of a tree: iterate over it, or take those so far as a data frame.

    :meth:`SessionTree.events` makes it.
    """

    def __init__(self, crossing: LoopBridge, reader: fact_reader.FactReader) -> None:
        """Bind the loop's reader."""
        self._crossing = crossing
        self._reader = reader
        self._facts = drain_iterator(crossing, lambda: reader, 512, 512)

    def __next__(self) -> JournalRecord:
        """Return the next fact, waiting for it.

        Raises:
            StopIteration: Main has ended, and all facts were returned.
            SessionTreeError: the tree is not open, or was closed meanwhile.
        """
        return next(self._facts)

    def to_pandas(self) -> Any:
        """Return the facts so far as a ``pandas.DataFrame``, as the reader on the loop does.

        Raises:
            ConfigError: pandas is not installed.
            SessionTreeError: the tree is not open, or was closed meanwhile.
        """
        return self._crossing.wait(self._reader.to_pandas)

    def close(self) -> None:
        """Stop reading; harmless when the tree is closed."""
        self._facts.close()


class ProgressReader:
    """One watcher's buffer: the newest events, and how many older ones were dropped.

    Iterate over it for new events until the tree is closed. :meth:`SessionTree.progress` makes it.
    """

    def __init__(self, crossing: LoopBridge, reader: progress.ProgressReader) -> None:
        """Bind the loop's reader."""
        self._crossing = crossing
        self._reader = reader

    @property
    def tree_id(self) -> str:
        """The tree that is watched."""
        return self._reader.tree_id

    @property
    def session(self) -> str | None:
        """The session that is watched; None = all of the tree."""
        return self._reader.session

    @property
    def dropped(self) -> int:
        """How many events were dropped because nobody read them."""
        return self._reader.dropped

    def next(self) -> progress.Progress:
        """Return the oldest event in the buffer, waiting for one if it is empty.

        Raises:
            SessionTreeError: the tree is not open, or was closed meanwhile.
        """
        event: progress.Progress = self._crossing.wait(self._crossing.wait_unless_closed, self._reader.next)
        return event

    def drain(self) -> list[progress.Progress]:
        """Return all events in the buffer, without waiting."""
        events: list[progress.Progress] = self._crossing.run(self._reader.drain)
        return events

    def catch_up(self) -> None:
        """Wait until the events so far are in the buffer, if they come from another process.

        Raises:
            SessionTreeError: the tree is not open, or was closed meanwhile.
        """
        self._crossing.wait(self._crossing.wait_unless_closed, self._reader.catch_up)

    def close(self) -> None:
        """Stop watching; harmless when the tree is closed."""
        if self._crossing.is_open:
            self._crossing.run(self._reader.close)

    def __iter__(self) -> Iterator[progress.Progress]:
        """Yield new events; ends when the tree is closed."""
        while self._crossing.is_open:
            try:
                event = self.next()
            except SessionTreeError:
                # Looked at again, because the tree may have been closed while this thread waited; that is the
                # end and no error.
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
