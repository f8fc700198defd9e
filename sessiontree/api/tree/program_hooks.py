"""The hooks of one tree in the creating program: around its spawns, and at the start and end of sessions.

Sessions begin and end in the supervisor, which runs no user code. Hooks are informed of it from the journal,
in the journal's order, one fact at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from sessiontree.api.runtime.backend import Backend
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.facts.tree_facts import SessionEnded, SessionSpawned
from sessiontree.contracts.tools.hooks import EndedSession, Hook, HookContext, Spawning, StartedSession
from sessiontree.dispatch.hook_chain import HookChain
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_fact
from sessiontree.tree.state.protocol import SpawnAsked

READ_AT_ONCE = 512
READ_WAIT_S = 20.0
CLOSE_WAIT_S = 10.0
"""Seconds that hooks have at the end for the facts that are durable by then."""
_TOLD: Final = frozenset({"session_spawned", "session_ended"})
"""Kinds of the facts that hooks are informed of."""


class ProgramHooks:
    """Runs the hooks of a tree while the program has it open."""

    def __init__(self, backend: Backend, tree_id: str, hooks: Iterable[Hook]) -> None:
        self._backend = backend
        self._tree_id = tree_id
        self._hooks = HookChain(hooks).sessions
        self._contexts: dict[str, HookContext] = {}
        self._seen = 0
        self._moved = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    def open(self, after: int) -> None:
        """Begin to report the facts after a number."""
        self._seen = after
        if self._hooks.looks:
            self._reader = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Report the facts that are durable by now, within a time limit, then end."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        with suppress(SessionTreeError, TimeoutError):
            last = await self._backend.supervisor.last_seq(self._tree_id)
            async with asyncio.timeout(CLOSE_WAIT_S):
                while self._seen < last and not reader.done():
                    self._moved.clear()
                    await self._moved.wait()
        reader.cancel()
        if not reader.done():  # a finished reader may belong to a closed loop
            await asyncio.wait({reader})

    async def judge_spawn(self, asked: SpawnAsked) -> SpawnAsked:
        """Return the program's spawn as changed by its hooks, or with their reason for refusing it."""
        if not self._hooks.judges:
            return asked
        spawning = Spawning(asked.kind, asked.task, asked.label, asked.agent, asked.via)
        ruling = await self._hooks.screen_spawn(spawning, self._get_context(asked.parent))
        await self._blame(asked.parent, ruling.faults)
        return replace(asked, task=ruling.task, label=ruling.label, forbidden=ruling.block)

    async def _follow(self) -> None:
        supervisor = self._backend.supervisor
        try:
            while True:
                records = await supervisor.read(self._tree_id, self._seen, READ_AT_ONCE, READ_WAIT_S)
                for record in records:
                    await self._note(record)
                    self._seen = record.seq
                self._moved.set()
        except SessionTreeError:
            return  # the tree no longer runs in this process
        finally:
            self._moved.set()

    async def _note(self, record: JournalRecord) -> None:
        if record.session or read_kind(record.text) not in _TOLD:
            return
        fact: Any = read_fact(record.text)
        if isinstance(fact, SessionSpawned):
            await self._tell_started(fact.spec)
        elif isinstance(fact, SessionEnded):
            await self._tell_ended(fact)

    async def _tell_started(self, spec: SessionSpec) -> None:
        own = self._contexts[spec.session_id] = _build_context(spec)
        parent = None if spec.parent is None else self._get_context(spec.parent)
        started = StartedSession(spec.session_id, spec.kind, spec.agent, spec.task, spec.label, spec.via)
        await self._blame(spec.session_id, await self._hooks.started(started, own, parent))

    async def _tell_ended(self, fact: SessionEnded) -> None:
        own = self._get_context(fact.session)
        above = fact.session.rpartition("/")[0]
        parent = self._get_context(above) if above else None
        result = fact.result
        ended = EndedSession(fact.session, fact.status, result.summary, result.output, fact.forced)
        await self._blame(fact.session, await self._hooks.ended(ended, own, parent))
        self._contexts.pop(fact.session, None)

    def _get_context(self, session: str) -> HookContext:
        """Return the context of a session, which never changes."""
        context = self._contexts.get(session)
        if context is None:
            record = self._backend.ask_now(
                lambda supervisor: supervisor.record_of(self._tree_id, session, max_n=1)
            )
            context = self._contexts[session] = _build_context(record.spec)
        return context

    async def _blame(self, session: str, faults: Iterable[HookFault]) -> None:
        for fault in faults:
            with suppress(SessionTreeError):
                await self._backend.supervisor.hook_failed(
                    self._tree_id, session, fault.hook, fault.point, fault.reason
                )


def _build_context(spec: SessionSpec) -> HookContext:
    return HookContext(spec.session_id, spec.agent, spec.kind)
