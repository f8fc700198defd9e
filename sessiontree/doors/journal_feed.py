"""The facts of a tree, read once for all that a door derives from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sessiontree.api.runtime.backend import READ_AT_ONCE, READ_WAIT_S
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

Take: TypeAlias = Callable[[JournalRecord], None]
"""Takes in the next fact of a tree."""


class JournalFeed:
    """Gives each fact of one tree to every follower, once and in order.

    Args:
        supervisor: Serves the tree.
        tree_id: The tree.
    """

    def __init__(self, supervisor: SupervisorApi, tree_id: str) -> None:
        self.supervisor = supervisor
        self.tree_id = tree_id
        self._followers: list[Take] = []
        self._after = 0
        self._changed_ms = 0
        self._reading = asyncio.Lock()  # of two readers each fact goes to one

    @property
    def cursor(self) -> int:
        """Number of the newest fact of the tree that was read."""
        return self._after

    @property
    def changed_ms(self) -> int:
        """When that fact was recorded, in milliseconds since 1970; 0 = none was read."""
        return self._changed_ms

    async def read(self, follower: Take) -> None:
        """Give all facts until now to a follower, and to those before it; none is given to one twice.

        Raises:
            JournalError: the journal can't be read.
        """
        async with self._reading:
            if follower not in self._followers:
                await self._begin(follower)
            while records := await self.supervisor.read(self.tree_id, self._after, READ_AT_ONCE, 0.0):
                self._give(records)
                if len(records) < READ_AT_ONCE:
                    return

    async def wait(self) -> None:
        """Wait for facts that were not read yet, and give them; or until a while has passed.

        Raises:
            JournalError: the journal can't be read.
        """
        # Outside the lock, because it may take long and others read meanwhile.
        records = await self.supervisor.read(self.tree_id, self._after, READ_AT_ONCE, READ_WAIT_S)
        async with self._reading:
            # Another reader may have given some of them while this one waited.
            self._give([each for each in records if each.seq > self._after])

    async def list_records(self) -> list[JournalRecord]:
        """Return all that the journal has, oldest first.

        Raises:
            JournalError: the journal can't be read.
        """
        found: list[JournalRecord] = []
        while records := await self.supervisor.read(
            self.tree_id, found[-1].seq if found else 0, READ_AT_ONCE, 0.0
        ):
            found += records
        return found

    async def _begin(self, follower: Take) -> None:
        """Give a new follower what the others have already."""
        seq = 0
        while seq < self._after:
            for record in await self.supervisor.read(self.tree_id, seq, READ_AT_ONCE, 0.0):
                seq = record.seq
                if seq <= self._after:
                    follower(record)
        self._followers.append(follower)

    def _give(self, records: Sequence[JournalRecord]) -> None:
        for record in records:
            for each in self._followers:
                each(record)
        if records:
            self._after, self._changed_ms = records[-1].seq, records[-1].at_ms
