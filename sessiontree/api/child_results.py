"""Several children at a time, one for each task: started, awaited, and cancelled if no longer awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias, get_args

from sessiontree.contracts.errors import SessionFailed, SessionTreeError
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.results import R, SessionResult

OnError: TypeAlias = Literal["return", "raise", "first"]
ON_ERROR = get_args(OnError)


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


class Child(Protocol):
    """A child: the part of a handle that is used here."""

    session_id: str

    async def result(self) -> SessionResult[Any]:
        """Wait until it ends and return its result."""
        ...

    async def cancel(self, reason: str) -> object:
        """End it and everything below it."""
        ...


Spawn: TypeAlias = Callable[[int, str | None], Coroutine[Any, Any, Child]]
"""Starts the child of a task, given the task's number and a label."""


async def results_by_end(
    spawn: Spawn, labels: list[str | None], at_a_time: int, on_error: OnError
) -> AsyncGenerator[ChildResult[Any], None]:
    """Run one child for each label, some at a time, and yield their results as they end.

    Children start even if results are not consumed. When the generator is closed, or raises, it first cancels
    the live children.

    Raises:
        SessionFailed: a child did not complete (``first``: at once; ``raise``: once all have ended, the
            first in the order of the tasks).
        SpawnRefused, LimitExceeded: a child was refused.
    """
    slots = asyncio.Semaphore(at_a_time)
    ended: asyncio.Queue[asyncio.Task[ChildResult[Any]]] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_run(spawn, index, label, slots, on_error)) for index, label in enumerate(labels)
    ]
    for task in tasks:
        task.add_done_callback(ended.put_nowait)
    failures: list[ChildResult[Any]] = []
    try:
        for _ in tasks:
            result = (await ended.get()).result()
            if result.status is not SessionStatus.COMPLETED:
                failures.append(result)
            if on_error == "first":
                _raise_first(failures)
            yield result
        if on_error == "raise":
            _raise_first(sorted(failures, key=attrgetter("index")))
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            _ = task.cancelled() or task.exception()  # asyncio logs an exception that is never retrieved


async def _run(
    spawn: Spawn, index: int, label: str | None, slots: asyncio.Semaphore, on_error: OnError
) -> ChildResult[Any]:
    await slots.acquire()
    spawning = asyncio.create_task(spawn(index, label))
    try:
        child = await asyncio.shield(spawning)
        result = await child.result()
    except asyncio.CancelledError:
        # It may be live or still starting: its result is no longer needed.
        await asyncio.shield(_take_back(spawning))
        raise
    if on_error != "first" or result.status is SessionStatus.COMPLETED:
        slots.release()  # not after an error that ends them all: no other child starts then
    return ChildResult(
        result.status,
        result.summary,
        result.output,
        result.artifacts,
        result.memory_ids,
        result.usage,
        result.given_up,
        index=index,
        session_id=child.session_id,
        label=label,
    )


async def _take_back(spawning: asyncio.Task[Child]) -> None:
    with contextlib.suppress(SessionTreeError):  # it was refused, or the tree was closed in the meantime
        await (await spawning).cancel("its result is not waited for")


def _raise_first(failures: list[ChildResult[Any]]) -> None:
    for failed in failures:
        raise SessionFailed(failed.session_id, f"it ended {failed.status}: {failed.summary}")
