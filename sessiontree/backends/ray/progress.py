"""Pulling progress from the supervisor for those who watch a tree here."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sessiontree.backends.ray.supervisor_client import SupervisorClient
from sessiontree.contracts.errors import EngineLost, SessionTreeError
from sessiontree.runtime.progress import Progress, ProgressHub, ProgressReader

PULL_S = 20.0
AGAIN_S = 0.2
CATCH_UP_S = 5.0
"""Longest wait for what is on its way, once it is known that nothing more will happen."""


class _Hub(ProgressHub):
    """A hub of one reader, which ends the pull for it when it is closed."""

    pull: asyncio.Task[None] | None = None

    def __init__(self, line: SupervisorClient, name: str) -> None:
        super().__init__()
        self._line = line
        self.name = name
        """What the supervisor calls the watch."""
        self._told = 0
        self._news = asyncio.Event()

    def told(self, count: int) -> None:
        """Note how many events of the watch were told by now, those dropped among them."""
        self._told = count
        self._news.set()

    async def catch_up(self, reader: ProgressReader) -> None:
        """Wait until as much was told as has happened at the supervisor, for a limited time."""
        with suppress(TimeoutError, SessionTreeError):
            async with asyncio.timeout(CATCH_UP_S):
                name, offered = self.name, await self._line.ask("offered", self.name)
                while self._told < offered and name == self.name:
                    self._news.clear()
                    await self._news.wait()

    def forget(self, reader: ProgressReader) -> None:
        """Drop the reader."""
        super().forget(reader)
        if self.pull is not None:
            self.pull.cancel()


class Watches:
    """One pull per reader, for as long as it is open."""

    def __init__(self, line: SupervisorClient) -> None:
        self._line = line
        self._pulls: set[asyncio.Task[None]] = set()

    def watch(self, tree_id: str, session: str | None) -> ProgressReader:
        """Return a new reader; what happens from now on reaches it."""
        name: str = self._line.ask_now("watch", tree_id, session)
        hub = _Hub(self._line, name)
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

    async def _pull(self, hub: _Hub, reader: ProgressReader) -> None:
        dropped = told = 0
        try:
            while True:
                try:
                    news: tuple[tuple[Progress, ...], int] = await self._line.ask(
                        "progress", hub.name, PULL_S
                    )
                except SessionTreeError:
                    hub.name = await self._again(reader)
                    dropped = told = 0
                    continue
                events, dropped_there = news
                reader.dropped += dropped_there - dropped
                dropped = dropped_there
                for event in events:
                    reader.offer(event)
                told += len(events)
                hub.told(told + dropped)
        except EngineLost as lost:
            reader.fail(lost)
        except SessionTreeError:
            return  # the tree or the runtime was closed: nothing more will happen
        finally:
            self._line.tell("unwatch", hub.name)

    async def _again(self, reader: ProgressReader) -> str:
        """Watch anew after the supervisor was started again."""
        await asyncio.sleep(AGAIN_S)
        name: str = await self._line.ask("watch", reader.tree_id, reader.session)
        return name
