"""The ways to one supervisor: a socket, or calls of its actor. What is lost on the way is not repeated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sessiontree.backends.ray.client.actor_calls import ActorCalls
from sessiontree.backends.ray.client.awaited_results import AwaitedResult, AwaitedResults
from sessiontree.backends.ray.client.serialization import dump_value
from sessiontree.backends.ray.client.socket_rpc import Methods, SocketRpc, connect_line
from sessiontree.runtime.transport.rpc import RpcMethod, RpcResponse

ANSWER_S = 30.0
"""How long a blocking question may take while the supervisor lives."""
LOOK_S = 0.1
"""How often a blocking question checks that the supervisor lives."""


class SupervisorChannel:
    """Asks one supervisor, each question once.

    Questions go over a line if the supervisor can be reached over one on the event loop that opened it. A
    waiting call of an actor holds more than 80 KiB in the two processes, most of it for the stack that Ray
    gives the call. Control calls, questions that are repeated, and all others are calls of the actor.

    Args:
        actor: The supervisor's actor.
        key: The program's key.
        is_up: Whether this process is connected to a Ray.
        lines: Where the supervisor accepts lines; None = it accepts none.
    """

    def __init__(self, actor: Any, key: str, is_up: Callable[[], bool], lines: Path | None) -> None:
        self.actor = actor
        self.key = key
        self.pid: int | None = None
        """The supervisor's process."""
        self.incarnation: str | None = None
        """Of the supervisor that the trees are open in."""
        self.calls = ActorCalls(is_up)
        self._lines = lines
        self._number = 0
        self._process: int | None = None
        """A descriptor of the supervisor's process, if it is on this machine."""
        self._line: SocketRpc | None = None
        self._line_loop: asyncio.AbstractEventLoop | None = None
        self._results: AwaitedResults | None = None
        """The results that are awaited over the line."""
        self._holding: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Refuse all further questions."""
        self.calls.is_closed = True
        self.track_process(None)
        self._close_line()

    async def end(self) -> None:
        """Let the supervisor end its hosts and close its journal."""
        if self.calls.can_reach:
            await self.calls.await_answer(self.actor.ask.remote(self.key, "close", dump_value(())))

    def track_process(self, pid: int | None) -> None:
        """Keep a descriptor of the supervisor's process, if it is on this machine."""
        if self._process is not None:
            os.close(self._process)
            self._process = None
        self.pid = pid
        if pid is not None:
            with contextlib.suppress(OSError):
                self._process = os.pidfd_open(pid)

    def set_incarnation(self, incarnation: str) -> None:
        """Begin with a new incarnation of the supervisor, and number its calls from 1."""
        self.incarnation = incarnation
        self._number = 0

    # Questions.

    def notify(self, name: str, given: tuple[Any, ...]) -> None:
        """Call a method without waiting for the answer."""
        if self.calls.is_usable:
            self.actor.command.remote(self.key, name, dump_value(given))

    def choose_line(self, method: RpcMethod) -> SocketRpc | None:
        """Return the line over which a question goes; None = it is a call of the actor."""
        line = self._line
        if line is None or not line.is_open or method.urgent:
            return None
        return line if self._line_loop is asyncio.get_running_loop() else None

    async def ask_over_line(self, line: SocketRpc, method: RpcMethod, given: tuple[Any, ...]) -> RpcResponse:
        """Ask over a line.

        Raises:
            SocketRpcClosed: the line closed before the answer came.
        """
        ask = line.wait_for if method.waits else line.ask
        answer: RpcResponse = await self.calls.follow(
            ask("ask", self.key, method.name, given, self._number_call(method))
        )
        return answer

    async def ask_actor(self, method: RpcMethod, given: tuple[Any, ...]) -> RpcResponse:
        """Ask by a call of the actor.

        Raises:
            RayError: the call was not completed.
        """
        ask = self.actor.command if method.urgent else self.actor.ask
        # Before it is numbered: what can't be sent must not take a number for which later calls would wait.
        data = dump_value(given)
        turn = self._number_call(method)
        numbered = () if turn is None else (turn,)
        return await self.calls.await_answer(
            ask.remote(self.key, method.name, data, *numbered), stops=method.waits
        )

    async def ask_unnumbered(self, name: str, *given: Any) -> RpcResponse:
        """Ask by a call of the actor whose order among others does not matter."""
        return await self.calls.await_answer(self.actor.ask.remote(self.key, name, dump_value(given)))

    def ask_now(self, name: str, given: tuple[Any, ...]) -> RpcResponse:
        """Ask by a call of the actor; the calling thread waits while the supervisor's process lives.

        Raises:
            TimeoutError: the supervisor's process is gone, or did not answer in time.
            EngineLost: the Ray is gone.
            RayError: the call was not completed.
        """
        asked: Future[bytes] = self.actor.command.remote(self.key, name, dump_value(given)).future()
        for _ in range(round(ANSWER_S / LOOK_S)):
            answer = self.calls.wait(asked, LOOK_S)
            if answer is not None:
                return answer
            if self._is_process_dead():
                raise TimeoutError
        raise TimeoutError

    def _number_call(self, method: RpcMethod) -> tuple[str, int] | None:
        """Return the place of a question among those whose order matters; None = it does not matter."""
        if not method.in_order or self.incarnation is None:
            return None
        # Race: questions may overtake each other; the number lets the supervisor restore the order.
        self._number += 1
        return self.incarnation, self._number

    def _is_process_dead(self) -> bool:
        if self._process is None:
            return False
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return bool(poll.poll(0))

    # The line.

    async def connect(self, methods: Methods) -> SocketRpc | None:
        """Return a new line of this event loop; None = the supervisor can't be reached over a socket."""
        if self._lines is None or self.pid is None:
            return None
        return await connect_line(self._lines, self.pid, methods)

    async def open_line(self, results: AwaitedResults) -> None:
        """Open the line for questions from this event loop, if the supervisor can be reached over one."""
        self._close_line()
        line = await self.connect({"results": results.take})
        if line is not None and self.calls.is_closed:
            line.close()  # Race: the runtime was closed while the line was being opened
        elif line is not None:
            results.use(line)
            self._results = results
            self._line, self._line_loop = line, asyncio.get_running_loop()
            self._holding = asyncio.create_task(_hold(line), name="line-to-supervisor")

    def await_result(self, tree_id: str, session: str) -> AwaitedResult | None:
        """Return a session's result as a future that holds no call; None = it can't come over the line."""
        is_here = self._line_loop is asyncio.get_running_loop()
        if self._results is None or self.calls.is_closed or self.calls.is_lost or not is_here:
            return None
        return self._results.wait(tree_id, session)

    def _close_line(self) -> None:
        holding, loop, self._line, self._line_loop = self._holding, self._line_loop, None, None
        self._results = None
        if holding is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # the line was closed before its loop
                loop.call_soon_threadsafe(holding.cancel)


async def _hold(line: SocketRpc) -> None:
    """Close a line when this task is cancelled, at the latest with its event loop."""
    try:
        await asyncio.Event().wait()
    finally:
        line.close()
