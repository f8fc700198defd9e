"""A host's way to memory in another process: asked again, by the same key, when that process is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, NewRecord, Selection
from sessiontree.runtime.errors import HostLost

ANSWER_S: Final = 100.0
"""How long memory may take for one answer, its own start included."""
AGAIN_S: Final = 0.1
"""How long to wait before memory is asked again: it is being started."""
MOST_LOSSES: Final = 8
"""How often in a row memory may be lost over one call."""


class MemoryWay(Protocol):
    """Asks the process that memory has for itself."""

    async def ask(self, grant: str, name: str, given: tuple[Any, ...]) -> Any:
        """Return its answer.

        Raises:
            HostLost: it was lost meanwhile; whether it did what was asked is not known.
        """
        ...


class MemoryLine:
    """Memory for the sessions of one host.

    Args:
        find: Asks the supervisor for the way to memory, showing a grant.
        answer_s: How long one answer may take.
        again_s: How long to wait before asking again.
    """

    def __init__(
        self,
        find: Callable[[str], Awaitable[MemoryWay]],
        *,
        answer_s: float = ANSWER_S,
        again_s: float = AGAIN_S,
    ) -> None:
        """Begin without a way to it."""
        self._find = find
        self._answer_s = answer_s
        self._again_s = again_s
        self._way: MemoryWay | None = None

    async def search(self, grant: str, query: MemoryQuery) -> list[Hit]:
        """Return the records that fit a query best."""
        hits: list[Hit] = await self._ask(grant, "search", query)
        return hits

    async def select(self, grant: str, selection: Selection, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names."""
        records: list[MemoryRecord] = await self._ask(grant, "select", selection, limit)
        return records

    async def store(self, grant: str, records: Sequence[NewRecord], key: str) -> list[str]:
        """Store records once for a key, however often memory is lost meanwhile."""
        ids: list[str] = await self._ask(grant, "store", tuple(records), key)
        return ids

    async def forget(self, grant: str, selection: Selection, key: str) -> list[str]:
        """Remove the records a selection names."""
        ids: list[str] = await self._ask(grant, "forget", selection, key)
        return ids

    async def _ask(self, grant: str, name: str, *given: Any) -> Any:
        lost: HostLost | None = None
        patience = asyncio.timeout(self._answer_s)
        try:
            async with patience:
                for _ in range(MOST_LOSSES):
                    try:
                        if self._way is None:
                            self._way = await self._find(grant)
                        return await self._way.ask(grant, name, given)
                    except HostLost as loss:
                        lost, self._way = loss, None
                    await asyncio.sleep(self._again_s)
        except TimeoutError:
            if not patience.expired():
                raise
            why = f"; it was lost meanwhile: {lost}" if lost is not None else ""
            raise MemoryFailed(
                name, f"no answer within {self._answer_s:g} s{why}; try again, or go on without it"
            ) from None
        raise MemoryFailed(
            name,
            f"its process was lost {MOST_LOSSES} times over this call, the last: {lost}; go on without it",
        )
