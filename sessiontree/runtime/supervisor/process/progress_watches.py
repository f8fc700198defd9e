"""Watches of the creating program: each has a name, and holds the events that the program has not got yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.runtime.supervisor.process.supervisor_control import WatchControl
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.progress import Progress, ProgressBuffer, ProgressHub, Push


class ProgressWatches(WatchControl):
    """The watches of one supervisor.

    Args:
        hub: Hands out progress.
        get_supervisor: Returns the open supervisor, or raises the error that it is not open.
    """

    def __init__(self, hub: ProgressHub, get_supervisor: Callable[[], Supervisor]) -> None:
        self._hub = hub
        self._get_supervisor = get_supervisor
        self._readers: dict[str, ProgressBuffer] = {}

    async def watch(self, tree_id: str, session: str | None) -> str:
        """Begin to watch progress; return the name of the watch."""
        self._get_supervisor().tree(tree_id).watch(+1)
        name = secrets.token_hex(8)
        self._readers[name] = self._hub.watch(tree_id, session)
        return name

    async def unwatch(self, name: str) -> None:
        """End a watch."""
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
            supervisor = self._get_supervisor()
            if reader.tree_id in supervisor.trees:  # Race: the tree may have been released meanwhile
                supervisor.tree(reader.tree_id).watch(-1)

    async def progress(self, name: str, wait_s: float) -> tuple[tuple[Progress, ...], int]:
        """Return what a reader holds, waiting for the first, and how many it has dropped so far."""
        reader = self._find_reader(name)
        try:
            async with asyncio.timeout(wait_s):
                first = await reader.next()
        except TimeoutError:
            return (), reader.dropped
        return (first, *reader.drain()), reader.dropped

    async def offered(self, name: str) -> int:
        """Return how many events a reader was offered so far."""
        return self._find_reader(name).offered

    async def follow(self, name: str, push: Push, has_room: Callable[[], Awaitable[None]]) -> None:
        """Push the events of a watch, as they come; see :meth:`ProgressBuffer.follow`."""
        await self._find_reader(name).follow(push, has_room)

    def _find_reader(self, name: str) -> ProgressBuffer:
        reader = self._readers.get(name)
        if reader is None:
            raise SessionTreeError("this watch is over: the supervisor was restarted since, or it was closed")
        return reader
