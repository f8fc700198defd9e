"""The results of sessions that the program awaits over its line to a supervisor.

An awaited result is one future here and a place in a table of the supervisor: no call waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sessiontree.backends.ray.client.socket_rpc import SocketRpc, SocketRpcClosed
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.transport.result_push import ResultAnswer, ResultChange
from sessiontree.runtime.transport.rpc import RpcResponse


class AwaitedResult(asyncio.Future[SessionResult[Any]]):
    """The future of one session's result; cancelled, it is awaited no more at the supervisor either."""

    __slots__ = ("_again", "_results", "session", "tree_id")

    def __init__(self, results: AwaitedResults, tree_id: str, session: str) -> None:
        super().__init__()
        self._results = results
        self._again: asyncio.Task[None] | None = None
        self.tree_id = tree_id
        self.session = session

    def cancel(self, msg: Any | None = None) -> bool:
        """Await the result no more."""
        if not super().cancel(msg):
            return False
        if self._again is not None:
            self._again.cancel()
        self._results.given_up(self)
        return True

    def ask_again(self, asking: Coroutine[Any, Any, SessionResult[Any]]) -> None:
        """Take the result from a call, because it does not come over the line."""
        self._again = asyncio.create_task(self._take(asking))

    async def _take(self, asking: Coroutine[Any, Any, SessionResult[Any]]) -> None:
        try:
            result = await asking
        except Exception as error:  # noqa: BLE001 - whoever awaits the result gets the error
            if not self.done():
                self.set_exception(error)
        else:
            if not self.done():
                self.set_result(result)


class AwaitedResults:
    """The results that are awaited over one line.

    Args:
        key: The program's key.
        taken: Returns the result of an answer, or raises its error; SocketRpcClosed = call again.
        ask: Calls the supervisor for a result, again whenever the supervisor is lost.
        follow: Waits for a call over the line, or raises an error of its own if the Ray is lost.
    """

    def __init__(
        self,
        key: str,
        taken: Callable[[str, RpcResponse], SessionResult[Any]],
        ask: Callable[[str, str], Coroutine[Any, Any, SessionResult[Any]]],
        follow: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]],
    ) -> None:
        self._key = key
        self._taken = taken
        self._ask = ask
        self._follow = follow
        self._line: SocketRpc | None = None
        self._following: asyncio.Task[None] | None = None
        self._waiting: dict[str, dict[str, AwaitedResult]] = {}
        """By tree and session."""
        self._changes: list[ResultChange] = []
        """What the supervisor is sent at the end of this turn of the event loop."""

    def use(self, line: SocketRpc) -> None:
        """Use a line from now on."""
        self._line = line

    def wait(self, tree_id: str, session: str) -> AwaitedResult | None:
        """Return the future of a result; None = the line can't be used, or the result is awaited already."""
        line = self._line
        if line is None or not line.is_open or session in self._waiting.get(tree_id, ()):
            return None
        if self._following is None:
            self._following = asyncio.create_task(self._hold(line))
        result = AwaitedResult(self, tree_id, session)
        self._waiting.setdefault(tree_id, {})[session] = result
        self._change((tree_id, session, True))
        return result

    def given_up(self, result: AwaitedResult) -> None:
        """Note that nobody awaits a result any more."""
        if self._forget(result.tree_id, result.session) is not None:
            self._change((result.tree_id, result.session, False))

    def take(self, answers: tuple[ResultAnswer, ...]) -> None:
        """Take what the supervisor pushes."""
        for tree_id, session, answer in answers:
            awaited = self._forget(tree_id, session)
            if awaited is None or awaited.done():
                continue  # Race: it was given up while its result was on the way
            try:
                awaited.set_result(self._taken(tree_id, answer))
            except SocketRpcClosed:
                awaited.ask_again(self._ask(tree_id, session))
            except Exception as error:  # noqa: BLE001 - as it was raised at the supervisor
                awaited.set_exception(error)

    def _forget(self, tree_id: str, session: str) -> AwaitedResult | None:
        of_tree = self._waiting.get(tree_id)
        if of_tree is None:
            return None
        found = of_tree.pop(session, None)
        if not of_tree:
            del self._waiting[tree_id]
        return found

    def _change(self, change: ResultChange) -> None:
        if not self._changes:
            asyncio.get_running_loop().call_soon(self._send)
        self._changes.append(change)

    def _send(self) -> None:
        changes, self._changes = tuple(self._changes), []
        if self._line is not None and self._line.is_open:
            self._line.tell("await_results", self._key, changes)

    async def _hold(self, line: SocketRpc) -> None:
        """Follow the results while the line is open; then call for those that are awaited still."""
        error: Exception = SocketRpcClosed("the supervisor pushes no results")
        try:
            await self._follow(line.ask("follow_results", self._key))
        except Exception as lost:  # noqa: BLE001 - whoever awaits a result gets the error
            error = lost
        # Race: results may have been on the way when the line closed; they are called for again.
        waiting, self._waiting, self._line = self._waiting, {}, None
        for of_tree in waiting.values():
            for awaited in of_tree.values():
                if awaited.done():
                    continue
                if isinstance(error, SocketRpcClosed):
                    awaited.ask_again(self._ask(awaited.tree_id, awaited.session))
                else:
                    awaited.set_exception(error)
