"""Opening a supervisor, and opening it again after each restart, with the trees that are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ray.exceptions import ActorUnavailableError

from sessiontree.backends.ray.client.awaited_results import AwaitedResults
from sessiontree.backends.ray.client.supervisor_channel import SupervisorChannel
from sessiontree.contracts.errors import TreeNotFound
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.rpc import RpcResponse

RESTART_S = 0.2
"""The pause before a question is repeated."""


class SupervisorReconnect:
    """Knows the trees that are open, and resumes them in a supervisor that was started again.

    Args:
        channel: The ways to the supervisor.
        make_results: Makes what awaits results over a new line.
    """

    def __init__(self, channel: SupervisorChannel, make_results: Callable[[], AwaitedResults]) -> None:
        self._channel = channel
        self._make_results = make_results
        self._open: dict[str, tuple[Mapping[str, AgentConfig], PackedResources]] = {}
        self._given_up: dict[str, Exception] = {}
        """By tree, why a restarted supervisor could not resume it."""
        self._reconnecting: asyncio.Future[None] | None = None

    def add(self, tree_id: str, agents: Mapping[str, AgentConfig], resources: PackedResources) -> None:
        """Add a tree that is resumed after a restart of the supervisor."""
        self._open[tree_id] = (agents, resources)
        self._given_up.pop(tree_id, None)

    def remove(self, tree_id: str) -> None:
        """Remove a tree that was released."""
        self._open.pop(tree_id, None)
        self._given_up.pop(tree_id, None)

    def holds(self, tree_id: str) -> bool:
        """Whether a tree is open."""
        return tree_id in self._open

    def clear(self) -> None:
        """Resume no tree any more."""
        self._open.clear()

    def unwrap(self, answer: RpcResponse, given: tuple[Any, ...]) -> Any:
        """Return an answer's value, or raise its error; for a tree that was not resumed, the reason."""
        if isinstance(answer.error, TreeNotFound) and given and given[0] in self._given_up:
            raise self._given_up[given[0]]
        return answer.unwrap()

    async def begin(self) -> None:
        """Open the supervisor.

        Raises:
            JournalError: the state directory cannot be used.
        """
        opening = None
        while opening is None:
            try:
                opening = await self._channel.ask_unnumbered("open")
            except ActorUnavailableError:  # the start failed, and Ray repeats it
                await asyncio.sleep(RESTART_S)
        self._channel.track_process(opening.unwrap())
        await self._channel.open_line(self._make_results())
        self._channel.set_incarnation(opening.incarnation)

    async def reconnect(self, incarnation: str) -> None:
        """Open a restarted supervisor, once for all callers that notice the restart."""
        # Race: callers notice at different times. Whoever comes while it is opened waits for that opening.
        if self._reconnecting is None:
            self._reconnecting = asyncio.ensure_future(self._open_again(incarnation))
            self._reconnecting.add_done_callback(self._on_reconnected)
        await asyncio.shield(self._reconnecting)

    def _on_reconnected(self, reconnecting: asyncio.Future[None]) -> None:
        self._reconnecting = None

    async def _open_again(self, incarnation: str) -> None:
        channel = self._channel
        if incarnation == channel.incarnation or channel.calls.is_closed:
            return  # Race: it was opened between the answer that names it and this
        opening = await channel.ask_unnumbered("open")
        pid = opening.unwrap()
        if opening.incarnation == channel.incarnation:
            return  # Race: the late answer came from an earlier incarnation
        channel.track_process(pid)
        await channel.open_line(self._make_results())
        for tree_id, (agents, resources) in list(self._open.items()):
            resumed = await channel.ask_unnumbered("resume", tree_id, agents, resources, True)
            if tree_id not in self._open:
                channel.notify("release", (tree_id,))  # Race: it was released meanwhile
            if resumed.incarnation != opening.incarnation:
                return  # Race: the supervisor was lost again; the next question notices
            if resumed.error is not None:
                # The other trees are resumed although this one cannot be read.
                self._given_up[tree_id] = resumed.error
        # Only now: until every tree is resumed, an answer that a tree is not open has no meaning.
        channel.set_incarnation(opening.incarnation)
