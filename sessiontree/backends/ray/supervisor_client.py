"""The creating program's way to its supervisor, through restarts of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from sessiontree.backends.ray.wire import opened, packed
from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.errors import EngineLost, SessionClosed, SessionTreeError, TreeNotFound
from sessiontree.runtime.rpc_response import RpcResponse
from sessiontree.runtime.tree_resources import Baggage

ANSWER_S = 30.0
"""How long a plain question may take while the supervisor lives."""
LOOK_S = 0.1
"""How often, meanwhile, it is looked whether it does."""
RESTART_S = 0.2
MOST_DEATHS = 25
"""How often in a row Ray may say that the supervisor will not be started again before it is believed."""
IN_ORDER = frozenset({"send", "call", "spawn", "interrupt"})
"""What a program may begin several of without waiting, and means in that order."""
AGAIN = frozenset({"send", "call", "decide", "answer", "create", "resume"})
"""What takes a last argument that says it may have been taken before."""
WAITING = frozenset({"result", "read", "tidings", "progress"})
"""What does nothing but wait: given up here, it is given up there."""


class SupervisorClient:
    """Asks one supervisor. After its restart open trees are taken up, and what was asked is asked, again.

    Args:
        actor: The supervisor's actor.
        key: What the program shows.
        is_up: Whether there is a Ray to ask through.
    """

    def __init__(self, actor: Any, key: str, is_up: Callable[[], bool] = ray.is_initialized) -> None:
        self.actor = actor
        self._key = key
        self._is_up = is_up
        self._incarnation: str | None = None
        self._number = 0
        self._open: dict[str, tuple[Mapping[str, AgentConfig], Baggage]] = {}
        self._given_up: dict[str, Exception] = {}
        self._mending: asyncio.Future[None] | None = None
        self._closed = False
        self._supervisor: int | None = None
        self._lost: Future[EngineLost] = Future()
        self._losing = threading.Lock()
        self._waiting: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}

    def opened(self, tree_id: str, agents: Mapping[str, AgentConfig], baggage: Baggage) -> None:
        """Note a tree that is to be taken up again after a restart."""
        self._open[tree_id] = (agents, baggage)
        self._given_up.pop(tree_id, None)

    def released(self, tree_id: str) -> None:
        """Note that a tree is not."""
        self._open.pop(tree_id, None)
        self._given_up.pop(tree_id, None)

    def holds(self, tree_id: str) -> bool:
        """Whether a tree is open."""
        return tree_id in self._open

    def closed(self) -> None:
        """Ask nothing more."""
        self._closed = True
        self._open.clear()
        self._know(None)

    @property
    def is_lost(self) -> bool:
        """Whether the Ray it goes through is gone."""
        return self._lost.done()

    def lose(self, lost: EngineLost) -> None:
        """Fail whoever waits, and whoever asks from now on: the Ray is gone. From any thread, once."""
        with self._losing:
            if self._lost.done():
                return
            self._lost.set_result(lost)
            waiting = dict(self._waiting)
        for scope, loop in waiting.items():
            with contextlib.suppress(RuntimeError):  # a loop that was closed has nobody who waits
                loop.call_soon_threadsafe(self._fail, scope)

    def _fail(self, scope: asyncio.Timeout) -> None:
        if scope in self._waiting:
            scope.reschedule(asyncio.get_running_loop().time())

    async def end(self) -> None:
        """Let the supervisor end its hosts and close its journal."""
        if self._is_up() and not self.is_lost:
            await self._unless_lost(self.actor.ask.remote(self._key, "close", packed(())))

    def tell(self, name: str, *given: Any) -> None:
        """Say something without waiting for an answer."""
        if not self._closed and not self.is_lost and self._is_up():
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
        again, deaths = False, 0
        while True:
            self._check()
            wanted = (*given, True) if again and name in AGAIN else given
            try:
                answer: RpcResponse = opened(await self._heard(name, self._asked(name, wanted, plain)))
                is_refused = isinstance(answer.error, SessionTreeError) and not self._closed
                if answer.incarnation == self._incarnation or not is_refused:
                    return self._taken(answer, given)
                await self._mend(answer.incarnation)
                deaths = 0
            except (ActorUnavailableError, ActorDiedError) as error:
                deaths = deaths + 1 if isinstance(error, ActorDiedError) else 0
                if deaths > MOST_DEATHS:
                    raise self._gone(name) from error
                await asyncio.sleep(RESTART_S)
            again = True

    def _asked(self, name: str, given: tuple[Any, ...], plain: bool) -> Any:
        data = packed(given)
        ask = self.actor.command if plain else self.actor.ask
        if name in IN_ORDER:
            # Calls of an actor may overtake each other; what a program says in order is heard in order.
            self._number += 1
            return ask.remote(self._key, name, data, (self._incarnation, self._number))
        return ask.remote(self._key, name, data)

    async def _heard(self, name: str, asked: Any) -> Any:
        try:
            return await self._unless_lost(asked)
        except asyncio.CancelledError:
            if name in WAITING and not self._closed and not self.is_lost and self._is_up():
                ray.cancel(asked)
            raise
        finally:
            del asked  # kept by a traceback beyond Ray's end, it would end the process

    async def _unless_lost(self, asked: Awaitable[Any]) -> Any:
        """Return what was asked.

        Raises:
            EngineLost: the Ray it was asked through is gone; whatever else it raises then, this is why.
        """
        scope = asyncio.timeout(None)
        try:
            async with scope:
                with self._losing:
                    self._waiting[scope] = asyncio.get_running_loop()
                try:
                    self._check_lost()
                    return await asked
                finally:
                    del asked, self._waiting[scope]
        except (TimeoutError, RayError):
            self._check_lost()
            raise

    def _taken(self, answer: RpcResponse, given: tuple[Any, ...]) -> Any:
        """Return an answer's value, or raise its error; a tree that could not be taken up again says why."""
        if isinstance(answer.error, TreeNotFound) and given and given[0] in self._given_up:
            raise self._given_up[given[0]]
        return answer.taken()

    def ask_now(self, name: str, *given: Any) -> Any:
        """Ask a plain question and wait for its answer, some milliseconds, without the loop.

        Raises:
            SessionTreeError: as the supervisor says, or that it does not answer now.
        """
        self._check()
        try:
            data = self._answer_now(self.actor.command.remote(self._key, name, packed(given)).future())
        except ActorDiedError as error:
            self._check()
            raise self._gone(name) from error
        except (ActorUnavailableError, TimeoutError) as error:
            self._check()
            raise SessionTreeError(
                f"asked the supervisor to {name}: it is starting again; try again"
            ) from error
        answer: RpcResponse = opened(data)
        if answer.incarnation != self._incarnation and isinstance(answer.error, SessionTreeError):
            raise SessionTreeError(f"asked the supervisor to {name}: it is starting again; try again")
        return self._taken(answer, given)

    def _answer_now(self, asked: Future[bytes]) -> bytes:
        """Return an answer, for as long as there is somebody to give it.

        Raises:
            TimeoutError: the supervisor's process is gone, or it did not answer in time.
            EngineLost: the Ray is gone.
        """
        for _ in range(round(ANSWER_S / LOOK_S)):
            either: tuple[Future[Any], ...] = (asked, self._lost)
            wait(either, LOOK_S, FIRST_COMPLETED)
            self._check_lost()
            if asked.done():
                return asked.result()
            if self._is_supervisor_dead():
                raise TimeoutError
        raise TimeoutError

    def _is_supervisor_dead(self) -> bool:
        if self._supervisor is None:
            return False
        poll = select.poll()
        poll.register(self._supervisor, select.POLLIN)
        return bool(poll.poll(0))

    def _know(self, pid: int | None) -> None:
        """Note the supervisor's process, where it is on this machine."""
        if self._supervisor is not None:
            os.close(self._supervisor)
            self._supervisor = None
        if pid is not None:
            with contextlib.suppress(OSError):
                self._supervisor = os.pidfd_open(pid)

    async def begin(self) -> None:
        """Open the supervisor.

        Raises:
            JournalError: its state directory can't be used.
        """
        opening = None
        while opening is None:
            try:
                opening = await self._told("open")
            except ActorUnavailableError:  # its start failed, and it is started again
                await asyncio.sleep(RESTART_S)
        self._know(opening.taken())
        self._note(opening.incarnation)

    async def _told(self, name: str, *given: Any) -> RpcResponse:
        """Return what one supervisor says to something, be it lost or not."""
        answer: RpcResponse = opened(
            await self._unless_lost(self.actor.ask.remote(self._key, name, packed(given)))
        )
        return answer

    def _note(self, incarnation: str) -> None:
        """Note whom the program asks from now on, and count anew what is said to it."""
        self._incarnation = incarnation
        self._number = 0

    def _check(self) -> None:
        """Raise why nothing more can be asked; a call to an actor would start another Ray then."""
        if self._closed:
            raise SessionClosed("main", "the runtime was closed in this process; resume the tree to go on")
        self._check_lost()
        if not self._is_up():
            raise SessionTreeError("Ray was shut down under the runtime; resume the tree to go on")

    def _check_lost(self) -> None:
        """Raise that the Ray is gone: an error of its own for everybody, which keeps nobody's traceback."""
        if self._lost.done():
            lost = self._lost.result()
            raise type(lost)(*lost.args)

    @staticmethod
    def _gone(name: str) -> SessionTreeError:
        return SessionTreeError(
            f"asked the supervisor to {name}: it has ended for good, as if somebody had killed it; close the "
            "runtime and resume the tree to go on"
        )

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
        opening = await self._told("open")
        pid = opening.taken()
        if opening.incarnation == self._incarnation:
            return  # who answered late is gone by now
        self._know(pid)
        for tree_id, (agents, baggage) in list(self._open.items()):
            resumed = await self._told("resume", tree_id, agents, baggage, True)
            if tree_id not in self._open:
                self.tell("release", tree_id)  # let go meanwhile
            if resumed.incarnation != opening.incarnation:
                return  # lost again meanwhile; whoever asks next notices
            if resumed.error is not None:
                # One tree that can't be read is no reason to give up the others.
                self._given_up[tree_id] = resumed.error
        # Only now: until every tree is there again, an answer that it is not there means nothing.
        self._note(opening.incarnation)
