"""Futures by key: what waits for a reply, a result or the end of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
_Waiter: TypeAlias = tuple[asyncio.Future[T], Callable[[asyncio.Future[T]], None]]
"""A future, and what forgets it should it be cancelled."""


class FutureMap(Generic[T]):
    """Futures by key; several may wait for one key."""

    def __init__(self) -> None:
        self._futures: dict[str, list[_Waiter[T]]] = {}

    def wait(self, key: str) -> asyncio.Future[T]:
        """Return a future for a key."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        forget = partial(self._forget, key)
        self._futures.setdefault(key, []).append((future, forget))
        future.add_done_callback(forget)
        return future

    def settle(self, key: str, value: T) -> None:
        """Give everybody who waits for a key its value."""
        for future, forget in self._futures.pop(key, ()):
            if not future.done():
                future.remove_done_callback(forget)
                future.set_result(value)

    def fail(self, key: str, error: Exception) -> None:
        """Give everybody who waits for a key an error."""
        for future, forget in self._futures.pop(key, ()):
            if not future.done():
                future.remove_done_callback(forget)
                future.set_exception(error)
                future.exception()  # so that the loop does not report it where nobody waits any more

    def fail_all(self, error: Exception) -> None:
        """Give everybody an error."""
        for key in list(self._futures):
            self.fail(key, error)

    def _forget(self, key: str, future: asyncio.Future[T]) -> None:
        """Drop one that was cancelled: nobody waits for it any more."""
        if future.cancelled() and key in self._futures:
            left = self._futures[key] = [each for each in self._futures[key] if each[0] is not future]
            if not left:
                del self._futures[key]

    def keys(self) -> tuple[str, ...]:
        """What somebody waits for."""
        return tuple(self._futures)
