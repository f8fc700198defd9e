"""What tools say on a channel and whom they spawn, past the hooks of the tree, in the session's host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from sessiontree.contracts.context import SessionRights
from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.hook_sessions import Spawning, Words
from sessiontree.contracts.hooks import HookContext
from sessiontree.contracts.ports import Channel, SpawnRequest
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.dispatch.hook_run import HookFault
from sessiontree.dispatch.hooks import HookChain
from sessiontree.dispatch.session_hooks import SessionHooks
from sessiontree.dispatch.word_hooks import WordHooks
from sessiontree.runtime.frames import Adopt
from sessiontree.runtime.services import Link

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
        """Bind the channel and the hooks."""
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
        """Keep the link and the hooks."""
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
