"""The creating program's client of its supervisor, which survives restarts of the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError

from sessiontree.backends.ray.client.actor_client import ActorClient
from sessiontree.backends.ray.client.awaited_results import AwaitedResults
from sessiontree.backends.ray.client.socket_rpc import SocketRpcClosed
from sessiontree.backends.ray.client.supervisor_channel import ANSWER_S, SupervisorChannel
from sessiontree.backends.ray.client.supervisor_reconnect import RESTART_S, SupervisorReconnect
from sessiontree.contracts.errors import EngineLost, SessionTreeError, SupervisorUnavailable
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.rpc import RpcMethod, RpcResponse, get_method

MAX_DEATHS = 25
"""How often in a row Ray may report the supervisor as dead for good before that counts."""


class SupervisorClient(ActorClient):
    """Asks one supervisor. After a restart of the supervisor it resumes open trees and repeats its questions.

    Args:
        actor: The supervisor's actor.
        key: The program's key.
        is_up: Whether this process is connected to a Ray.
        lines: Where the supervisor accepts lines; None = it accepts none.
    """

    def __init__(
        self,
        actor: Any,
        key: str,
        is_up: Callable[[], bool] = ray.is_initialized,
        lines: Path | None = None,
    ) -> None:
        super().__init__(SupervisorChannel(actor, key, is_up, lines))
        self._reconnect = SupervisorReconnect(self._channel, self._make_results)

    async def begin(self) -> None:
        """Open the supervisor.

        Raises:
            JournalError: the state directory cannot be used.
        """
        await self._reconnect.begin()

    async def end(self) -> None:
        """Let the supervisor end its hosts and close its journal."""
        await self._channel.end()

    def opened(self, tree_id: str, agents: Mapping[str, AgentConfig], resources: PackedResources) -> None:
        """Add a tree that is resumed after a restart of the supervisor."""
        self._reconnect.add(tree_id, agents, resources)

    def released(self, tree_id: str) -> None:
        """Remove a tree that was released."""
        self._reconnect.remove(tree_id)

    def holds(self, tree_id: str) -> bool:
        """Whether a tree is open."""
        return self._reconnect.holds(tree_id)

    def closed(self) -> None:
        """Refuse all further questions."""
        self._reconnect.clear()
        self._channel.close()

    def lose(self, lost: EngineLost) -> None:
        """Fail all questions, those that wait and those to come, because the Ray is gone. From any thread."""
        self._channel.calls.lose(lost)

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask the supervisor; repeat the question each time the supervisor is lost meanwhile.

        Raises:
            SessionTreeError: the supervisor refuses, or this runtime was closed.
        """
        channel, again, deaths = self._channel, False, 0
        while True:
            channel.calls.check()
            # Race: a supervisor that was lost may have done it before its answer was lost with it.
            wanted = method.repeat(given) if again else given
            try:
                line = None if again else channel.choose_line(method)
                answer = await (
                    channel.ask_actor(method, wanted)
                    if line is None
                    else channel.ask_over_line(line, method, wanted)
                )
                is_refused = isinstance(answer.error, SessionTreeError) and not channel.calls.is_closed
                if answer.incarnation == channel.incarnation or not is_refused:
                    return self._reconnect.unwrap(answer, given)
                await self._reconnect.reconnect(answer.incarnation)
                deaths = 0
            except (ActorUnavailableError, ActorDiedError, SocketRpcClosed) as error:
                deaths = deaths + 1 if isinstance(error, ActorDiedError) else 0
                if deaths > MAX_DEATHS:
                    raise _build_gone_error(method.name) from error
                await asyncio.sleep(RESTART_S)
            again = True

    def _make_results(self) -> AwaitedResults:
        channel = self._channel
        return AwaitedResults(channel.key, self._unpack_result, self.supervisor.result, channel.calls.follow)

    def _unpack_result(self, tree_id: str, answer: RpcResponse) -> SessionResult[Any]:
        """Return the result in an answer that was pushed, or raise its error.

        Raises:
            SocketRpcClosed: it is an error of another supervisor than the trees are open in; ask again.
        """
        if answer.error is not None and answer.incarnation != self._channel.incarnation:
            raise SocketRpcClosed("the supervisor was restarted")
        result: SessionResult[Any] = self._reconnect.unwrap(answer, (tree_id,))
        return result

    def call_now(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a method, such as ``SupervisorControl.release``; this blocks for some milliseconds.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses.
        """
        name = get_method(function).name
        channel = self._channel
        channel.calls.check()
        try:
            answer = channel.ask_now(name, given)
        except ActorDiedError as error:
            channel.calls.check()
            raise _build_gone_error(name) from error
        except (ActorUnavailableError, TimeoutError) as error:
            channel.calls.check()
            raise _build_restart_error(name) from error
        if answer.incarnation != channel.incarnation and isinstance(answer.error, SessionTreeError):
            raise _build_restart_error(name)
        return self._reconnect.unwrap(answer, given)

    async def let_go(self, tree_id: str) -> None:
        """Have the supervisor let a tree go, now that :meth:`released` was called.

        Over the line the event loop goes on meanwhile; without it, this blocks for some milliseconds.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses.
        """
        release = get_method(SupervisorControl.release)
        self._channel.calls.check()
        line = self._channel.choose_line(release)
        if line is None:
            self.call_now(SupervisorControl.release, tree_id)
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._channel.ask_over_line(line, release, (tree_id,))
                self._reconnect.unwrap(answer, (tree_id,))
        except (SocketRpcClosed, TimeoutError) as error:
            raise _build_restart_error(release.name) from error


def _build_gone_error(name: str) -> SessionTreeError:
    return SessionTreeError(
        f"asked the supervisor to {name}: its process ended, and Ray did not restart it; close the "
        "runtime and resume the tree"
    )


def _build_restart_error(name: str) -> SupervisorUnavailable:
    return SupervisorUnavailable(f"the supervisor to {name}", "it is being restarted")
