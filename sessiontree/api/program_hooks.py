"""The hooks of one tree in the creating program: around what it spawns, and around sessions that come and go.

Sessions begin and end in the supervisor, which runs nobody's code. What hooks are told of it stands in the
journal by then, and is told in the journal's order, one thing after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from sessiontree.api.backend import Backend
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.hook_sessions import EndedSession, Spawning, StartedSession
from sessiontree.contracts.hooks import Hook, HookContext
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.tree_facts import SessionEnded, SessionSpawned
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.hooks import HookChain
from sessiontree.journal.record import Record, kind_in
from sessiontree.runtime.replay import fact_of
from sessiontree.tree.stimuli import SpawnAsked

READ_AT_ONCE = 512
READ_WAIT_S = 20.0
CLOSE_WAIT_S = 10.0
"""How long, at the end, hooks may take over what is durable by then."""
_TOLD: Final = frozenset({"session_spawned", "session_ended"})
"""Kinds of the facts that hooks are told of."""


class ProgramHooks:
    """Asks and tells the hooks of a tree while the program has it open."""

    def __init__(self, backend: Backend, tree_id: str, hooks: Iterable[Hook]) -> None:
        """Bind a tree."""
        self._owner = backend.owner
        self._tree_id = tree_id
        self._hooks = HookChain(hooks).sessions
        self._contexts: dict[str, HookContext] = {}
        self._seen = 0
        self._moved = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def open(self, after: int) -> None:
        """Begin to tell of what comes after a fact of that number."""
        self._seen = after
        if self._hooks.looks:
            self._reader = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Tell of what is durable by now, for a moment, then end."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        with suppress(SessionTreeError, TimeoutError):
            last = self._owner.last_seq(self._tree_id)
            async with asyncio.timeout(CLOSE_WAIT_S):
                while self._seen < last and not reader.done():
                    self._moved.clear()
                    await self._moved.wait()
        reader.cancel()
        if not reader.done():  # else it may be of a loop that is closed by now
            await asyncio.wait({reader})

    async def judged(self, asked: SpawnAsked) -> SpawnAsked:
        """Return a spawn of the program as its hooks leave it, or with their reason against it."""
        if not self._hooks.judges:
            return asked
        spawning = Spawning(asked.kind, asked.task, asked.label, asked.agent, asked.via)
        ruling = await self._hooks.spawning(spawning, self._context_of(asked.parent))
        await self._blame(asked.parent, ruling.faults)
        return replace(asked, task=ruling.task, label=ruling.label, forbidden=ruling.block)

    async def _follow(self) -> None:
        try:
            while True:
                records = await self._owner.read(self._tree_id, self._seen, READ_AT_ONCE, READ_WAIT_S)
                for record in records:
                    await self._note(record)
                    self._seen = record.seq
                self._moved.set()
        except SessionTreeError:
            return  # the tree goes on no more in this process
        finally:
            self._moved.set()

    async def _note(self, record: Record) -> None:
        if record.session or kind_in(record.text) not in _TOLD:
            return
        fact: Any = fact_of(record.text)
        if isinstance(fact, SessionSpawned):
            await self._tell_started(fact.spec)
        elif isinstance(fact, SessionEnded):
            await self._tell_ended(fact)

    async def _tell_started(self, spec: SessionSpec) -> None:
        own = self._contexts[spec.session_id] = _context(spec)
        parent = None if spec.parent is None else self._context_of(spec.parent)
        started = StartedSession(spec.session_id, spec.kind, spec.agent, spec.task, spec.label, spec.via)
        await self._blame(spec.session_id, await self._hooks.started(started, own, parent))

    async def _tell_ended(self, fact: SessionEnded) -> None:
        own = self._context_of(fact.session)
        above = fact.session.rpartition("/")[0]
        parent = self._context_of(above) if above else None
        result = fact.result
        ended = EndedSession(fact.session, fact.status, result.summary, result.output, fact.forced)
        await self._blame(fact.session, await self._hooks.ended(ended, own, parent))
        self._contexts.pop(fact.session, None)

    def _context_of(self, session: str) -> HookContext:
        """Return who a session is; what it is does not change."""
        context = self._contexts.get(session)
        if context is None:
            spec = self._owner.record_of(self._tree_id, session, max_n=1).spec
            context = self._contexts[session] = _context(spec)
        return context

    async def _blame(self, session: str, faults: Iterable[HookFault]) -> None:
        for fault in faults:
            with suppress(SessionTreeError):
                await self._owner.hook_failed(self._tree_id, session, fault.hook, fault.point, fault.reason)


def _context(spec: SessionSpec) -> HookContext:
    return HookContext(spec.session_id, spec.agent, spec.kind)
