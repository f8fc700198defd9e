"""Ways to the memory process: from a host, and from the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, NewRecord, Selection
from sessiontree.runtime.host_link import HostLost
from sessiontree.runtime.memory_protocol import Ended, MemoryProcess, MemoryRight, ScopeAnswer, Whose
from sessiontree.runtime.session_reports import ActorRow

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


NAME = "memory"


class MemoryLink:
    """Memory in a process of its own. The engine starts that again when it dies; it then knows nothing.

    Args:
        start: Starts it.
    """

    def __init__(self, start: Callable[[], MemoryProcess]) -> None:
        self._start = start
        self._process: MemoryProcess | None = None
        self._pid = 0
        self._told: set[str] = set()
        """Grants it may have kept."""
        self._ended: list[Ended] = []
        """Trees whose end it may not have heard of yet."""

    def way(self) -> Any:
        """Return what hosts need to ask it, starting it if it does not run."""
        if self._process is None:
            self._process = self._start()
        return self._process.way

    def begun(self, pid: int) -> None:
        """Hear that it begins, in a process that knows no grant yet."""
        self._pid = pid
        self._told.clear()
        self._ended.clear()

    def told(self, wanted: Sequence[tuple[str, MemoryRight]], answers: Sequence[Whose]) -> ScopeAnswer:
        """Return what it is told, noting it, so that it hears when that is true no more."""
        for (grant, right), answer in zip(wanted, answers, strict=True):
            if right == "recall" and not isinstance(answer, Exception):
                self._told.add(grant)
        ended, self._ended = tuple(self._ended), []
        return ScopeAnswer(answers, ended)

    def revoked(self, grant: str) -> None:
        """Say that a grant counts no more."""
        if self._process is not None and grant in self._told:
            self._told.discard(grant)
            self._process.tell("revoked", grant)

    def ended(self, end: Ended) -> None:
        """Say that a tree's Main has completed; memory that does not run asks when it begins."""
        if self._process is not None:
            # Also with the next answer: calls of an engine may overtake each other.
            self._ended.append(end)
            self._process.tell("ended", end)

    def actors(self) -> list[ActorRow]:
        """Return its process, if it runs."""
        if self._process is None:
            return []
        return [ActorRow(NAME, "memory", self._pid, "starting" if self._pid == 0 else "structural")]

    async def close(self) -> None:
        """Let it write what is to be written, and end it."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.end()
