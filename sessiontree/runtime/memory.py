"""Memory: who may ask it what, over one store. Without an engine, and without the store's library."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from sessiontree.contracts.errors import MemoryFailed, MemoryLocked
from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, MemoryScope, NewRecord, Selection
from sessiontree.runtime.memory_checks import check_limit, check_new, check_query, check_selection
from sessiontree.runtime.memory_grants import MemoryGrants
from sessiontree.runtime.memory_words import Ended, MemoryRight, MemoryStore, Supervision, Whose
from sessiontree.runtime.reports import ActorRow

LOCK_PATIENCE_S: Final = 3.0
"""How long a store may still be written by the process before this one, which ends with its supervisor."""
LOCK_RETRY_S: Final = 0.1
MOST_FORGETS: Final = 1_000
"""Answers to calls that forgot something, kept for those who ask again."""


class MemoryCore:
    """Answers hosts, which show grants; opens the store with the first question.

    Args:
        place: Where the store lies, for messages.
        open_store: Opens it.
        supervision: Knows whom grants stand for, and which trees have ended.
    """

    def __init__(
        self, place: str, open_store: Callable[[], Awaitable[MemoryStore]], supervision: Supervision
    ) -> None:
        """Begin with nothing open."""
        self._place = place
        self._open_store = open_store
        self._supervision = supervision
        self._grants = MemoryGrants(self._whose)
        self._opening: asyncio.Future[MemoryStore] | None = None
        self._closed = False
        self._unfinished: set[str] = set()
        """Trees with records that are not marked as finished."""
        self._marking: set[asyncio.Task[None]] = set()
        self._forgotten: OrderedDict[tuple[str, str, str], list[str]] = OrderedDict()

    # What hosts ask.

    async def search(self, grant: str, query: MemoryQuery) -> list[Hit]:
        """Return the records that fit a query best, of those the grant's session sees."""
        check_query(query)
        scope = await self._grants.recall(grant)
        hits = await (await self._reading()).search(query, scope)
        return [replace(hit, record=_marked(hit.record, scope)) for hit in hits]

    async def select(self, grant: str, selection: Selection, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names, of those the grant's session sees."""
        check_selection(selection)
        check_limit(limit)
        scope = await self._grants.recall(grant)
        found = await (await self._reading()).select(selection, scope, limit)
        return [_marked(record, scope) for record in found]

    async def store(self, grant: str, records: Sequence[NewRecord], key: str) -> list[str]:
        """Store records for the grant's session, once for a key; durable when this returns."""
        check_new(records)
        scope = await self._grants.check(grant, "remember")
        store = await self._opened()
        self._unfinished.add(scope.tree_id)
        # A session names its own stores alone: no other can take a key of its before it comes.
        return await store.store(records, scope, f"{scope.session}\n{key}")

    async def forget(self, grant: str, selection: Selection, key: str) -> list[str]:
        """Remove the records a selection names, of those the grant's session sees; returns their ids.

        Asked again with the same key, in the life of this process, it answers the same.
        """
        check_selection(selection)
        scope = await self._grants.check(grant, "forget")
        store = await self._opened()
        name = (scope.tree_id, scope.session, key)
        gone = await store.forget(selection, scope)
        before = self._forgotten.get(name, [])
        self._forgotten[name] = [*before, *(each for each in gone if each not in before)]
        if len(self._forgotten) > MOST_FORGETS:
            self._forgotten.popitem(last=False)
        return list(self._forgotten[name])

    # What the supervisor says.

    def revoked(self, grant: str) -> None:
        """Hear that a grant counts no more."""
        self._grants.revoke(grant)

    def ended(self, end: Ended) -> None:
        """Hear that a tree's Main has completed; what is not open yet asks when it opens."""
        if self._opening is not None and not self._closed:
            task = asyncio.ensure_future(self._mark(self._opening, end))
            self._marking.add(task)
            task.add_done_callback(self._marking.discard)

    def actors(self) -> list[ActorRow]:
        """Return nothing: this one shares its supervisor's process."""
        return []

    async def close(self) -> None:
        """Write what is to be written and let the store go."""
        self._closed = True
        while self._marking:
            await asyncio.wait(set(self._marking))
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                await self._opening.result().close()

    async def _whose(self, wanted: Sequence[tuple[str, MemoryRight]]) -> Sequence[Whose]:
        told = await self._supervision.whose(wanted)
        for end in told.ended:
            self.ended(end)
        return told.answers

    async def _reading(self) -> MemoryStore:
        """Return the store once every tree is marked that is known to have ended."""
        store = await self._opened()
        if self._marking:
            await asyncio.wait(set(self._marking))
        return store

    async def _opened(self) -> MemoryStore:
        """Return the store, opened once for all who wait; what failed is tried again by who comes next."""
        if self._closed:
            raise MemoryFailed(self._place, "its runtime is being closed; resume the tree to go on")
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(_heard)
        return await asyncio.shield(self._opening)

    async def _open(self) -> MemoryStore:
        store = await self._unlocked()
        try:
            self._unfinished = store.unfinished_trees()
            if self._unfinished:
                for end in await self._supervision.ended_of(sorted(self._unfinished)):
                    await self._mark_in(store, end)
        except BaseException:
            await store.close()
            raise
        return store

    async def _unlocked(self) -> MemoryStore:
        """Open the store, waiting a little for another process to let it go."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOCK_PATIENCE_S
        while True:
            try:
                return await self._open_store()
            except MemoryLocked:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(LOCK_RETRY_S)

    async def _mark(self, opening: asyncio.Future[MemoryStore], end: Ended) -> None:
        # What fails stays unfinished in the store: whoever opens that next asks for its end again.
        with contextlib.suppress(Exception):
            await self._mark_in(await asyncio.shield(opening), end)

    async def _mark_in(self, store: MemoryStore, end: Ended) -> None:
        if end.tree_id in self._unfinished:
            await store.mark_finished(
                end.tree_id,
                agent_id=end.agent_id,
                workspace=end.workspace,
                ended_at_ms=end.ended_at_ms,
            )
            self._unfinished.discard(end.tree_id)


def _marked(record: MemoryRecord, scope: MemoryScope) -> MemoryRecord:
    """Return a record that tells whether who asks stored it."""
    own = record.scope
    return replace(record, is_own=(own.tree_id, own.session) == (scope.tree_id, scope.session))


def _heard(opening: asyncio.Future[MemoryStore]) -> None:
    """Take note of a failure that nobody may wait for any more."""
    if not opening.cancelled():
        opening.exception()
