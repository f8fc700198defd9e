"""Running one hook so that nothing it does reaches further than its own failure.

Whatever it raises is caught where it runs; a plain function has a daemon thread of its own, so that one that
hangs keeps no other work and no process from ending. One that hung is not begun again without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sessiontree.contracts.errors import words_of
from sessiontree.contracts.hooks import Hook, HookContext, HookPoint, name_of, takes

MOST_HANGING = 4
"""So many runs of a hook at one point may hang; then it fails there at once until one comes back."""
MOST_WORDS = 300


@dataclass(frozen=True, slots=True)
class HookFault:
    """One failure of one hook."""

    hook: str
    point: HookPoint
    reason: str


class HookError(Exception):
    """A hook failed; says how."""


@dataclass(frozen=True, slots=True)
class _Made:
    value: object
    error: BaseException | None


class HookRun:
    """One hook at one point, in one session's host."""

    def __init__(self, hook: Hook, point: HookPoint) -> None:
        self._hook = hook
        self.point = point
        self.name = name_of(hook)
        self.guards = hook.on_error == "block"
        """Whether what it watches over stops when it fails."""
        self.hanging = 0
        """Runs that took too long and have not come back."""

    async def run(self, *given: object) -> object:
        """Return what the hook answers.

        Raises:
            HookError: it raised, took too long, or has hung too often. What it raised is told in its own
                words only before a call: afterwards they could hold what a result held.
        """
        if self.hanging >= MOST_HANGING:
            raise HookError(f"{self.hanging} earlier runs of it still hang")
        function: Callable[..., Any] = getattr(self._hook, self.point)
        given = tuple(replace(each) if isinstance(each, HookContext) else each for each in given)
        work: asyncio.Future[_Made]
        if inspect.iscoroutinefunction(function):
            work = asyncio.ensure_future(_awaited(function, given))
        else:
            work = _in_thread(function, given, self.name)
        try:
            done, _ = await asyncio.wait({work}, timeout=self._hook.timeout_s)
        except asyncio.CancelledError:
            self._leave(work)
            raise
        if not done:
            self._leave(work)
            raise HookError(f"it did not answer within {self._hook.timeout_s} s")
        made = work.result()
        if made.error is not None:
            raise HookError(_reason(made.error, tells=self.point == "before_tool_call"))
        return made.value

    def fault(self, error: HookError) -> HookFault:
        """Return a failure as a value."""
        return HookFault(self.name, self.point, str(error))

    def _leave(self, work: asyncio.Future[_Made]) -> None:
        """Leave a run behind; a coroutine is told to stop, a thread can't be."""
        if work.done():
            return
        self.hanging += 1
        work.add_done_callback(self._came_back)
        if isinstance(work, asyncio.Task):
            work.cancel()

    def _came_back(self, work: asyncio.Future[_Made]) -> None:
        self.hanging -= 1


def runs_at(hooks: Iterable[Hook], point: HookPoint) -> list[HookRun]:
    """Return the hooks that take part in a point, in order."""
    return [HookRun(hook, point) for hook in hooks if takes(hook, point)]


async def look_all(runs: Iterable[HookRun], given: Callable[[], tuple[object, ...]]) -> tuple[HookFault, ...]:
    """Show something to hooks that may only look; all at once, as nothing depends on them.

    Args:
        runs: The hooks.
        given: Makes what each of them is shown, a copy of its own.
    """
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(_look(run, given())) for run in runs]
    faults = [look.result() for look in looks]
    return tuple(fault for fault in faults if fault is not None)


async def _look(run: HookRun, given: tuple[object, ...]) -> HookFault | None:
    try:
        answer = await run.run(*given)
        if answer is not None:
            raise HookError(f"it returned {type(answer).__name__}; it may only look")
    except HookError as error:
        return run.fault(error)
    return None


def _reason(error: BaseException, *, tells: bool) -> str:
    name = type(error).__name__[:MOST_WORDS]
    if not tells:
        return f"it raised {name}"
    try:
        return f"it raised {words_of(error)[:MOST_WORDS]}"
    except BaseException:  # noqa: BLE001 - an exception's text is its author's code, too
        return f"it raised {name}"


async def _awaited(function: Callable[..., Any], given: tuple[object, ...]) -> _Made:
    try:
        return _Made(await function(*given), None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a hook may raise anything, SystemExit too
        return _Made(None, error)


def _in_thread(function: Callable[..., Any], given: tuple[object, ...], name: str) -> asyncio.Future[_Made]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Made] = loop.create_future()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            made = _Made(context.run(function, *given), None)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything; its thread ends with it
            made = _Made(None, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, made)

    threading.Thread(target=call, name=f"hook {name}", daemon=True).start()
    return future


def _settle(future: asyncio.Future[_Made], made: _Made) -> None:
    if not future.done():
        future.set_result(made)
