"""The memory service: checks every request, finds the scope of its grant, and asks the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, get_args

from sessiontree.contracts.errors import MemoryFailed, ValidationError
from sessiontree.contracts.values.memory import (
    MAX_HITS,
    MAX_SOURCE_CHARS,
    MAX_STORED_AT_ONCE,
    MAX_TEXT_CHARS,
    RECORD_TYPES,
    MemoryHit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
    Source,
    Trust,
)
from sessiontree.runtime.memory.memory_api import (
    Ended,
    MemoryApi,
    MemoryAuthority,
    MemoryRight,
    MemoryStore,
    Whose,
)
from sessiontree.runtime.transport.supervisor_api import ActorRow

MAX_SELECTED: Final = 1_000
"""Most records that one selection returns, and most ids that it may name."""
OF_SESSIONS: Final = frozenset(get_args(Trust)) - {"owner"}
"""The values of ``trust`` that a session may give."""


def check_new(records: Sequence[NewRecord]) -> None:
    """Refuse records that can't be stored for a session.

    Raises:
        ValidationError: names the first field that is not valid.
    """
    if not 1 <= len(records) <= MAX_STORED_AT_ONCE:
        raise ValidationError(
            f"{len(records)} records were given; store 1 to {MAX_STORED_AT_ONCE:,} at a time"
        )
    for number, record in enumerate(records):
        field = f"/{number}"
        _check_text(record.text, MAX_TEXT_CHARS, f"{field}/text")
        if record.type not in RECORD_TYPES:
            raise ValidationError(
                f"type {record.type!r} is not one of {', '.join(RECORD_TYPES)}", f"{field}/type"
            )
        if record.trust not in OF_SESSIONS:
            raise ValidationError(
                f"a session can't give the trust {record.trust!r}; give {' or '.join(sorted(OF_SESSIONS))}",
                f"{field}/trust",
            )
        if record.source is not None:
            _check_text(record.source, MAX_SOURCE_CHARS, f"{field}/source")
            _check_source(record.source, f"{field}/source")


def check_query(query: MemoryQuery) -> None:
    """Refuse a query that is not valid.

    Raises:
        ValidationError: names the field that is not valid.
    """
    _check_text(query.text, MAX_TEXT_CHARS, "/text")
    if not 1 <= query.limit <= MAX_HITS:
        raise ValidationError(f"limit is {query.limit}; give 1 to {MAX_HITS}", "/limit")
    for wanted in query.types:
        if wanted not in RECORD_TYPES:
            raise ValidationError(f"type {wanted!r} is not one of {', '.join(RECORD_TYPES)}", "/types")
    if query.path is not None:
        _check_text(query.path, MAX_SOURCE_CHARS, "/path")


def check_selection(selection: Selection) -> None:
    """Refuse a selection without a condition, or with one that can't be met.

    Raises:
        ValidationError: says what to give.
    """
    if not selection.to_wire():
        raise ValidationError("the selection is empty; give ids, a path or a tree")
    if len(selection.ids) > MAX_SELECTED:
        raise ValidationError(f"{len(selection.ids):,} ids were given; at most {MAX_SELECTED:,}", "/ids")
    if selection.path is not None:
        _check_text(selection.path, MAX_SOURCE_CHARS, "/path")
    elif selection.first is not None or selection.last is not None:
        raise ValidationError("lines were given without a path; give the path too", "/path")
    first, last = selection.first, selection.last
    if (first is not None and first < 1) or (last is not None and last < (first or 1)):
        raise ValidationError(
            f"lines {first} to {last} are not a range; lines count from 1, and the first comes first",
            "/first",
        )


def check_limit(limit: int) -> None:
    """Refuse a limit out of bounds.

    Raises:
        ValidationError: says what to give.
    """
    if not 1 <= limit <= MAX_SELECTED:
        raise ValidationError(f"limit is {limit}; give 1 to {MAX_SELECTED:,}", "/limit")


def _check_text(text: str, most: int, field: str) -> None:
    if not text.strip() or len(text) > most:
        raise ValidationError(
            f"the text has {len(text):,} characters; give 1 to {most:,}, not only white space", field
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"character {error.start + 1} is half of a surrogate pair; remove it", field
        ) from error


def _check_source(source: str, field: str) -> None:
    try:
        Source.of(source)
    except ValueError as error:
        raise ValidationError(str(error), field) from error
    if not source.isprintable():
        raise ValidationError("the source holds characters that can't be printed; give one plain line", field)


MAX_KEPT: Final = 4096
"""Most grants that are cached; each embodied session has one."""

Ask = Callable[[Sequence[tuple[str, MemoryRight]]], Awaitable[Sequence[Whose]]]


class MemoryGrants:
    """Asks the supervisor for the scopes of grants; grants that arrive meanwhile go with the next request.

    Args:
        ask: Asks the supervisor about several grants at once.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._kept: OrderedDict[str, MemoryScope] = OrderedDict()
        self._revocations = 0
        self._waiting: list[tuple[str, MemoryRight, asyncio.Future[MemoryScope]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def recall(self, grant: str) -> MemoryScope:
        """Return the scope of a grant, for a search; the answer is cached until the grant is revoked.

        Raises:
            SessionClosed: the grant is not valid now.
            PermissionDenied: sessions of its kind may not ask this.
        """
        scope = self._kept.get(grant)
        if scope is not None:
            self._kept.move_to_end(grant)
            return scope
        before = self._revocations
        scope = await self.check(grant, "recall")
        if self._revocations == before:
            # This grant may have been revoked before the answer arrived.
            self._kept[grant] = scope
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return scope

    async def check(self, grant: str, right: MemoryRight) -> MemoryScope:
        """Return the scope of a grant as it is now; raises as :meth:`recall` does."""
        answer: asyncio.Future[MemoryScope] = asyncio.get_running_loop().create_future()
        self._waiting.append((grant, right, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all())
        return await answer

    def revoke(self, grant: str) -> None:
        """Remove a grant from the cache."""
        self._revocations += 1
        self._kept.pop(grant, None)

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                try:
                    answers = await self._ask([(grant, right) for grant, right, _ in asked])
                except Exception as error:  # noqa: BLE001 - those who wait get the error
                    answers = [error] * len(asked)
                for (_, _, waiting), answer in zip(asked, answers, strict=True):
                    if waiting.done():
                        continue
                    if isinstance(answer, Exception):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)
        finally:
            self._asking = None


LOCK_PATIENCE_S: Final = 3.0
"""How long to wait for the previous memory process, which ends with its supervisor, to release the store."""
LOCK_RETRY_S: Final = 0.1
MAX_FORGETS: Final = 1_000
"""Most answers of ``forget`` that are kept for repeated calls."""


class MemoryService(MemoryApi):
    """Answers the requests of hosts, and opens the store with the first one.

    Args:
        place: Where the store is, for messages.
        open_store: Opens it.
        supervision: Returns the scopes of grants, and which trees have completed.
    """

    def __init__(
        self, place: str, open_store: Callable[[], Awaitable[MemoryStore]], supervision: MemoryAuthority
    ) -> None:
        self._place = place
        self._open_store = open_store
        self._supervision = supervision
        self._grants = MemoryGrants(self._resolve_grants)
        self._opening: asyncio.Future[MemoryStore] | None = None
        self._closed = False
        self._unfinished: set[str] = set()
        """Trees with records that are not marked as finished."""
        self._marking: set[asyncio.Task[None]] = set()
        self._forgotten: OrderedDict[tuple[str, str, str], list[str]] = OrderedDict()

    # Requests of hosts.

    async def search(self, grant: str, query: MemoryQuery) -> list[MemoryHit]:
        """Return the records that fit a query best, of those the grant's session sees."""
        check_query(query)
        scope = await self._grants.recall(grant)
        hits = await (await self._prepare_store()).search(query, scope)
        return [replace(hit, record=_mark_own(hit.record, scope)) for hit in hits]

    async def select(self, grant: str, selection: Selection, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names, of those the grant's session sees."""
        check_selection(selection)
        check_limit(limit)
        scope = await self._grants.recall(grant)
        found = await (await self._prepare_store()).select(selection, scope, limit)
        return [_mark_own(record, scope) for record in found]

    async def store(self, grant: str, records: Sequence[NewRecord], key: str) -> list[str]:
        """Store records for the grant's session, once for a key; durable when this returns."""
        check_new(records)
        scope = await self._grants.check(grant, "remember")
        store = await self._ensure_open()
        self._unfinished.add(scope.tree_id)
        # The session is part of the key, so no other session can use its key first.
        return await store.store(records, scope, f"{scope.session}\n{key}")

    async def forget(self, grant: str, selection: Selection, key: str) -> list[str]:
        """Remove the records a selection names, of those the grant's session sees; returns their ids.

        A repeated call with the same key gets the same answer while this process lives.
        """
        check_selection(selection)
        scope = await self._grants.check(grant, "forget")
        store = await self._ensure_open()
        name = (scope.tree_id, scope.session, key)
        gone = await store.forget(selection, scope)
        before = self._forgotten.get(name, [])
        self._forgotten[name] = [*before, *(each for each in gone if each not in before)]
        if len(self._forgotten) > MAX_FORGETS:
            self._forgotten.popitem(last=False)
        return list(self._forgotten[name])

    # Notices of the supervisor.

    def revoked(self, grant: str) -> None:
        """Note that a grant is no longer valid."""
        self._grants.revoke(grant)

    def ended(self, end: Ended) -> None:
        """Note that a tree's Main has completed; a store that is not open yet asks when it opens."""
        if self._opening is not None and not self._closed:
            task = asyncio.ensure_future(self._mark(self._opening, end))
            self._marking.add(task)
            task.add_done_callback(self._marking.discard)

    def actors(self) -> list[ActorRow]:
        """Return an empty list, because the service shares its supervisor's process."""
        return []

    async def close(self) -> None:
        """Write what is pending and release the store."""
        self._closed = True
        while self._marking:
            await asyncio.wait(set(self._marking))
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if not self._opening.cancelled() and self._opening.exception() is None:
                await self._opening.result().close()

    async def _resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> Sequence[Whose]:
        told = await self._supervision.resolve_grants(wanted)
        for end in told.ended:
            self.ended(end)
        return told.answers

    async def _prepare_store(self) -> MemoryStore:
        """Return the store once every tree that is known to have completed is marked."""
        store = await self._ensure_open()
        if self._marking:
            await asyncio.wait(set(self._marking))
        return store

    async def _ensure_open(self) -> MemoryStore:
        """Return the store, opened once for all callers; after a failure the next caller opens it again."""
        if self._closed:
            raise MemoryFailed(
                self._place, "its runtime is being closed; resume the tree to use memory again"
            )
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(_retrieve_error)
        return await asyncio.shield(self._opening)

    async def _open(self) -> MemoryStore:
        store = await self._open_unlocked()
        try:
            self._unfinished = await store.list_unfinished_trees()
            if self._unfinished:
                for end in await self._supervision.list_completed_trees(sorted(self._unfinished)):
                    await self._mark_in(store, end)
        except BaseException:
            await store.close()
            raise
        return store

    async def _open_unlocked(self) -> MemoryStore:
        """Open the store; if another process has it, wait a little."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOCK_PATIENCE_S
        while True:
            try:
                return await self._open_store()
            except MemoryFailed as error:
                if error.cause != "locked" or loop.time() > deadline:
                    raise
            await asyncio.sleep(LOCK_RETRY_S)

    async def _mark(self, opening: asyncio.Future[MemoryStore], end: Ended) -> None:
        # After a failure the tree stays unfinished in the store, and the next opening asks about it again.
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


def _mark_own(record: MemoryRecord, scope: MemoryScope) -> MemoryRecord:
    """Return a record with ``is_own`` set for the session that asks."""
    own = record.scope
    return replace(record, is_own=(own.tree_id, own.session) == (scope.tree_id, scope.session))


def _retrieve_error(opening: asyncio.Future[MemoryStore]) -> None:
    """Retrieve the error of an opening that nobody may wait for, so that the loop does not log it."""
    if not opening.cancelled():
        opening.exception()
