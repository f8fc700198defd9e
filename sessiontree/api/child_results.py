"""Several children at a time, one for each task: started, awaited, and cancelled if no longer awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.results import R, SessionResult, explain_missing_value

OnChildError: TypeAlias = Literal["return", "raise", "first"]
"""What happens if one of several children fails; the option ``on_error`` says what each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult(SessionResult[R]):
    """How one of several children ended, and which one it was.

    Args:
        index: Number of its task, from 0.
        session_id: Path of the child.
        label: Its name among its siblings; None = it has none.
    """

    index: int
    session_id: str
    label: str | None


STARTS_AT_ONCE: Final = 128
"""How many children may be starting at a time: a start takes ten times the memory of an awaited child."""


class Child(Protocol):
    """A child: the part of a handle that is used here."""

    session_id: str

    async def cancel(self, reason: str) -> object:
        """End it and everything below it."""
        ...


C = TypeVar("C", bound=Child)
Spawn: TypeAlias = Callable[[int, str | None], Coroutine[Any, Any, C]]
"""Starts the child of a task, given the task's number and a label."""


@dataclass(frozen=True, slots=True)
class ResultAccess(Generic[C]):
    """How the result of a child is awaited: as a future, since thousands of children may be awaited."""

    awaited: Callable[[C], asyncio.Future[SessionResult[Any]]]
    """Returns the result."""
    typed: Callable[[C, SessionResult[Any]], SessionResult[Any]]
    """Returns a result whose output has the requested type."""


@dataclass(slots=True, eq=False)
class ChildRun(Generic[C]):
    """One child from its start to its result."""

    children: _Children[C]
    index: int
    label: str | None
    step: asyncio.Task[C] | asyncio.Future[SessionResult[Any]] | None = None
    """What it waits for now: its start, then its result; None = it has ended."""
    child: C | None = None
    """None = it has not started."""

    def started(self, starting: asyncio.Task[C]) -> None:
        """Await its result, or end the run if it could not be started."""
        self.children.starts.release()
        if starting.cancelled() or starting.exception() is not None:
            self.children.has_ended(self, starting)
            return
        self.child = starting.result()
        try:
            awaited = self.children.awaiting.awaited(self.child)
        except Exception as error:  # noqa: BLE001 - whoever takes the results gets the error
            awaited = asyncio.get_running_loop().create_future()
            awaited.set_exception(error)
        self.step = awaited
        awaited.add_done_callback(self.ended, context=self.children.context)

    def ended(self, awaited: asyncio.Future[SessionResult[Any]]) -> None:
        """Hand the result over."""
        self.children.has_ended(self, awaited)

    def result(self, ended: asyncio.Future[Any]) -> ChildResult[Any]:
        """Return its result, or raise the error that it ended with."""
        result = ended.result()
        assert self.child is not None  # noqa: S101 - else the line above has raised
        result = self.children.awaiting.typed(self.child, result)
        return ChildResult(
            result.status,
            result.summary,
            result.output,
            result.artifacts,
            result.memory_ids,
            result.usage,
            result.given_up,
            index=self.index,
            session_id=self.child.session_id,
            label=self.label,
        )

    async def take_back(self) -> None:
        """End the child unless it has already ended: nobody needs its result any more."""
        step, child = self.step, self.child
        if step is None:
            return
        with contextlib.suppress(SessionTreeError):  # it was refused, or the tree was closed in the meantime
            if child is None:
                child = await cast("asyncio.Task[C]", step)
            if self.step is not None:
                self.step.cancel()
            await child.cancel("its result is not waited for")


class _Children(Generic[C]):
    """Children that run, some at a time."""

    def __init__(
        self, spawn: Spawn[C], awaiting: ResultAccess[C], at_a_time: int, on_error: OnChildError
    ) -> None:
        self.awaiting = awaiting
        self.ended: asyncio.Queue[tuple[ChildRun[C], asyncio.Future[Any]]] = asyncio.Queue()
        """Runs that have ended, and what they ended with."""
        self.context = copy_context()
        """Of all callbacks; each would copy its own."""
        self.starts = asyncio.Semaphore(STARTS_AT_ONCE)
        self._spawn = spawn
        self._slots = asyncio.Semaphore(at_a_time)
        self._on_error = on_error
        self._runs: dict[int, ChildRun[C]] = {}
        """Those that have begun and not ended."""
        self._is_over = False

    async def start(self, labels: Sequence[str | None]) -> None:
        """Start a child for each label, as others end."""
        for index, label in enumerate(labels):
            await self._slots.acquire()
            await self.starts.acquire()
            run = self._runs[index] = ChildRun(self, index, label)
            run.step = asyncio.create_task(self._spawn(index, label))
            run.step.add_done_callback(run.started)

    def has_ended(self, run: ChildRun[C], ended: asyncio.Future[Any]) -> None:
        """Note how a run has ended; the next child starts, except after an error that ends them all."""
        run.step = None
        del self._runs[run.index]
        is_result = not ended.cancelled() and ended.exception() is None
        if is_result and (self._on_error != "first" or ended.result().status is SessionStatus.COMPLETED):
            self._slots.release()
        if not self._is_over:
            self.ended.put_nowait((run, ended))

    async def take_back(self) -> None:
        """End the live children."""
        self._is_over = True
        ending = [asyncio.create_task(run.take_back()) for run in self._runs.values()]
        if ending:
            await asyncio.wait(ending)
        for task in ending:
            _ = task.cancelled() or task.exception()  # asyncio logs an exception that is never retrieved


async def results_by_end(
    spawn: Spawn[C],
    awaiting: ResultAccess[C],
    labels: list[str | None],
    at_a_time: int,
    on_error: OnChildError,
) -> AsyncGenerator[ChildResult[Any], None]:
    """Run one child for each label, some at a time, and yield their results as they end.

    Children start even if results are not consumed. When the generator is closed, or raises, it first cancels
    the live children. A child that is awaited takes a future and few small objects, and no task.

    Raises:
        SessionFailed: a child did not complete (``first``: at once; ``raise``: once all have ended, the
            first in the order of the tasks).
        SpawnRefused, LimitExceeded: a child was refused.
    """
    children = _Children(spawn, awaiting, at_a_time, on_error)
    starting = asyncio.create_task(children.start(labels))
    failures: list[ChildResult[Any]] = []
    try:
        for _ in labels:
            run, ended = await children.ended.get()
            result = run.result(ended)
            if result.status is not SessionStatus.COMPLETED:
                failures.append(result)
            if on_error == "first":
                _raise_first(failures)
            yield result
        if on_error == "raise":
            _raise_first(sorted(failures, key=attrgetter("index")))
    finally:
        starting.cancel()
        await children.take_back()


def _raise_first(failures: list[ChildResult[Any]]) -> None:
    for failed in failures:
        raise explain_missing_value(failed)
