"""The creating program's client of its supervisor, which survives restarts of the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError

from sessiontree.backends.ray.client.awaited_results import AwaitedResults
from sessiontree.backends.ray.client.local_line import LineLost, LocalLine, Methods, connect_line
from sessiontree.backends.ray.client.pending_calls import PendingCalls
from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.contracts.errors import (
    EngineLost,
    SessionClosed,
    SessionTreeError,
    SupervisorUnavailable,
    TreeNotFound,
)
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.runtime.supervisor.process.supervisor_control import SupervisorControl
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.progress import Progress, ProgressBuffer, ProgressHub
from sessiontree.runtime.transport.rpc import RpcMethod, RpcResponse, finished, get_method, make_proxy
from sessiontree.runtime.transport.supervisor_api import SupervisorApi

T = TypeVar("T")
ANSWER_S = 30.0
"""How long a blocking question may take while the supervisor lives."""
LOOK_S = 0.1
"""How often a blocking question checks that the supervisor lives."""
RESTART_S = 0.2
"""The pause before a question is repeated."""
MAX_DEATHS = 25
"""How often in a row Ray may report the supervisor as dead for good before that counts."""


class SupervisorClient:
    """Asks one supervisor. After a restart of the supervisor it resumes open trees and repeats its questions.

    Questions go over a line if the supervisor can be reached over one on the event loop that opened it. A
    waiting call of an actor holds more than 80 KiB in the two processes, most of it for the stack that Ray
    gives the call. Control calls, questions that are repeated, and all others are calls of the actor.

    Args:
        actor: The supervisor's actor.
        key: The program's key.
        is_up: Whether this process is connected to a Ray.
        lines: Where the supervisor accepts lines; None = it accepts none.
    """

    def __init__(
        self,
        actor: Any,
        key: str,
        is_up: Callable[[], bool] = ray.is_initialized,
        lines: Path | None = None,
    ) -> None:
        self.actor = actor
        self._key = key
        self._lines = lines
        self.pid: int | None = None
        """The supervisor's process."""
        self._is_up = is_up
        self._incarnation: str | None = None
        self._number = 0
        self._line: LocalLine | None = None
        self._line_loop: asyncio.AbstractEventLoop | None = None
        self._results: AwaitedResults | None = None
        """The results that are awaited over the line."""
        self._holding: asyncio.Task[None] | None = None
        self._open: dict[str, tuple[Mapping[str, AgentConfig], PackedResources]] = {}
        self._given_up: dict[str, Exception] = {}
        self._mending: asyncio.Future[None] | None = None
        self._closed = False
        self._supervisor: int | None = None
        self._calls = PendingCalls()
        self.supervisor: SupervisorApi = make_proxy(SupervisorApi, self)
        """The API of the supervisor, for open trees."""
        self._blocking: SupervisorApi = make_proxy(SupervisorApi, _BlockingPort(self))
        self.control: SupervisorControl = make_proxy(SupervisorControl, self)
        """Opens and releases trees, and watches them."""

    def opened(self, tree_id: str, agents: Mapping[str, AgentConfig], resources: PackedResources) -> None:
        """Add a tree that is resumed after a restart of the supervisor."""
        self._open[tree_id] = (agents, resources)
        self._given_up.pop(tree_id, None)

    def released(self, tree_id: str) -> None:
        """Remove a tree that was released."""
        self._open.pop(tree_id, None)
        self._given_up.pop(tree_id, None)

    def holds(self, tree_id: str) -> bool:
        """Whether a tree is open."""
        return tree_id in self._open

    def closed(self) -> None:
        """Refuse all further questions."""
        self._closed = True
        self._open.clear()
        self._know(None)
        self._close_line()

    @property
    def is_lost(self) -> bool:
        """Whether the Ray is gone."""
        return self._calls.is_lost

    def lose(self, lost: EngineLost) -> None:
        """Fail all questions, those that wait and those to come, because the Ray is gone. From any thread."""
        self._calls.lose(lost)

    async def end(self) -> None:
        """Let the supervisor end its hosts and close its journal."""
        if self._is_up() and not self.is_lost:
            await self._calls.await_unless_lost(self.actor.ask.remote(self._key, "close", dump_value(())))

    def tell(self, question: Callable[..., Any], *given: Any) -> None:
        """Call a method, such as ``SupervisorControl.unwatch``, without waiting for the answer."""
        if not self._closed and not self.is_lost and self._is_up():
            self.actor.command.remote(self._key, get_method(question).name, dump_value(given))

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Ask the supervisor; repeat the question each time the supervisor is lost meanwhile.

        Raises:
            SessionTreeError: the supervisor refuses, or this runtime was closed.
        """
        again, deaths = False, 0
        while True:
            self._check()
            wanted = method.repeated(given) if again else given
            try:
                line = None if again else self._choose_line(method)
                answer = await (
                    self._call(method, wanted) if line is None else self._ask_on_line(line, method, wanted)
                )
                is_refused = isinstance(answer.error, SessionTreeError) and not self._closed
                if answer.incarnation == self._incarnation or not is_refused:
                    return self._taken(answer, given)
                await self._mend(answer.incarnation)
                deaths = 0
            except (ActorUnavailableError, ActorDiedError, LineLost) as error:
                deaths = deaths + 1 if isinstance(error, ActorDiedError) else 0
                if deaths > MAX_DEATHS:
                    raise self._build_gone_error(method.name) from error
                await asyncio.sleep(RESTART_S)
            again = True

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future; errors as :meth:`SupervisorApi.result`."""
        results, loop = self._results, asyncio.get_running_loop()
        if results is not None and not self._closed and not self.is_lost and self._line_loop is loop:
            result = results.wait(tree_id, session)
            if result is not None:
                return result
        return asyncio.ensure_future(self.supervisor.result(tree_id, session))

    def _unpack_result(self, tree_id: str, answer: RpcResponse) -> SessionResult[Any]:
        """Return the result in an answer that was pushed, or raise its error.

        Raises:
            LineLost: it is an error of another supervisor than the trees are open in; ask again.
        """
        if answer.error is not None and answer.incarnation != self._incarnation:
            raise LineLost("the supervisor was restarted")
        result: SessionResult[Any] = self._taken(answer, (tree_id,))
        return result

    def _choose_line(self, method: RpcMethod) -> LocalLine | None:
        """Return the line over which a question goes; None = it is a call of the actor."""
        line = self._line
        if line is None or not line.is_open or method.urgent:
            return None
        return line if self._line_loop is asyncio.get_running_loop() else None

    def _turn(self, method: RpcMethod) -> tuple[str, int] | None:
        """Return the place of a question among those whose order matters; None = it does not matter."""
        if not method.in_order or self._incarnation is None:
            return None
        # Questions may overtake each other; the number lets the supervisor restore the order.
        self._number += 1
        return self._incarnation, self._number

    async def _ask_on_line(self, line: LocalLine, method: RpcMethod, given: tuple[Any, ...]) -> RpcResponse:
        ask = line.wait_for if method.waits else line.ask
        answer: RpcResponse = await self._calls.await_unless_lost(
            ask("ask", self._key, method.name, given, self._turn(method))
        )
        return answer

    async def _call(self, method: RpcMethod, given: tuple[Any, ...]) -> RpcResponse:
        ask = self.actor.command if method.urgent else self.actor.ask
        turn = self._turn(method)
        asked = ask.remote(self._key, method.name, dump_value(given), *(() if turn is None else (turn,)))
        try:
            answer: RpcResponse = load_value(await self._calls.await_unless_lost(asked))
            return answer
        except asyncio.CancelledError:
            if method.waits and not self._closed and not self.is_lost and self._is_up():
                ray.cancel(asked)
            raise
        finally:
            del asked  # a traceback would keep it beyond Ray's end, and it would then end the process

    def _taken(self, answer: RpcResponse, given: tuple[Any, ...]) -> Any:
        """Return an answer's value, or raise its error; for a tree that was not resumed, the reason."""
        if isinstance(answer.error, TreeNotFound) and given and given[0] in self._given_up:
            raise self._given_up[given[0]]
        return answer.taken()

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask a question that needs no waiting; this blocks for about a millisecond.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses.
        """
        return finished(question(self._blocking))

    def call_now(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a method, such as ``SupervisorControl.release``; this blocks for some milliseconds.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses.
        """
        name = get_method(function).name
        self._check()
        try:
            data = self._answer_now(self.actor.command.remote(self._key, name, dump_value(given)).future())
        except ActorDiedError as error:
            self._check()
            raise self._build_gone_error(name) from error
        except (ActorUnavailableError, TimeoutError) as error:
            self._check()
            raise _build_restart_error(name) from error
        answer: RpcResponse = load_value(data)
        if answer.incarnation != self._incarnation and isinstance(answer.error, SessionTreeError):
            raise _build_restart_error(name)
        return self._taken(answer, given)

    async def let_go(self, tree_id: str) -> None:
        """Have the supervisor let a tree go, now that :meth:`released` was called.

        Over the line the event loop goes on meanwhile; without it, this blocks for some milliseconds.

        Raises:
            SupervisorUnavailable: the supervisor does not answer now.
            SessionTreeError: it refuses.
        """
        release = get_method(SupervisorControl.release)
        self._check()
        line = self._choose_line(release)
        if line is None:
            self.call_now(SupervisorControl.release, tree_id)
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                self._taken(await self._ask_on_line(line, release, (tree_id,)), (tree_id,))
        except (LineLost, TimeoutError) as error:
            raise _build_restart_error(release.name) from error

    def _answer_now(self, asked: Future[bytes]) -> bytes:
        """Return the answer, while the supervisor's process lives.

        Raises:
            TimeoutError: the supervisor's process is gone, or did not answer in time.
            EngineLost: the Ray is gone.
        """
        for _ in range(round(ANSWER_S / LOOK_S)):
            if self._calls.wait(asked, LOOK_S):
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
        """Keep a descriptor of the supervisor's process, if it is on this machine."""
        if self._supervisor is not None:
            os.close(self._supervisor)
            self._supervisor = None
        self.pid = pid
        if pid is not None:
            with contextlib.suppress(OSError):
                self._supervisor = os.pidfd_open(pid)

    async def begin(self) -> None:
        """Open the supervisor.

        Raises:
            JournalError: the state directory cannot be used.
        """
        opening = None
        while opening is None:
            try:
                opening = await self._ask_once("open")
            except ActorUnavailableError:  # the start failed, and Ray repeats it
                await asyncio.sleep(RESTART_S)
        self._know(opening.taken())
        await self._open_line()
        self._note(opening.incarnation)

    async def follow(self, name: str, take: Callable[[tuple[Progress, ...], int], None]) -> None:
        """Take in what a watch holds, as it happens, over a line of this event loop.

        Raises:
            LineLost: the supervisor can't be reached over a socket, or not any more.
            SessionTreeError: the watch is over.
        """
        line = await self._ensure_line({"progress": take})
        if line is None:
            raise LineLost("the supervisor can't be reached over a socket")
        try:
            refusal: RpcResponse = await self._calls.await_unless_lost(line.ask("follow", self._key, name))
            refusal.taken()
        finally:
            line.close()

    async def _ensure_line(self, methods: Methods) -> LocalLine | None:
        """Return a line of this event loop; None = the supervisor can't be reached over a socket."""
        if self._lines is None or self.pid is None:
            return None
        return await connect_line(self._lines, self.pid, methods)

    async def _open_line(self) -> None:
        """Open the line for questions from this event loop, if the supervisor can be reached over one."""
        self._close_line()
        results = AwaitedResults(
            self._key, self._unpack_result, self.supervisor.result, self._calls.await_unless_lost
        )
        line = await self._ensure_line({"results": results.take})
        if line is not None and self._closed:
            line.close()
        elif line is not None:
            results.use(line)
            self._results = results
            self._line, self._line_loop = line, asyncio.get_running_loop()
            self._holding = asyncio.create_task(_hold(line), name="line-to-supervisor")

    def _close_line(self) -> None:
        holding, loop, self._line, self._line_loop = self._holding, self._line_loop, None, None
        self._results = None
        if holding is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # the line was closed before its loop
                loop.call_soon_threadsafe(holding.cancel)

    async def _ask_once(self, name: str, *given: Any) -> RpcResponse:
        """Ask the supervisor once, without a repetition if it is lost."""
        answer: RpcResponse = load_value(
            await self._calls.await_unless_lost(self.actor.ask.remote(self._key, name, dump_value(given)))
        )
        return answer

    def _note(self, incarnation: str) -> None:
        """Begin with a new incarnation of the supervisor, and number its calls from 1."""
        self._incarnation = incarnation
        self._number = 0

    def _check(self) -> None:
        """Raise if no question is possible; a call to an actor would start another Ray then."""
        if self._closed:
            raise SessionClosed("main", "the runtime was closed in this process; resume the tree to go on")
        self._calls.check()
        if not self._is_up():
            raise SessionTreeError("Ray was shut down under the runtime; resume the tree to go on")

    @staticmethod
    def _build_gone_error(name: str) -> SessionTreeError:
        return SessionTreeError(
            f"asked the supervisor to {name}: its process ended, and Ray did not restart it; close the "
            "runtime and resume the tree"
        )

    async def _mend(self, incarnation: str) -> None:
        """Open a restarted supervisor, once for all callers that notice the restart."""
        if self._mending is None:
            self._mending = asyncio.ensure_future(self._open_again(incarnation))
            self._mending.add_done_callback(self._on_mended)
        await asyncio.shield(self._mending)

    def _on_mended(self, mending: asyncio.Future[None]) -> None:
        self._mending = None

    async def _open_again(self, incarnation: str) -> None:
        if incarnation == self._incarnation or self._closed:
            return
        opening = await self._ask_once("open")
        pid = opening.taken()
        if opening.incarnation == self._incarnation:
            return  # the late answer came from an earlier incarnation
        self._know(pid)
        await self._open_line()
        for tree_id, (agents, resources) in list(self._open.items()):
            resumed = await self._ask_once("resume", tree_id, agents, resources, True)
            if tree_id not in self._open:
                self.tell(SupervisorControl.release, tree_id)  # it was released meanwhile
            if resumed.incarnation != opening.incarnation:
                return  # the supervisor was lost again; the next question notices
            if resumed.error is not None:
                # The other trees are resumed although this one cannot be read.
                self._given_up[tree_id] = resumed.error
        # Only now: until every tree is resumed, an answer that a tree is not open has no meaning.
        self._note(opening.incarnation)


def _build_restart_error(name: str) -> SupervisorUnavailable:
    return SupervisorUnavailable(f"the supervisor to {name}", "it is being restarted")


async def _hold(line: LocalLine) -> None:
    """Close a line when this task is cancelled, at the latest with its event loop."""
    try:
        await asyncio.Event().wait()
    finally:
        line.close()


class _BlockingPort:
    """Asks without an event loop: the calling thread waits."""

    def __init__(self, client: SupervisorClient) -> None:
        self._client = client

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Return the answer; the calling thread blocks until it is there."""
        return self._client.call_now(method.function, *given)


class ProgressLine(Protocol):
    """A way to the supervisor that reports progress."""

    control: SupervisorControl
    pid: int | None
    """The supervisor's process; None = it is not known, or on another node."""

    def call_now(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a method and block until the answer is there."""
        ...

    def tell(self, question: Callable[..., Any], *given: Any) -> None:
        """Call a method without waiting for the answer."""
        ...

    async def follow(self, name: str, take: Callable[[tuple[Progress, ...], int], None]) -> None:
        """Take in what a watch holds, as it happens.

        Raises:
            LineLost: progress does not come that way; ask for it by :meth:`SupervisorControl.progress`.
        """
        ...


PULL_S = 20.0
AGAIN_S = 0.2
CATCH_UP_S = 5.0
"""The longest wait for events on their way, once no further events will happen."""


class _Hub(ProgressHub):
    """The hub of one reader, which cancels the reader's pull when the reader is closed."""

    pull: asyncio.Task[None] | None = None

    def __init__(self, line: ProgressLine, name: str) -> None:
        super().__init__()
        self._line = line
        self.name = name
        """The supervisor's name for the watch."""
        self._taken = self._dropped = 0
        self._news = asyncio.Event()

    def restart(self, name: str) -> None:
        """Begin again with a new watch."""
        self.name, self._taken, self._dropped = name, 0, 0

    def take(self, reader: ProgressBuffer, events: tuple[Progress, ...], dropped: int) -> None:
        """Hand events of the watch to its reader; ``dropped`` is the number of those dropped so far."""
        reader.dropped += dropped - self._dropped
        self._dropped = dropped
        for event in events:
            reader.offer(event)
        self._taken += len(events)
        self._news.set()

    async def catch_up(self, reader: ProgressBuffer) -> None:
        """Wait up to ``CATCH_UP_S`` until everything that the supervisor has offered was reported."""
        with suppress(TimeoutError, SessionTreeError):
            async with asyncio.timeout(CATCH_UP_S):
                name, offered = self.name, await self._line.control.offered(self.name)
                while self._taken + self._dropped < offered and name == self.name:
                    self._news.clear()
                    await self._news.wait()

    def forget(self, reader: ProgressBuffer) -> None:
        """Drop the reader."""
        super().forget(reader)
        if self.pull is not None:
            self.pull.cancel()


class Watches:
    """Pulls progress events from the supervisor, with one task for each open reader."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line
        self._pulls: set[asyncio.Task[None]] = set()

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a new reader of the events from now on."""
        name: str = self._line.call_now(SupervisorControl.watch, tree_id, session)
        hub = _Hub(self._line, name)
        reader = hub.watch(tree_id, session)
        pull = hub.pull = asyncio.create_task(self._pull(hub, reader))
        self._pulls.add(pull)
        pull.add_done_callback(self._pulls.discard)
        return reader

    async def close(self) -> None:
        """Stop every pull."""
        pulls = list(self._pulls)
        for pull in pulls:
            pull.cancel()
        if pulls:
            await asyncio.wait(pulls)

    async def _pull(self, hub: _Hub, reader: ProgressBuffer) -> None:
        take = partial(hub.take, reader)
        without_line: int | None = 0  # id of a supervisor that can't be followed
        try:
            while True:
                pid = self._line.pid
                try:
                    if without_line != pid:
                        with suppress(LineLost):
                            await self._line.follow(hub.name, take)
                        without_line = pid
                    take(*await self._line.control.progress(hub.name, PULL_S))
                except SessionTreeError:
                    hub.restart(await self._watch_again(reader))
        except EngineLost as lost:
            reader.fail(lost)
        except SessionTreeError:
            return  # the tree or the runtime was closed
        finally:
            self._line.tell(SupervisorControl.unwatch, hub.name)

    async def _watch_again(self, reader: ProgressBuffer) -> str:
        """Watch again after a restart of the supervisor."""
        await asyncio.sleep(AGAIN_S)
        return await self._line.control.watch(reader.tree_id, reader.session)
