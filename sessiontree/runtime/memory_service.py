"""The memory process: checks every question, judges who may see what, and asks the store."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from sessiontree.contracts.errors import MemoryFailed, MemoryLocked, PermissionDenied, ValidationError
from sessiontree.contracts.memory import (
    MAX_HITS,
    MAX_SOURCE_CHARS,
    MAX_STORED_AT_ONCE,
    MAX_TEXT_CHARS,
    RECORD_TYPES,
    Hit,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    NewRecord,
    Selection,
    Source,
    Trust,
)
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.runtime.memory_protocol import Ended, MemoryRight, MemoryStore, Supervision, Whose
from sessiontree.runtime.rpc_response import RpcResponse, portable
from sessiontree.runtime.session_reports import ActorRow

MAX_SELECTED: Final = 1_000
"""Most records of one selection that are returned, and most ids it may name."""
OF_SESSIONS: Final = frozenset(get_args(Trust)) - {"owner"}
"""What a session may vouch as."""


def check_new(records: Sequence[NewRecord]) -> None:
    """Refuse records that can't be stored for a session.

    Raises:
        ValidationError: names the first that does not fit.
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
                f"type {record.type!r} is none of {', '.join(RECORD_TYPES)}", f"{field}/type"
            )
        if record.trust not in OF_SESSIONS:
            raise ValidationError(
                f"a session can't vouch as {record.trust!r}; give {' or '.join(sorted(OF_SESSIONS))}",
                f"{field}/trust",
            )
        if record.source is not None:
            _check_text(record.source, MAX_SOURCE_CHARS, f"{field}/source")
            _check_source(record.source, f"{field}/source")


def check_query(query: MemoryQuery) -> None:
    """Refuse a query that means nothing.

    Raises:
        ValidationError: names what does not fit.
    """
    _check_text(query.text, MAX_TEXT_CHARS, "/text")
    if not 1 <= query.limit <= MAX_HITS:
        raise ValidationError(f"limit is {query.limit}; give 1 to {MAX_HITS}", "/limit")
    for wanted in query.types:
        if wanted not in RECORD_TYPES:
            raise ValidationError(f"type {wanted!r} is none of {', '.join(RECORD_TYPES)}", "/types")
    if query.path is not None:
        _check_text(query.path, MAX_SOURCE_CHARS, "/path")


def check_selection(selection: Selection) -> None:
    """Refuse a selection without a condition, or one that can't hold.

    Raises:
        ValidationError: says what to give.
    """
    if not selection.to_wire():
        raise ValidationError("nothing was named; give ids, a path or a tree")
    if len(selection.ids) > MAX_SELECTED:
        raise ValidationError(f"{len(selection.ids):,} ids were given; at most {MAX_SELECTED:,}", "/ids")
    if selection.path is not None:
        _check_text(selection.path, MAX_SOURCE_CHARS, "/path")
    elif selection.first is not None or selection.last is not None:
        raise ValidationError("lines are of a path; name it too", "/path")
    first, last = selection.first, selection.last
    if (first is not None and first < 1) or (last is not None and last < (first or 1)):
        raise ValidationError(f"lines {first} to {last} are none", "/first")


def check_limit(limit: int) -> None:
    """Refuse a limit that is none.

    Raises:
        ValidationError: says what to give.
    """
    if not 1 <= limit <= MAX_SELECTED:
        raise ValidationError(f"limit is {limit}; give 1 to {MAX_SELECTED:,}", "/limit")


def _check_text(text: str, most: int, field: str) -> None:
    if not text.strip() or len(text) > most:
        raise ValidationError(f"a text of {len(text):,} characters; give 1 to {most:,}, not all blank", field)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(f"character {error.start + 1} is half of a surrogate pair", field) from error


def _check_source(source: str, field: str) -> None:
    try:
        Source.of(source)
    except ValueError as error:
        raise ValidationError(str(error), field) from error
    if not source.isprintable():
        raise ValidationError("a source is one line of visible characters", field)


MOST_KEPT: Final = 4096
"""Grants kept at a time; each session embodied now has one."""

Ask = Callable[[Sequence[tuple[str, MemoryRight]]], Awaitable[Sequence[Whose]]]


class MemoryGrants:
    """Asks the supervisor whom grants stand for; those that come while it is asked go with the next question.

    Args:
        ask: Asks it, for several at once.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._kept: OrderedDict[str, MemoryScope] = OrderedDict()
        self._revocations = 0
        self._waiting: list[tuple[str, MemoryRight, asyncio.Future[MemoryScope]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def recall(self, grant: str) -> MemoryScope:
        """Return whom a grant stands for, for searching.

        Raises:
            SessionClosed: it does not count now.
            PermissionDenied: it does not cover that.
        """
        scope = self._kept.get(grant)
        if scope is not None:
            self._kept.move_to_end(grant)
            return scope
        before = self._revocations
        scope = await self.check(grant, "recall")
        if self._revocations == before:
            # What was revoked meanwhile may be this one, said before its answer arrived.
            self._kept[grant] = scope
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return scope

    async def check(self, grant: str, right: MemoryRight) -> MemoryScope:
        """Return whom a grant stands for at this moment; raises as :meth:`recall` does."""
        answer: asyncio.Future[MemoryScope] = asyncio.get_running_loop().create_future()
        self._waiting.append((grant, right, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all())
        return await answer

    def revoke(self, grant: str) -> None:
        """Keep a grant no longer."""
        self._revocations += 1
        self._kept.pop(grant, None)

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                try:
                    answers = await self._ask([(grant, right) for grant, right, _ in asked])
                except Exception as error:  # noqa: BLE001 - whoever waits is told
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


FOR_GRANTS: Final = frozenset({"search", "select", "store", "forget"})
"""What hosts may ask; which of it, their grants say."""
FOR_SUPERVISOR: Final = frozenset({"revoked", "ended"})


class MemoryHost:
    """Answers hosts, and hears its supervisor.

    Args:
        core: Does what is asked.
        key: What the supervisor shows.
    """

    def __init__(self, core: MemoryCore, key: str) -> None:
        self._core = core
        self._key = key

    async def answer(self, grant: str, name: str, given: tuple[Any, ...]) -> RpcResponse:
        """Answer a host, for the session its grant names."""
        if name not in FOR_GRANTS:
            reason = f"asked memory to {name!r}, which no grant allows"
            return RpcResponse("", None, PermissionDenied(PermissionTier.ELEVATED, reason))
        try:
            return RpcResponse("", await getattr(self._core, name)(grant, *given))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            return RpcResponse("", None, portable(error))

    def hear(self, key: str, name: str, given: tuple[Any, ...]) -> None:
        """Hear the supervisor; what shows another key is not heard."""
        if name in FOR_SUPERVISOR and self._is_supervisor(key):
            getattr(self._core, name)(*given)

    async def close(self, key: str) -> None:
        """Let the store go, for the supervisor."""
        if self._is_supervisor(key):
            await self._core.close()

    def _is_supervisor(self, key: str) -> bool:
        return hmac.compare_digest(key.encode("utf-8", "replace"), self._key.encode())
