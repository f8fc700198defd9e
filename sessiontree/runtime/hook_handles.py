"""What hooks stand around besides calls: messages, spawns, progress."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from sessiontree.contracts.context import CallSignals, SessionRights
from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.events import TextDelta, ToolExecutionUpdate
from sessiontree.contracts.hook_sessions import Spawning, Words
from sessiontree.contracts.hooks import HookContext, KeptResult
from sessiontree.contracts.jsonable import JsonValue, to_json_value
from sessiontree.contracts.ports import Channel, SpawnRequest, UpdateCallback
from sessiontree.contracts.session_facts import CallResolved, SessionFact, TurnReplied
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.hooks import HookChain
from sessiontree.dispatch.session_hooks import SessionHooks
from sessiontree.dispatch.word_hooks import WordHooks
from sessiontree.runtime.call_watch import CallWatch
from sessiontree.runtime.frames import Adopt
from sessiontree.runtime.progress import ProgressHub
from sessiontree.runtime.services import Link
from sessiontree.runtime.session_rights import Facades

Blame: TypeAlias = Callable[[str, HookFault], None]
"""Told of a hook's failure, and at what."""
ON_CHANNEL = "channel"


def context_of(adopt: Adopt) -> HookContext:
    """Return what hooks are told about a session that is embodied."""
    return HookContext(adopt.session, adopt.config.agent_id, adopt.spec.kind)


def past_hooks(
    rights: SessionRights, link: Link, chain: HookChain, context: HookContext, blame: Blame
) -> SessionRights:
    """Return the same rights, those handles that hooks have to do with leading past them."""
    words, sessions = chain.words, chain.sessions
    if rights.channel is not None and (words.screens or words.looks):
        rights = replace(rights, channel=HookedChannel(rights.channel, words, context, blame))
    if rights.sessions is not None and sessions.judges:
        rights = replace(rights, sessions=HookedSessions(link, sessions, context, blame))
    return rights


class HookedChannel:
    """Says something on the nearest channel at or above the session, as hooks leave it."""

    __slots__ = ("_blame", "_channel", "_context", "_words")

    def __init__(self, channel: Channel, words: WordHooks, context: HookContext, blame: Blame) -> None:
        self._channel = channel
        self._words = words
        self._context = context
        self._blame = blame

    async def send(self, text: str) -> None:
        """Deliver a message; durable when this returns.

        Raises:
            PermissionDenied: a hook forbids it, or a guard failed.
            ExecutionError: there is nothing in it.
        """
        if not isinstance(text, str) or not text.strip():
            raise ExecutionError(f"say something: {text!r} is no text with something in it")
        kept = await self._words.sending(Words(text, "channel"), self._context)
        for fault in kept.faults:
            self._blame(ON_CHANNEL, fault)
        if kept.block is not None:
            reason = f"session {self._context.session_id!r} may not say this to people: {kept.block}"
            raise PermissionDenied(PermissionTier.SYSTEM, reason)
        await self._channel.send(kept.text)
        for fault in await self._words.sent(Words(kept.text, "channel"), self._context):
            self._blame(ON_CHANNEL, fault)


class HookedSessions:
    """Spawns children of the session, as hooks let it."""

    __slots__ = ("_blame", "_context", "_hooks", "_link")

    def __init__(self, link: Link, hooks: SessionHooks, context: HookContext, blame: Blame) -> None:
        self._link = link
        self._hooks = hooks
        self._context = context
        self._blame = blame

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once; the same key gives the same child.

        Raises:
            SpawnRefused: a hook forbids it, or a guard failed; else as the supervisor says.
        """
        forbidden = None
        if isinstance(request.task, str) and isinstance(request.label, str | None):  # else it is refused
            asked = Spawning(request.kind, request.task, request.label, request.agent, "model")
            ruling = await self._hooks.spawning(asked, self._context)
            for fault in ruling.faults:
                self._blame(key, fault)
            request = replace(request, task=ruling.task, label=ruling.label)
            forbidden = ruling.block
        return await self._link.spawn(request, key, forbidden)


MOST_WAITING = 256
"""Progress that waits for hooks; the oldest is dropped first."""


@dataclass(slots=True, eq=False)
class _Line:
    """Where the progress of one call goes, until the call is over."""

    key: str
    call_id: str
    tool: str
    is_open: bool = True
    blamed: set[str] = field(default_factory=set)
    """Hooks whose failure at this call's progress was told already."""


class HookedWatch(CallWatch):
    """A session's watch that hooks stand before.

    Args:
        hub: Where progress goes.
        tree_id: The tree.
        session: The session.
        facades: The session's facades; what tools report comes past them.
        chain: The tree's hooks.
    """

    def __init__(
        self, hub: ProgressHub, tree_id: str, session: str, facades: Facades, chain: HookChain
    ) -> None:
        super().__init__(hub, tree_id, session, facades)
        self._reported_on = facades.notice(self._reported)
        self._chain = chain
        self._watchers = self.readers
        self.readers = (self,)  # the hooks are among those who watch, also where nobody else does
        self._lines: dict[str, _Line] = {}
        self._waiting: deque[tuple[_Line, JsonValue]] = deque(maxlen=MOST_WAITING)
        self._screening: asyncio.Task[None] | None = None
        self.on_resolved: Callable[[CallResolved], None] = lambda fact: None
        """Told of each call that has its result."""
        self.on_replied: Callable[[TurnReplied], None] = lambda fact: None
        """Told of each reply that was taken in."""
        self.on_fault: Callable[[str, HookFault], None] = lambda key, fault: None
        """Told of hooks that fail: at progress, once for each call; at what tools say and spawn."""

    def updates_of(self, call_id: str, tool: str, signals: CallSignals) -> UpdateCallback:
        """Return where the progress of an attempt goes; callable from any thread."""
        line = self._lines.get(call_id)
        if line is None or not self._chain.rewrites:
            return super().updates_of(call_id, tool, signals)
        return partial(self._reported_on, line)

    def open_line(self, key: str, call_id: str, tool: str) -> None:
        """A call is about to run."""
        self._lines[call_id] = _Line(key, call_id, tool)

    def close_line(self, call_id: str) -> None:
        """A call is over: what it reported and nobody has seen by now is never shown."""
        line = self._lines.pop(call_id, None)
        if line is not None:
            line.is_open = False

    def _reported(self, line: _Line, progress: JsonValue) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue, line, to_json_value(progress))

    def _queue(self, line: _Line, progress: JsonValue) -> None:
        if not self._watchers or not line.is_open:
            return
        self._waiting.append((line, progress))
        if self._screening is None:
            self._screening = asyncio.create_task(self._screen())

    async def _screen(self) -> None:
        try:
            while self._waiting:
                line, progress = self._waiting.popleft()
                if line.is_open:
                    await self._show(line, progress)
        finally:
            self._screening = None

    async def _show(self, line: _Line, progress: JsonValue) -> None:
        shown = KeptResult(line.call_id, line.tool, (), progress, is_error=False)
        kept = await self._chain.persist(shown)
        for fault in kept.faults:
            if fault.hook not in line.blamed:
                line.blamed.add(fault.hook)
                self.on_fault(line.key, fault)
        if line.is_open and not kept.is_withheld:
            event = ToolExecutionUpdate(line.call_id, line.tool, kept.result.details)
            self._hub.emit(self._tree_id, self._session, event)

    def said(self, text: str) -> None:
        """Show a reply as hooks left it, in one piece: nothing of it was shown before."""
        if self._watchers and text:
            self._hub.emit(self._tree_id, self._session, TextDelta(text))

    def failed(self, key: str, fault: HookFault) -> None:
        """Tell of a hook that failed at what a tool says or spawns."""
        self.on_fault(key, fault)

    def saw(self, facts: Sequence[SessionFact]) -> None:
        """Tell of the calls that have their result, and of replies."""
        for fact in facts:
            if isinstance(fact, CallResolved):
                self.on_resolved(fact)
            elif isinstance(fact, TurnReplied):
                self.on_replied(fact)
        if self._watchers:
            super().saw(facts)
