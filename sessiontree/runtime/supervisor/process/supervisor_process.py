"""The supervisor in its own process: who may ask for what, and in which order calls begin."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from sessiontree.contracts.errors import PermissionDenied, SessionTreeError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.runtime.memory.memory_api import MemoryLink
from sessiontree.runtime.scheduling.settings import Settings
from sessiontree.runtime.supervisor.answers.session_answers import SessionAnswers
from sessiontree.runtime.supervisor.process.progress_watches import ProgressWatches
from sessiontree.runtime.supervisor.process.supervisor_lifetime import ProcessStarts, SupervisorLifetime
from sessiontree.runtime.transport.progress import Progress, ProgressHub, Push
from sessiontree.runtime.transport.result_push import ResultAnswer, ResultChange, ResultPush
from sessiontree.runtime.transport.rpc import RpcAnswers, RpcResponse, is_same_key, make_portable, respond

PATIENCE_S = 5.0
"""How long a request waits for earlier ones, any of which may have been lost."""


class SequenceGate:
    """Begins numbered requests in order; numbers begin at 1."""

    def __init__(self) -> None:
        self._passed = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def reach(self, number: int) -> None:
        """Wait until every earlier number has passed, or for ``PATIENCE_S``."""
        if number <= self._passed + 1:
            return
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(number, None)

    def advance(self, number: int) -> None:
        """Note that a request has begun; it is the next one's turn."""
        self._passed = max(self._passed, number)
        turn = self._waiting.get(self._passed + 1)
        if turn is not None and not turn.done():
            turn.set_result(None)


class SupervisorProcess:
    """Answers the creating program, identified by a key, and hosts, identified by a grant.

    Args:
        key: Identifies the creating program.
        settings: The runtime's settings.
        starts: What the supervisor starts.
    """

    def __init__(self, key: str, settings: Settings, starts: ProcessStarts) -> None:
        self.incarnation = secrets.token_hex(8)
        self.host_key = secrets.token_hex(16)
        """The key by which hosts get a tree's tools."""
        self.gateway_key = secrets.token_hex(16)
        """The key by which the gateway gets a tree's model."""
        self.memory_key = secrets.token_hex(16)
        """The key by which supervisor and memory identify themselves to each other."""
        self._key = key
        self._answer = partial(respond, self.incarnation)
        self._memory = MemoryLink(starts.memory, lambda: self.lifetime.get_supervisor())
        self._for_memory = RpcAnswers(self._memory)
        self._hub = ProgressHub()
        self._turns = SequenceGate()
        self.lifetime = SupervisorLifetime(settings, starts, self._memory, self._hub)
        self._watches = ProgressWatches(self._hub, self.lifetime.get_supervisor)
        self._control = RpcAnswers(self.lifetime, self._watches)

    async def ask(
        self, key: str, name: str, given: tuple[Any, ...], turn: tuple[str, int] | None = None
    ) -> RpcResponse:
        """Answer the creating program. Requests numbered for this incarnation begin in that order."""
        if not is_same_key(key, self._key):
            return self._make_refusal(name)
        number = turn[1] if turn is not None and turn[0] == self.incarnation else None
        if number is None:
            return await self._answer(self._answer_program, (name, given))
        # Race: calls of an actor may overtake each other on their way; their numbers put them in order again.
        await self._turns.reach(number)
        answering = asyncio.ensure_future(self._answer(self._answer_program, (name, given)))
        self._turns.advance(number)
        return await answering

    async def follow(
        self, key: str, name: str, push: Push, has_room: Callable[[], Awaitable[None]]
    ) -> RpcResponse:
        """Push the events of a watch to the creating program, as they come; returns only a refusal.

        Args:
            key: The program's key.
            name: The watch.
            push: As for :meth:`ProgressBuffer.follow`.
            has_room: The same.
        """
        if not is_same_key(key, self._key):
            return self._make_refusal("follow")
        return await self._answer(self._watches.follow, (name, push, has_room))

    def make_result_push(self, send: Callable[[tuple[ResultAnswer, ...]], None]) -> ResultPush:
        """Return what pushes results over a line to the creating program.

        Args:
            send: Sends answers over the line.
        """

        async def ask(tree_id: str, session: str) -> RpcResponse:
            return await self._answer(self._answer_program, ("result", (tree_id, session)))

        def make_response(result: SessionResult[Any] | None, error: Exception | None) -> RpcResponse:
            return RpcResponse(self.incarnation, result, None if error is None else make_portable(error))

        return ResultPush(self._find_sessions, ask, make_response, send)

    def _find_sessions(self) -> SessionAnswers | None:
        return None if self.lifetime.local is None else self.lifetime.local.sessions

    async def follow_results(self, key: str, results: ResultPush) -> RpcResponse:
        """Push results until this is cancelled, with the end of the line; returns only a refusal."""
        if is_same_key(key, self._key):
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                results.close()
        return self._make_refusal("follow_results")

    def await_results(self, key: str, results: ResultPush, changes: Sequence[ResultChange]) -> None:
        """Await more results, or some no more; without the program's key, nothing changes."""
        if is_same_key(key, self._key):
            results.change(changes)

    def show(self, events: Sequence[Progress]) -> None:
        """Show events of the gateway to those who watch."""
        for each in events:
            self._hub.emit(each.tree_id, each.session, each.event)

    def _make_refusal(self, name: str) -> RpcResponse:
        reason = f"asked the supervisor to {name!r} without the key of the creating program"
        return RpcResponse(self.incarnation, None, PermissionDenied(PermissionTier.ELEVATED, reason))

    async def serve(self, token: str, name: str, given: tuple[Any, ...]) -> RpcResponse:
        """Answer a host for the session of its grant, and gateway and memory by their keys."""
        hosts = self.lifetime.hosts
        if hosts is not None and name in hosts.methods:
            return await self._answer(hosts.call, (name, (token, *given)))
        if name == "last_words" and hosts is not None:
            return await self._answer(self.lifetime.get_supervisor().last_words, (token, *given))
        if name == "memory" and hosts is not None:
            return await self._answer(self._connect_to_memory, (token,))
        # Models hold provider keys and go to the gateway alone; tools go to hosts.
        key = {"resources": self.host_key, "model": self.gateway_key}.get(name)
        if key is not None and is_same_key(token, key):
            return await self._answer(self.lifetime.find_packed, (name, *given))
        if name in self._for_memory.methods and is_same_key(token, self.memory_key):
            return await self._answer(self._for_memory.call, (name, given))
        reason = f"asked the supervisor to {name!r} without a grant for it"
        return RpcResponse(self.incarnation, None, PermissionDenied(PermissionTier.ELEVATED, reason))

    def _answer_program(self, name: str, given: tuple[Any, ...]) -> Any:
        if name in self._control.methods:
            return self._control.call(name, given)
        local = self.lifetime.local
        if local is None or name not in local.answers.methods:
            raise SessionTreeError(
                f"the supervisor can't {name!r}: it is not open yet, or has no such method; open it first"
            )
        return local.answers.call(name, given)

    def _connect_to_memory(self, token: str) -> Any:
        supervisor = self.lifetime.get_supervisor()
        supervisor.grants.check(token, "recall")
        return self._memory.connection()
