"""Several children at a time, one for each task: started, awaited, and cancelled if no longer awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextvars import copy_context
from operator import attrgetter
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from sessiontree.contracts.errors import (
    LimitExceeded,
    SessionClosed,
    SessionError,
    SessionFailed,
    SessionTreeError,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import R, ResultCause, SessionResult, explain_missing_value
from sessiontree.contracts.reports.fan_outs import ChildResults
from sessiontree.contracts.values.quick_dataclass import dataclass

OnChildError: TypeAlias = Literal["return", "raise", "first"]
"""What happens if one of several children fails; the option ``on_error`` says what each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult(SessionResult[R]):
    """How one of several children ended, and which one it was.

    Args:
        index: Number of its task, from 0.
        session_id: Path of the child; empty = it was not started.
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
    is_held_back: bool = False
    """Whether it was refused because the fan-out is over."""

    def started(self, starting: asyncio.Task[C]) -> None:
        """Await its result, or end the run if it could not be started."""
        self.children.starts.release()
        if starting.cancelled() or starting.exception() is not None:
            self.children.has_ended(self, starting)
            return
        self.child = starting.result()
        self.children.has_started = True
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
            cause=result.cause,
            index=self.index,
            session_id=self.child.session_id,
            label=self.label,
        )

    @property
    def path(self) -> str:
        """Path of the child; empty = it has not started."""
        return "" if self.child is None else self.child.session_id

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
        self,
        spawn: Spawn[C],
        awaiting: ResultAccess[C],
        at_a_time: int,
        on_error: OnChildError,
        ends_all: Collection[ResultCause],
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
        self._ends_all = ends_all
        self._runs: dict[int, ChildRun[C]] = {}
        """Those that have begun and not ended."""
        self._is_over = False
        self.has_started = False
        """Whether any child has started."""
        self.end = ""
        """Why no more children start; empty = they do."""
        self.is_spent = False
        """Whether that is a budget, or a provider that refuses for good."""
        self.closed: SessionClosed | None = None
        """The parent takes no more children."""

    async def start(self, labels: Sequence[str | None]) -> None:
        """Start a child for each label, as others end, until something ends the fan-out."""
        for index, label in enumerate(labels):
            await self._slots.acquire()
            await self.starts.acquire()
            if self.end:
                return
            run = self._runs[index] = ChildRun(self, index, label)
            run.step = asyncio.create_task(self._spawn(index, label))
            run.step.add_done_callback(run.started)

    def has_ended(self, run: ChildRun[C], ended: asyncio.Future[Any]) -> None:
        """Note how a run has ended; the next child starts, except after an error that ends them all."""
        run.step = None
        del self._runs[run.index]
        if not ended.cancelled() and ended.exception() is None:
            result: SessionResult[Any] = ended.result()
            if result.cause in self._ends_all:
                self.end = self.end or f"{run.path} ended so: {result.summary}"
                self.is_spent = True
            if self._on_error != "first" or result.status is SessionStatus.COMPLETED:
                self._slots.release()
        elif run.child is None and not ended.cancelled():
            self._was_refused(run, ended.exception())
        if not self._is_over:
            self.ended.put_nowait((run, ended))

    def _was_refused(self, run: ChildRun[C], error: BaseException | None) -> None:
        """Note that a child could not start. After the end of the fan-out this is not a failure.

        A used-up budget may refuse the next child, or close the parent, before a result says so.
        """
        is_no_budget = isinstance(error, LimitExceeded) and error.limit.startswith("budget.")
        if isinstance(error, SessionClosed):
            self.closed = self.closed or error
        elif is_no_budget and self.has_started:
            self.is_spent = True
        elif not (self.end and isinstance(error, SessionError)):
            return
        run.is_held_back = True
        self.end = self.end or str(error)
        self._slots.release()

    @property
    def is_at_end(self) -> bool:
        """Whether no child starts any more, and all that began were handed over."""
        return bool(self.end) and not self._runs and self.ended.empty()

    def under_way(self) -> Iterator[ChildResult[Any]]:
        """Yield a result for each child that is under way and is cancelled now."""
        for run in self._runs.values():
            words = "it was cancelled, because another child failed"
            yield ChildResult(
                SessionStatus.CANCELLED, words, index=run.index, session_id=run.path, label=run.label
            )

    async def take_back(self) -> None:
        """End the live children."""
        self._is_over = True
        ending = [asyncio.create_task(run.take_back()) for run in self._runs.values()]
        if ending:
            await asyncio.wait(ending)
        for task in ending:
            _ = task.cancelled() or task.exception()  # asyncio logs an exception that is never retrieved


async def run_children(
    spawn: Spawn[C],
    awaiting: ResultAccess[C],
    labels: list[str | None],
    at_a_time: int,
    on_error: OnChildError,
    ends_all: Collection[ResultCause],
) -> AsyncGenerator[ChildResult[Any], None]:
    """Run one child for each label, some at a time, and yield their results as they end.

    Children start even if results are not consumed. When the generator is closed, or raises, it first cancels
    the live children. A child that is awaited takes a future and few small objects, and no task.

    After a result with a cause of ``ends_all``, and after a budget refused a child, no more children start.
    Those under way end; then a result follows for each that was not started.

    Raises:
        SessionFailed: a child did not complete (``first``: at once; ``raise``: once all have ended, the
            first in the order of the tasks). It has the results of all children.
        SpawnRefused, LimitExceeded: a child was refused.
        SessionClosed: the parent ended, and no budget is why.
    """
    children = _Children(spawn, awaiting, at_a_time, on_error, ends_all)
    starting = asyncio.create_task(children.start(labels))
    seen = _FanOut(labels, keeps_results=on_error != "return")
    try:
        while len(seen.indexes) < len(labels) and not children.is_at_end:
            run, ended = await children.ended.get()
            if run.is_held_back:
                continue
            result = seen.take(run.result(ended))
            if on_error == "first" and result.outcome != "completed":
                raise seen.failure(children.under_way(), f"child {result.index + 1} failed first")
            yield result
        if children.closed is not None and not children.is_spent:
            raise children.closed
        for missing in seen.missing(children.end):
            yield seen.take(missing)
        if on_error != "return" and seen.has_failures:
            raise seen.failure()
    finally:
        starting.cancel()
        await children.take_back()


class _FanOut:
    """The results so far.

    Args:
        labels: One for each task.
        keeps_results: Whether an error needs them; else they are not kept, as there may be thousands.
    """

    def __init__(self, labels: Sequence[str | None], *, keeps_results: bool) -> None:
        self._labels = labels
        self._kept: list[ChildResult[Any]] | None = [] if keeps_results else None
        self.indexes: set[int] = set()
        self.has_failures = False

    def take(self, result: ChildResult[Any]) -> ChildResult[Any]:
        """Note a result, and return it."""
        self.indexes.add(result.index)
        self.has_failures = self.has_failures or result.outcome != "completed"
        if self._kept is not None:
            self._kept.append(result)
        return result

    def missing(self, why: str) -> Iterator[ChildResult[Any]]:
        """Yield a result for each child that was not started, in the order of the tasks."""
        words = f"it was not started, because the fan-out had ended: {why}"
        for index, label in enumerate(self._labels):
            if index not in self.indexes:
                yield ChildResult(
                    SessionStatus.CANCELLED,
                    words,
                    cause="not_started",
                    index=index,
                    session_id="",
                    label=label,
                )

    def failure(self, under_way: Iterable[ChildResult[Any]] = (), why: str = "") -> SessionFailed:
        """Return the error for the first failure in the order of the tasks, with all results."""
        kept = self._kept or []
        failed = min((each for each in kept if each.outcome != "completed"), key=attrgetter("index"))
        for result in under_way:
            self.take(result)
        for result in self.missing(why):
            self.take(result)
        results = ChildResults[Any](sorted(kept, key=attrgetter("index")))
        error = explain_missing_value(failed)
        reason = f"{error.reason} (of {len(results):,} children: {results.counts})"
        return SessionFailed(error.session_id, reason, error.cause, results=results)
