"""The thread that runs the event loop of all sync trees, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import isawaitable
from typing import Any

from anyio.from_thread import start_blocking_portal

from sessiontree.contracts.errors import SessionTreeError

LAST_CALLS_S = 5.0
"""How long the loop's end waits for calls that still tidy up, such as one that was interrupted."""


class LoopThread:
    """A started event loop in a thread of its own."""

    def __init__(self) -> None:
        """Start thread and loop; both are there when this returns."""
        self._opened = start_blocking_portal(name="sessiontree-sync")
        self._portal = self._opened.__enter__()
        self._executor = ThreadPoolExecutor(thread_name_prefix="sessiontree-tool")
        self._calls: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop = self._portal.call(asyncio.get_running_loop)
        self.ident: int = self._portal.call(threading.get_ident)
        self._portal.call(self.loop.set_default_executor, self._executor)

    @property
    def is_running(self) -> bool:
        """Whether the loop takes calls; a tool that raised SystemExit in it has ended it."""
        return not self.loop.is_closed()

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Have a function called on the loop; what it returns is awaited there where it can be.

        Cancelling the future cancels the task, as asyncio does it: once, so that the task can tidy up.

        Raises:
            SessionTreeError: the loop has ended.
        """
        call = self._call(function, given, named)
        try:
            return asyncio.run_coroutine_threadsafe(call, self.loop)
        except RuntimeError as error:
            call.close()
            raise ended() from error

    async def _call(self, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine submitted to a loop is a task
        self._calls.add(task)
        try:
            value = function(*given, **named)
            return await value if isawaitable(value) else value
        finally:
            self._calls.discard(task)

    def stop(self) -> None:
        """End loop and thread, once the last calls have tidied up.

        A tool's thread that is stuck is left behind; only the end of the process ends it.
        """
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._portal.call(self._let_go)
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._opened.__exit__(None, None, None)

    async def _let_go(self) -> None:
        calls = {call for call in self._calls if not call.done()}
        if calls:
            await asyncio.wait(calls, timeout=LAST_CALLS_S)
        # The loop's end waits for all threads of its executor; this one has none.
        self.loop.set_default_executor(ThreadPoolExecutor(max_workers=1))

    def forget(self) -> None:
        """Let go of it in a forked child, where the thread is not.

        What the portal would do at the end, wait for its thread, could never succeed here.
        """
        with contextlib.suppress(StopIteration, RuntimeError):
            self._portal.stop().send(None)
        self._opened.__exit__(None, None, None)


def ended() -> SessionTreeError:
    """Return what a call gets whose loop is gone."""
    return SessionTreeError(
        "the event loop of the sync trees has ended: something that ran on it raised SystemExit or "
        "KeyboardInterrupt, or the interpreter ends; take the tree up with SessionTree.resume"
    )
