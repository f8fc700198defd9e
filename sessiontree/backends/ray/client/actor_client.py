"""The common client of a supervisor behind an actor; what a loss of the actor means is left to its kinds."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sessiontree.backends.ray.client.socket_rpc import SocketRpcClosed
from sessiontree.backends.ray.client.supervisor_channel import SupervisorChannel
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.transport.progress import Progress
from sessiontree.runtime.transport.rpc import (
    RpcMethod,
    RpcResponse,
    get_method,
    make_proxy,
    run_synchronously,
)
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

T = TypeVar("T")


class ActorClient(ABC):
    """Asks one supervisor through a channel.

    Args:
        channel: The ways to the supervisor.
    """

    def __init__(self, channel: SupervisorChannel) -> None:
        self.actor = channel.actor
        self._channel = channel
        self.supervisor: SupervisorApi = make_proxy(SupervisorApi, self)
        """The API of the supervisor, for open trees."""
        self.control: SupervisorControl = make_proxy(SupervisorControl, self)
        """Opens and releases trees, and watches them."""
        self._blocking: SupervisorApi = make_proxy(SupervisorApi, BlockingPort(self.call_now))

    @property
    def pid(self) -> int | None:
        """The supervisor's process; None = it is not known, or on another node."""
        return self._channel.pid

    @property
    def is_lost(self) -> bool:
        """Whether the actor is gone for good, or its Ray."""
        return self._channel.calls.is_lost

    @abstractmethod
    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask the supervisor.

        Raises:
            SessionTreeError: the supervisor refuses, is lost, or this runtime was closed.
        """

    @abstractmethod
    def call_now(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a method, such as ``SupervisorControl.release``; this blocks for some milliseconds.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses, or is lost.
        """

    def tell(self, question: Callable[..., Any], *given: Any) -> None:
        """Call a method, such as ``SupervisorControl.unwatch``, without waiting for the answer."""
        self._channel.notify(get_method(question).name, given)

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask a question that needs no waiting; this blocks for about a millisecond.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses, or is lost.
        """
        return run_synchronously(question(self._blocking))

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future; errors as :meth:`SupervisorApi.result`."""
        result = self._channel.await_result(tree_id, session)
        return asyncio.ensure_future(self.supervisor.result(tree_id, session)) if result is None else result

    async def follow(self, name: str, take: Callable[[tuple[Progress, ...], int], None]) -> None:
        """Take in what a watch holds, as it happens, over a line of this event loop.

        Raises:
            SocketRpcClosed: the supervisor can't be reached over a socket, or not any more.
            SessionTreeError: the watch is over.
        """
        channel = self._channel
        line = await channel.connect({"progress": take})
        if line is None:
            raise SocketRpcClosed("the supervisor can't be reached over a socket")
        try:
            refusal: RpcResponse = await channel.calls.follow(line.ask("follow", channel.key, name))
            refusal.unwrap()
        finally:
            line.close()


class BlockingPort:
    """Asks without an event loop: the calling thread waits.

    Args:
        call_now: Calls a method, and returns its answer when it is there.
    """

    def __init__(self, call_now: Callable[..., Any]) -> None:
        self._call_now = call_now

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Return the answer; the calling thread blocks until it is there."""
        return self._call_now(method.function, *given)
