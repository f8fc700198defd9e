"""Who waits for what in one tree: replies, calls, results, and decisions that become durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.transport.supervisor_api import CallReply, Reply

T = TypeVar("T")
_Listener: TypeAlias = Callable[[str, T | None, Exception | None], None]
"""Called with a key, and with its value or the error."""
_Waiter: TypeAlias = tuple[asyncio.Future[T], Callable[[asyncio.Future[T]], None]]
"""A future, and the callback that removes it if it is cancelled."""


class FutureMap(Generic[T]):
    """Futures and listeners by key; several callers may wait for one key."""

    def __init__(self) -> None:
        self._futures: dict[str, list[_Waiter[T]]] = {}
        self._listeners: dict[str, tuple[_Listener[T], ...]] = {}

    def wait(self, key: str) -> asyncio.Future[T]:
        """Return a future for a key."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        forget = partial(self._forget, key)
        self._futures.setdefault(key, []).append((future, forget))
        future.add_done_callback(forget)
        return future

    def listen(self, key: str, listener: _Listener[T]) -> None:
        """Call a listener when a key is settled or failed. It takes a place in a table, and no future."""
        self._listeners[key] = (*self._listeners.get(key, ()), listener)

    def drop_listener(self, key: str | None, listener: _Listener[T]) -> None:
        """Remove a listener of a key, or of all keys."""
        for each in list(self._listeners) if key is None else (key,):
            left = tuple([other for other in self._listeners.get(each, ()) if other is not listener])
            if left:
                self._listeners[each] = left
            else:
                self._listeners.pop(each, None)

    def settle(self, key: str, value: T) -> None:
        """Resolve all futures of a key with a value."""
        for listener in self._listeners.pop(key, ()):
            listener(key, value, None)
        for future, forget in self._futures.pop(key, ()):
            if not future.done():
                future.remove_done_callback(forget)
                future.set_result(value)

    def fail(self, key: str, error: Exception) -> None:
        """Fail all futures of a key."""
        for listener in self._listeners.pop(key, ()):
            listener(key, None, error)
        for future, forget in self._futures.pop(key, ()):
            if not future.done():
                future.remove_done_callback(forget)
                future.set_exception(error)
                future.exception()  # marks it as retrieved: the loop would log it if nobody waits any more

    def fail_all(self, error: Exception) -> None:
        """Fail all futures."""
        for key in {**self._futures, **self._listeners}:
            self.fail(key, error)

    def _forget(self, key: str, future: asyncio.Future[T]) -> None:
        """Remove a future that was cancelled."""
        if future.cancelled() and key in self._futures:
            left = self._futures[key] = [each for each in self._futures[key] if each[0] is not future]
            if not left:
                del self._futures[key]

    def keys(self) -> tuple[str, ...]:
        """Return the keys that somebody waits for."""
        return tuple(self._futures)


class TreeWaiters:
    """Everybody who waits for something of one tree."""

    def __init__(self) -> None:
        self.replies: FutureMap[Reply] = FutureMap()
        """By message."""
        self.calls: FutureMap[CallReply] = FutureMap()
        """By call outside the transcript."""
        self.results: FutureMap[SessionResult[Any]] = FutureMap()
        """By session."""
        self.settling: FutureMap[None] = FutureMap()
        """Waiters for the acceptance of answers to client calls, by answer id, and for durable decisions."""
        self.news = asyncio.Event()
        """Set whenever facts become durable; a waiter clears it first."""
        self._expected: dict[str, set[str]] = {}
        """Ids of messages and calls that a session has not answered."""

    def expect_reply(self, session: str, message_id: str) -> asyncio.Future[Reply]:
        """Return the reply of a session to a message, as a future."""
        self._expected.setdefault(session, set()).add(message_id)
        return self.replies.wait(message_id)

    def expect_call(self, session: str, call_id: str) -> asyncio.Future[CallReply]:
        """Return how a session's call outside its transcript ends, as a future."""
        self._expected.setdefault(session, set()).add(call_id)
        return self.calls.wait(call_id)

    def answer_message(self, session: str, message_id: str, reply: Reply) -> None:
        """Hand a session's reply to those who wait for it."""
        self._expected.get(session, set()).discard(message_id)
        self.replies.settle(message_id, reply)

    def answer_call(self, session: str, call_id: str, reply: CallReply) -> None:
        """Hand the result of a session's call to those who wait for it."""
        self._expected.get(session, set()).discard(call_id)
        self.calls.settle(call_id, reply)

    def fail_session(self, session: str, error: Exception) -> None:
        """Fail the waiters for what a session that has ended did not answer."""
        for key in self._expected.pop(session, ()):
            self.replies.fail(key, error)
            self.calls.fail(key, error)

    def fail_all(self, error: Exception) -> None:
        """Fail all waiters: the tree can't go on in this process."""
        for waiters in (self.replies, self.calls, self.results, self.settling):
            waiters.fail_all(error)
        self.news.set()
