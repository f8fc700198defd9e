"""The creating program's way to its supervisor, through restarts of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError

from sessiontree.actors.wire import opened, packed
from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.errors import SessionClosed, SessionTreeError, TreeNotFound
from sessiontree.kernel.answers import Answer
from sessiontree.kernel.equipment import Baggage

ANSWER_S = 30.0
"""How long a plain question may take."""
RESTART_S = 0.2
IN_ORDER = frozenset({"send", "call", "spawn"})
"""What a program may begin several of without waiting, and means in that order."""
AGAIN = frozenset({"send", "call"})
"""What takes a last argument that says it may have been taken before."""


class Line:
    """Asks one supervisor. After its restart open trees are taken up, and what was asked is asked, again.

    Args:
        actor: The supervisor's actor.
        key: What the program shows.
    """

    def __init__(self, actor: Any, key: str) -> None:
        """Begin with no tree open."""
        self.actor = actor
        self._key = key
        self._incarnation: str | None = None
        self._number = 0
        self._open: dict[str, tuple[Mapping[str, AgentConfig], Baggage]] = {}
        self._mending: asyncio.Future[None] | None = None
        self._closed = False

    def opened(self, tree_id: str, agents: Mapping[str, AgentConfig], baggage: Baggage) -> None:
        """Note a tree that is to be taken up again after a restart."""
        self._open[tree_id] = (agents, baggage)

    def released(self, tree_id: str) -> None:
        """Note that a tree is not."""
        self._open.pop(tree_id, None)

    def holds(self, tree_id: str) -> bool:
        """Whether a tree is open."""
        return tree_id in self._open

    def closed(self) -> None:
        """Ask nothing more."""
        self._closed = True
        self._open.clear()

    async def end(self) -> None:
        """Let the supervisor end its hosts and close its journal."""
        await self.actor.ask.remote(self._key, "close", packed(()))

    def tell(self, name: str, *given: Any) -> None:
        """Say something without waiting for an answer."""
        if not self._closed:
            self.actor.command.remote(self._key, name, packed(given))

    async def ask(self, name: str, *given: Any, plain: bool = False) -> Any:
        """Ask the supervisor, as often as it is lost meanwhile.

        Args:
            name: What to do.
            given: Its arguments.
            plain: Whether it is a command, heard however many other questions wait.

        Raises:
            SessionTreeError: as the supervisor says, or because this runtime was closed.
        """
        again = False
        while True:
            wanted = (*given, True) if again and name in AGAIN else given
            try:
                answer: Answer = opened(await self._asked(name, wanted, plain))
            except (ActorUnavailableError, ActorDiedError) as error:
                self._check(error)
                await asyncio.sleep(RESTART_S)
                again = True
                continue
            if name != "open" and answer.incarnation != self._incarnation:
                await self._mend(answer.incarnation)
                if isinstance(answer.error, SessionTreeError) and not self._closed:
                    again = True
                    continue
            return answer.taken()

    def _asked(self, name: str, given: tuple[Any, ...], plain: bool) -> Any:
        if plain:
            return self.actor.command.remote(self._key, name, packed(given))
        if name in IN_ORDER:
            # Calls of an actor may overtake each other; what a program says in order is heard in order.
            self._number += 1
            return self.actor.ask.remote(self._key, name, packed(given), self._number)
        return self.actor.ask.remote(self._key, name, packed(given))

    def ask_now(self, name: str, *given: Any) -> Any:
        """Ask a plain question and wait for its answer, some milliseconds, without the loop.

        Raises:
            SessionTreeError: as the supervisor says, or that it does not answer now.
        """
        try:
            data = ray.get(self.actor.command.remote(self._key, name, packed(given)), timeout=ANSWER_S)
        except (ActorUnavailableError, ActorDiedError, GetTimeoutError) as error:
            self._check(error)
            raise SessionTreeError(
                f"asked the supervisor to {name}: it is starting again; try again"
            ) from error
        answer: Answer = opened(data)
        if answer.incarnation != self._incarnation and isinstance(answer.error, TreeNotFound):
            raise SessionTreeError(f"asked the supervisor to {name}: it is starting again; try again")
        return answer.taken()

    async def begin(self) -> None:
        """Open the supervisor.

        Raises:
            JournalError: its state directory can't be used.
        """
        answer: Answer = opened(await self.actor.ask.remote(self._key, "open", packed(())))
        answer.taken()
        self._incarnation = answer.incarnation
        self._number = 0

    def _check(self, error: Exception) -> None:
        if self._closed:
            raise SessionClosed("main", "the runtime was closed in this process; resume the tree to go on")
        if not ray.is_initialized():
            raise SessionTreeError("Ray was shut down under the runtime; resume the tree to go on") from error

    async def _mend(self, incarnation: str) -> None:
        """Open a supervisor that knows nothing again, once for all who notice."""
        if self._mending is None:
            self._mending = asyncio.ensure_future(self._open_again(incarnation))
            self._mending.add_done_callback(self._mended)
        await asyncio.shield(self._mending)

    def _mended(self, mending: asyncio.Future[None]) -> None:
        self._mending = None

    async def _open_again(self, incarnation: str) -> None:
        if incarnation == self._incarnation or self._closed:
            return
        await self.begin()
        for tree_id, (agents, baggage) in list(self._open.items()):
            given = packed((tree_id, agents, baggage))
            answer: Answer = opened(await self.actor.ask.remote(self._key, "resume", given))
            answer.taken()
