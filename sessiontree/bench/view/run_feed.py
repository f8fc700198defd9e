"""The feed of a run on a server: somebody looks at the ledger again while a page is open."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from sessiontree import ConfigError
from sessiontree.bench.view.run_table import RunTable

LEAST_S: Final = 0.4
"""Least time between two looks at the ledger."""
SHARE: Final = 8
"""A look that took a time is followed by a pause of so many times as long."""


class RunFeed:
    """Follows a run while somebody looks; see :class:`sessiontree.view.feed.Viewer`.

    Args:
        table: The run.
    """

    def __init__(self, table: RunTable) -> None:
        self.table = table
        self._news = asyncio.Event()
        self._viewers = 0
        self._looking: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Random: news of another feed are of no use to a viewer."""
        return self.table.id

    @property
    def revision(self) -> int:
        """The newest revision."""
        return self.table.revision

    def begin(self) -> None:
        """Note a viewer; the first one begins the looks at the ledger."""
        self._viewers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def end(self) -> None:
        """Note that a viewer left; the last one ends the looks."""
        self._viewers -= 1
        if self._viewers == 0 and self._looking is not None:
            looking, self._looking = self._looking, None
            looking.cancel()
            await asyncio.wait([looking])

    async def wait_for_news(self, feed: str, revision: int) -> None:
        """Wait until there is something new for a viewer of a revision."""
        while feed == self.id and revision == self.revision:
            self._news.clear()
            await self._news.wait()

    def dump_changes(self, feed: str, revision: int) -> str:
        """Return what changed as JSON text: a delta, or a snapshot if the revision is unknown here."""
        return self.table.dump_changes(feed, revision)

    async def _look(self) -> None:
        while True:
            began_s = time.monotonic()
            with suppress(ConfigError):  # a ledger that is busy is read at the next look
                if await asyncio.to_thread(self.table.refresh):
                    self._news.set()
            await asyncio.sleep(max(LEAST_S, SHARE * (time.monotonic() - began_s)))
