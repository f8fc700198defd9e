"""Calls of one actor: when they are possible, and how their answers are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import ray

from sessiontree.backends.ray.client.pending_calls import PendingCalls
from sessiontree.backends.ray.client.serialization import load_value
from sessiontree.contracts.errors import EngineLost, SessionClosed, SessionTreeError
from sessiontree.runtime.transport.rpc import RpcResponse


class ActorCalls:
    """The calls of one actor, which answers with an :class:`RpcResponse`.

    Args:
        is_up: Whether this process is connected to a Ray.
    """

    def __init__(self, is_up: Callable[[], bool] = ray.is_initialized) -> None:
        self.is_closed = False
        """Whether the runtime was closed: no call is possible any more."""
        self._is_up = is_up
        self._pending = PendingCalls()

    @property
    def is_lost(self) -> bool:
        """Whether the actor or its Ray is gone."""
        return self._pending.is_lost

    @property
    def can_reach(self) -> bool:
        """Whether the actor can be called; a call without a Ray would start another one."""
        return not self.is_lost and self._is_up()

    @property
    def is_usable(self) -> bool:
        """Whether the actor can be called, and the runtime was not closed."""
        return not self.is_closed and self.can_reach

    def lose(self, lost: EngineLost) -> bool:
        """Fail all calls, those that wait and those to come; from any thread. Return whether it is news."""
        return self._pending.lose(lost)

    def check(self) -> None:
        """Raise if no call is possible.

        Raises:
            SessionTreeError: this runtime was closed, or its Ray is gone.
        """
        if self.is_closed:
            raise SessionClosed("main", "the runtime was closed in this process; resume the tree to go on")
        self._pending.check()
        if not self._is_up():
            raise SessionTreeError("Ray was shut down under the runtime; resume the tree to go on")

    async def await_answer(self, asked: Any, *, stops: bool = False) -> RpcResponse:
        """Return the answer to a call; with ``stops``, a caller that is cancelled stops the call there too.

        Raises:
            EngineLost: the actor or its Ray is gone.
            RayError: the call was not completed.
        """
        try:
            answer: RpcResponse = load_value(await self._pending.await_unless_lost(asked))
            return answer
        except asyncio.CancelledError:
            if stops and self.is_usable:
                ray.cancel(asked)
            raise
        finally:
            del asked  # a traceback would keep it beyond Ray's end, and it would then end the process

    async def follow(self, work: Awaitable[Any]) -> Any:
        """Return what comes over another way than a call, as long as the actor is not lost.

        Raises:
            EngineLost: the actor or its Ray is gone.
        """
        return await self._pending.await_unless_lost(work)

    def wait(self, asked: Future[bytes], seconds: float) -> RpcResponse | None:
        """Wait for the answer to a call, without an event loop; None = it is not there yet. Blocks.

        Raises:
            EngineLost: the actor or its Ray is gone.
            RayError: the call was not completed.
        """
        if not self._pending.wait(asked, seconds):
            return None
        answer: RpcResponse = load_value(asked.result())
        return answer
