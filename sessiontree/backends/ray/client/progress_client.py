"""Progress of trees in another process: pulled from the supervisor, and pulled again after its restarts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from sessiontree.backends.ray.client.actor_client import ActorClient
from sessiontree.backends.ray.client.socket_rpc import SocketRpcClosed
from sessiontree.contracts.errors import EngineLost, SessionTreeError
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.transport.progress import Progress, ProgressBuffer, ProgressHub

PULL_S = 20.0
AGAIN_S = 0.2
CATCH_UP_S = 5.0
"""The longest wait for events on their way, once no further events will happen."""


class PulledHub(ProgressHub):
    """The hub of one reader, which cancels the reader's pull when the reader is closed."""

    pull: asyncio.Task[None] | None = None

    def __init__(self, line: ActorClient, name: str) -> None:
        super().__init__()
        self._line = line
        self.name = name
        """The supervisor's name for the watch."""
        self._taken = self._dropped = 0
        self._news = asyncio.Event()

    def restart(self, name: str) -> None:
        """Begin again with a new watch."""
        self.name, self._taken, self._dropped = name, 0, 0

    def take(self, reader: ProgressBuffer, events: tuple[Progress, ...], dropped: int) -> None:
        """Hand events of the watch to its reader; ``dropped`` is the number of those dropped so far."""
        reader.dropped += dropped - self._dropped
        self._dropped = dropped
        for event in events:
            reader.offer(event)
        self._taken += len(events)
        self._news.set()

    async def catch_up(self, reader: ProgressBuffer) -> None:
        """Wait up to ``CATCH_UP_S`` until everything that the supervisor has offered was reported."""
        with suppress(TimeoutError, SessionTreeError):
            async with asyncio.timeout(CATCH_UP_S):
                # Race: the watch may begin again under another name meanwhile, and then nothing is owed.
                name, offered = self.name, await self._line.control.offered(self.name)
                while self._taken + self._dropped < offered and name == self.name:
                    self._news.clear()
                    await self._news.wait()

    def forget(self, reader: ProgressBuffer) -> None:
        """Drop the reader."""
        super().forget(reader)
        if self.pull is not None:
            self.pull.cancel()


class ProgressPuller:
    """Pulls progress events from the supervisor, with one task for each open reader."""

    def __init__(self, line: ActorClient) -> None:
        self._line = line
        self._pulls: set[asyncio.Task[None]] = set()

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a new reader of the events from now on."""
        name: str = self._line.call_now(SupervisorControl.watch, tree_id, session)
        hub = PulledHub(self._line, name)
        reader = hub.watch(tree_id, session)
        pull = hub.pull = asyncio.create_task(self._pull(hub, reader))
        self._pulls.add(pull)
        pull.add_done_callback(self._pulls.discard)
        return reader

    async def close(self) -> None:
        """Stop every pull."""
        pulls = list(self._pulls)
        for pull in pulls:
            pull.cancel()
        if pulls:
            await asyncio.wait(pulls)

    async def _pull(self, hub: PulledHub, reader: ProgressBuffer) -> None:
        take = partial(hub.take, reader)
        without_line: int | None = 0  # id of a supervisor that can't be followed
        try:
            while True:
                pid = self._line.pid
                try:
                    if without_line != pid:
                        with suppress(SocketRpcClosed):
                            await self._line.follow(hub.name, take)
                        without_line = pid
                    take(*await self._line.control.progress(hub.name, PULL_S))
                except SessionTreeError:
                    hub.restart(await self._watch_again(reader))
        except EngineLost as lost:
            reader.fail(lost)
        except SessionTreeError:
            return  # the tree or the runtime was closed
        finally:
            self._line.tell(SupervisorControl.unwatch, hub.name)

    async def _watch_again(self, reader: ProgressBuffer) -> str:
        """Watch again after a restart of the supervisor."""
        await asyncio.sleep(AGAIN_S)
        return await self._line.control.watch(reader.tree_id, reader.session)
