"""A reader of the durable facts of an open tree."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from sessiontree.api.runtime.backend import READ_AT_ONCE, follow_facts
from sessiontree.contracts.values.data_frames import make_data_frame

if TYPE_CHECKING:
    from sessiontree.journal.record import JournalRecord
    from sessiontree.runtime.transport.supervisor_api import SupervisorApi


class FactReader(AsyncIterator["JournalRecord"]):
    """Reads the facts of a tree: iterate over it with ``async for``, or take those so far as a data frame.

    A program gets it from :meth:`SessionTree.events`.
    """

    def __init__(self, supervisor: SupervisorApi, tree_id: str, after: int) -> None:
        """Read the facts of a tree after a number."""
        self._supervisor = supervisor
        self._tree_id = tree_id
        self._after = after
        self._facts: AsyncGenerator[JournalRecord] | None = None

    async def __anext__(self) -> JournalRecord:
        """Return the next fact, waiting for it.

        Raises:
            StopAsyncIteration: Main has ended, and all facts were returned.
            SessionTreeError: the tree is not open.
        """
        if self._facts is None:
            self._facts = follow_facts(self._supervisor, self._tree_id, self._after)
        return await anext(self._facts)

    async def to_pandas(self) -> Any:
        """Return the facts so far as a ``pandas.DataFrame``; it waits for no later one.

        Returns:
            A row for each record, by number: `seq`, `session`, `at_ms`, `kind`, and `fact` as a JSON object.
            Facts that the iteration has returned are in it, too.

        Raises:
            ConfigError: pandas is not installed.
            SessionTreeError: the tree is not open.
        """
        rows, after = [], self._after
        while records := await self._supervisor.read(self._tree_id, after, READ_AT_ONCE, 0.0):
            rows += [record.to_row() for record in records]
            after = records[-1].seq
        return make_data_frame(rows, "facts")

    async def aclose(self) -> None:
        """Stop reading; harmless twice."""
        if self._facts is not None:
            await self._facts.aclose()
