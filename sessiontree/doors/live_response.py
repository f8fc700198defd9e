"""A response while it goes on: its items from the journal, and its text as the model writes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TypeAlias

from sessiontree.contracts.reports.events import Done, Event, TextDelta
from sessiontree.contracts.values.messages import UNFINISHED
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.exchanges import DoorExchange
from sessiontree.doors.response_log import LoggedResponse, OutputItem
from sessiontree.doors.turns import Turn


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of what Main's model writes; the item that follows has all of its text."""

    text: str


@dataclass(frozen=True, slots=True)
class NewItems:
    """Items that the journal has, in their order; empty = a request that was given before may be decided."""

    items: tuple[OutputItem, ...]


News: TypeAlias = TextPiece | NewItems | LoggedResponse
"""What is new of a response; the last is the response itself, which has ended."""


class LiveResponse:
    """One response as it goes on.

    Args:
        exchange: The conversation.
        listens: Whether it hears the model write, which is only whole if it is made before the message is
            sent; otherwise text comes with its item.
    """

    def __init__(self, exchange: DoorExchange, *, listens: bool) -> None:
        self._exchange = exchange
        self._reader = exchange.conversation.tree.progress("main") if listens else None
        self._replies: deque[list[str]] = deque([[]])
        """Pieces that nobody has seen, of each reply that the journal does not have yet."""
        self._written: int | None = None
        """How many replies of the model were over; None = the response has not begun."""
        self._given = 0
        """How many items were given."""
        self._news = asyncio.Event()

    def close(self) -> None:
        """Stop listening to the model."""
        if self._reader is not None:
            self._reader.close()

    async def follow(self, response_id: str, turn: Turn | None = None) -> AsyncIterator[list[News]]:
        """Yield what is new, all that is known together at once; last the response, once it has ended.

        Args:
            response_id: The response.
            turn: Its turn, if it was asked for just now.

        Raises:
            SessionTreeError: its message was never heard.
            JournalError: the journal can't be read.
        """
        ending = asyncio.ensure_future(self._exchange.wait_for_end(response_id, turn, self._news.set))
        ending.add_done_callback(lambda _: self._news.set())
        listening = asyncio.ensure_future(self._listen())
        try:
            while True:
                await self._news.wait()
                # Before anything is read, so that news that come meanwhile wake the loop again.
                self._news.clear()
                # Asked before the news are read: an end that came in between would leave out the last items.
                has_ended = ending.done()
                await self._catch_up()
                fresh = list(self._read_news(response_id))
                if has_ended:
                    yield [*fresh, ending.result()]
                    return
                if fresh:
                    yield fresh
        finally:
            ending.cancel()
            listening.cancel()
            self.close()

    async def _listen(self) -> None:
        if self._reader is not None:
            async for progress in self._reader:
                self._hear(progress.event)
                self._news.set()

    async def _catch_up(self) -> None:
        """Hear all that was written before the journal had what it has now."""
        if self._reader is not None and self._written != self._exchange.log.fold.written:
            await self._reader.catch_up()
            for progress in self._reader.drain():
                self._hear(progress.event)

    def _hear(self, event: Event) -> None:
        if isinstance(event, TextDelta) and event.delta:
            self._replies[-1].append(event.delta)
        elif isinstance(event, Done) and event.stop_reason not in UNFINISHED:
            self._replies.append([])

    def _read_news(self, response_id: str) -> Iterator[News]:
        fold = self._exchange.log.fold
        response = fold.responses.get(response_id)
        if response is None:
            return
        if self._written is None:
            self._written = response.start.written
        for _ in range(fold.written - self._written):
            self._replies.popleft()
            if not self._replies:
                self._replies.append([])
        self._written = fold.written
        items = tuple(fold.list_items(response)[self._given :])
        self._given += len(items)
        yield NewItems(items)
        if fold.is_writing and response.ended is None:
            pieces, self._replies[0] = self._replies[0], []
            yield from map(TextPiece, pieces)
