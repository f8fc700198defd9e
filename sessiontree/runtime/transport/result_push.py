"""Results that another process awaits, pushed to it as sessions end.

A call that waits takes about 2 KiB at each end. Here an awaited result takes a place in a table of the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.transport.rpc import RpcResponse

ResultListener: TypeAlias = Callable[[str, SessionResult[Any] | None, Exception | None], None]
"""Called with a session and its result, or with the reason why the result never comes."""
ResultChange: TypeAlias = tuple[str, str, bool]
"""A tree, a session of it, and whether its result is awaited from now on or not any more."""
ResultAnswer: TypeAlias = tuple[str, str, RpcResponse]
"""A tree, a session of it, and what a call for its result would have answered."""


class ResultSource(Protocol):
    """The part of a supervisor that knows when sessions end."""

    def listen(self, tree_id: str, session: str, listener: ResultListener) -> bool:
        """Call a listener when a session has ended; False = the session does not live, nothing is called."""
        ...

    def drop_listener(self, tree_id: str, session: str | None, listener: ResultListener) -> None:
        """Call a listener no more for a session, or for any session of a tree."""
        ...


class ResultPush:
    """The results that are awaited at the other end of one line.

    Args:
        source: Returns the supervisor; None = it is not open.
        ask: Calls for the result of a tree's session that does not live.
        response: Makes the answer of a result, or of an error.
        send: Sends answers.
    """

    def __init__(
        self,
        source: Callable[[], ResultSource | None],
        ask: Callable[[str, str], Awaitable[RpcResponse]],
        response: Callable[[SessionResult[Any] | None, Exception | None], RpcResponse],
        send: Callable[[tuple[ResultAnswer, ...]], None],
    ) -> None:
        self._source = source
        self._ask = ask
        self._response = response
        self._send = send
        self._listeners: dict[str, ResultListener] = {}
        """One for each tree."""
        self._answers: list[ResultAnswer] = []
        """What is sent at the end of this turn of the event loop."""
        self._asking: set[asyncio.Task[None]] = set()

    def change(self, changes: Sequence[ResultChange]) -> None:
        """Await more results, or some no more."""
        source = self._source()
        for tree_id, session, is_awaited in changes:
            listener = self._listeners.setdefault(tree_id, partial(self._on_ended, tree_id))
            if not is_awaited:
                if source is not None:
                    source.drop_listener(tree_id, session, listener)
            elif source is None or not source.listen(tree_id, session, listener):
                # Race: the session has ended before this was received, and its end calls no listener.
                asking = asyncio.create_task(self._push_answer(tree_id, session))
                self._asking.add(asking)
                asking.add_done_callback(self._asking.discard)

    def close(self) -> None:
        """Await nothing more."""
        source = self._source()
        for tree_id, listener in self._listeners.items():
            if source is not None:
                source.drop_listener(tree_id, None, listener)
        self._listeners.clear()
        for asking in self._asking:
            asking.cancel()

    async def _push_answer(self, tree_id: str, session: str) -> None:
        self._add((tree_id, session, await self._ask(tree_id, session)))

    def _on_ended(
        self, tree_id: str, session: str, result: SessionResult[Any] | None, error: Exception | None
    ) -> None:
        self._add((tree_id, session, self._response(result, error)))

    def _add(self, answer: ResultAnswer) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._flush)
        self._answers.append(answer)

    def _flush(self) -> None:
        answers, self._answers = tuple(self._answers), []
        self._send(answers)
