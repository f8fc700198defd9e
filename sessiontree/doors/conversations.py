"""Conversations: a token's trees, the turns that it asks for, and where each is in the journal.

A turn has an id, which is also the id of its message in Main's journal: the journal alone says whether it was
heard and what the answer is, so a turn that is asked for again after a loss runs once. Everything that
another token made does not exist here.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sessiontree.api.backend import READ_AT_ONCE
from sessiontree.api.pending_reply import PendingReply
from sessiontree.api.runtime import Runtime
from sessiontree.api.session_tree import SessionTree
from sessiontree.contracts.errors import ConfigError, SessionTreeError, TreeNotFound
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.messages import ImageContent
from sessiontree.contracts.senders import Sender
from sessiontree.contracts.session_facts import MessageReceived, RunFinished
from sessiontree.contracts.session_ids import MAIN
from sessiontree.contracts.settings import Budget
from sessiontree.doors.tokens import DoorToken
from sessiontree.policy.settings import PolicyConfig, ToolLists

OptionsFor: TypeAlias = Callable[[str, "str | None"], dict[str, Any]]
"""Returns the arguments of a new tree, for a workspace and an agent's name; raises ConfigError."""
IDLE_S: Final = 300.0
"""How long a tree stays open without a turn."""
MAX_OPEN: Final = 1_000
"""Most trees that are open at once."""
_TURN: Final = re.compile(r"(t[0-9a-f]{16})_([0-9a-f]{24})")


class NotFoundError(Exception):
    """A token asks for something that is not its own, or does not exist; the two look the same."""


class ConflictError(Exception):
    """What is asked for does not fit what the conversation waits for."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that a token asked for."""

    turn_id: str
    tree_id: str
    tree: SessionTree = field(repr=False)
    reply: PendingReply = field(repr=False)


@dataclass(slots=True)
class _OpenTree:
    """A tree that is open for its token."""

    tree: SessionTree
    token_id: str
    turns: int = 0
    """How many turns go on."""
    closing: asyncio.TimerHandle | None = None


def purpose_of(token: DoorToken) -> str:
    """Return the purpose of a token's trees: who they belong to is in their journals."""
    return f"door:{token.token_id}"


def limit_options(options: Mapping[str, Any], token: DoorToken) -> dict[str, Any]:
    """Return the arguments of a tree within what a token allows.

    The bounds are the tree's own policy and budget, so that they are applied where rights are built, and are
    in its journal.
    """
    rights, policy = token.rights, options.get("policy") or PolicyConfig()
    allowed = PermissionTier.from_label(rights.tier)
    before = PermissionTier.from_label(policy.max_tier or rights.tier)
    changes: dict[str, Any] = {"max_tier": min(allowed, before).label}
    if rights.tools is not None:
        known = policy.sandbox
        kept = rights.tools if known.allow is None else tuple(set(rights.tools) & set(known.allow))
        changes["sandbox"] = ToolLists(allow=kept, deny=known.deny)
    budget = options.get("budget") or Budget()
    if rights.budget_usd is not None:
        most = rights.budget_usd if budget.cost_usd is None else min(rights.budget_usd, budget.cost_usd)
        budget = budget.model_copy(update={"cost_usd": most})
    return {
        **options,
        "policy": policy.model_copy(update=changes),
        "budget": budget,
        "purpose": purpose_of(token),
    }


class Conversations:
    """The trees of all tokens of one server.

    Args:
        make_runtime: Returns where they run; called once, with the first conversation.
        options_for: Returns the arguments of a new tree before its token bounds them.
    """

    def __init__(self, make_runtime: Callable[[], Runtime], options_for: OptionsFor) -> None:
        self._make_runtime = make_runtime
        self._made: Runtime | None = None
        self._options_for = options_for
        self._open: dict[str, _OpenTree] = {}
        self._resuming: dict[str, asyncio.Lock] = {}

    async def begin(
        self, token: DoorToken, agent: str | None, text: str, images: Sequence[ImageContent] = ()
    ) -> Turn:
        """Begin a conversation with its first turn.

        Raises:
            ConfigError: the agent is unknown or not one of the token, or too many trees are open.
        """
        if token.rights.agents and (agent or "default") not in token.rights.agents:
            raise ConfigError(f"the token may talk to {', '.join(token.rights.agents)}, not to {agent!r}")
        if len(self._open) >= MAX_OPEN:
            raise ConfigError(f"{MAX_OPEN:,} conversations are open; try again later")
        workspace = token.rights.workspace
        options = limit_options(self._options_for(workspace, agent), token)
        tree = await SessionTree(workspace, runtime=self._runtime, **options).start()
        self._open[tree.tree_id] = _OpenTree(tree, token.token_id)
        return self._send(token, tree, text, images)

    async def go_on(
        self, token: DoorToken, previous: str, text: str, images: Sequence[ImageContent] = ()
    ) -> Turn:
        """Continue a conversation after a turn of it.

        Raises:
            NotFoundError: the token has no such turn.
            ConflictError: the turn goes on, or another one came after it.
        """
        tree = await self._tree_of(token, previous)
        heard, answered = await self._turns_of(tree)
        if previous not in heard:
            raise NotFoundError(f"no response is called {previous!r}")
        if heard[-1] != previous:
            raise ConflictError(f"{previous} is not the newest response of its conversation")
        if previous not in answered:
            raise ConflictError(f"{previous} goes on; wait for its end, or cancel it")
        return self._send(token, tree, text, images)

    async def answer_of(self, token: DoorToken, turn_id: str) -> RunFinished | None:
        """Return the end of a turn; None = it goes on.

        Raises:
            NotFoundError: the token has no such turn.
        """
        tree = await self._tree_of(token, turn_id)
        heard, answered = await self._turns_of(tree)
        if turn_id not in heard:
            raise NotFoundError(f"no response is called {turn_id!r}")
        return answered.get(turn_id)

    async def cancel(self, token: DoorToken, turn_id: str) -> None:
        """Interrupt a turn, if it goes on.

        Raises:
            NotFoundError: the token has no such turn.
        """
        if await self.answer_of(token, turn_id) is None:
            tree = await self._tree_of(token, turn_id)
            await tree.main.interrupt(f"cancelled by {token.name}")

    async def close(self) -> None:
        """Close all trees, and what they ran on; their conversations can be continued later."""
        for each in tuple(self._open):
            await self._close(each)
        made, self._made = self._made, None
        if made is not None:
            await made.close()

    @property
    def _runtime(self) -> Runtime:
        if self._made is None:
            self._made = self._make_runtime()
        return self._made

    async def _turns_of(self, tree: SessionTree) -> tuple[list[str], dict[str, RunFinished]]:
        """Return the ids of Main's messages, oldest first, and the ends of those that were answered."""
        heard: list[str] = []
        answered: dict[str, RunFinished] = {}
        after = 0
        read = self._runtime.backend.supervisor.read
        while records := await read(tree.tree_id, after, READ_AT_ONCE, 0.0):
            after = records[-1].seq
            for record in records:
                for fact in record.facts if record.session == MAIN else ():
                    if isinstance(fact, MessageReceived) and fact.message.origin == "user":
                        heard.append(fact.message_id)
                    elif isinstance(fact, RunFinished):
                        answered |= dict.fromkeys(fact.answers, fact)
        return heard, answered

    def _send(self, token: DoorToken, tree: SessionTree, text: str, images: Sequence[ImageContent]) -> Turn:
        turn_id = f"{tree.tree_id}_{secrets.token_hex(12)}"
        sender = Sender(f"token:{token.token_id}", name=token.name, channel="door")
        reply = tree.main.send(text, sender=sender, images=images, message_id=turn_id)
        return Turn(turn_id, tree.tree_id, tree, reply)

    def hold(self, turn: Turn) -> None:
        """Keep a turn's tree open; each call needs one of :meth:`release`."""
        held = self._open[turn.tree_id]
        held.turns += 1
        if held.closing is not None:
            held.closing.cancel()
            held.closing = None

    def release(self, turn: Turn) -> None:
        """Let a turn's tree be closed once it has been without turns for a while."""
        held = self._open.get(turn.tree_id)
        if held is None:
            return
        held.turns -= 1
        if held.turns == 0:
            loop = asyncio.get_running_loop()
            held.closing = loop.call_later(IDLE_S, self._close_soon, turn.tree_id)

    def _close_soon(self, tree_id: str) -> None:
        task = asyncio.create_task(self._close(tree_id))
        self._closing = task

    async def _close(self, tree_id: str) -> None:
        held = self._open.pop(tree_id, None)
        if held is not None:
            if held.closing is not None:
                held.closing.cancel()
            with suppress(SessionTreeError):
                await held.tree.close()

    async def _tree_of(self, token: DoorToken, turn_id: str) -> SessionTree:
        """Return the open tree of a turn, resumed if need be."""
        form = _TURN.fullmatch(turn_id)
        if form is None:
            raise NotFoundError(f"no response is called {turn_id[:100]!r}")
        tree_id = form[1]
        async with self._resuming.setdefault(tree_id, asyncio.Lock()):
            held = self._open.get(tree_id)
            if held is None:
                own = await self._runtime.trees(purpose_of(token))
                if all(each.tree_id != tree_id for each in own):
                    raise NotFoundError(f"no response is called {turn_id!r}")
                held = self._open[tree_id] = _OpenTree(await self._resumed(token, tree_id), token.token_id)
        if held.token_id != token.token_id:
            raise NotFoundError(f"no response is called {turn_id!r}")
        return held.tree

    async def _resumed(self, token: DoorToken, tree_id: str) -> SessionTree:
        options = self._options_for(token.rights.workspace, None)
        given = {name: options[name] for name in ("model", "models", "agents", "skills") if name in options}
        try:
            return await SessionTree.resume(tree_id, runtime=self._runtime, **given)
        except TreeNotFound as error:
            raise NotFoundError(f"the conversation is gone: {error}") from error
