"""The reply to a message that a program sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, NoReturn

from sessiontree.api.runtime.backend import Backend
from sessiontree.contracts.errors import ConfigError, EngineLost, FailureReason, SessionClosed, SessionFailed
from sessiontree.contracts.reports.events import Done, Event, TextDelta, ToolExecutionStart
from sessiontree.contracts.tools.author_errors import find_cause
from sessiontree.runtime.transport.progress import ProgressBuffer
from sessiontree.runtime.transport.supervisor_api import Reply

SEPARATOR: Final = "\n\n"
"""The piece between the texts of two replies of the model."""


ON_LEFT: Final[list[Callable[[PendingReply], None]]] = []
"""Called on a reply's loop when a wait for it is cancelled; a notebook interrupts the turn if ■ did it."""


class PendingReply:
    """The pending reply to a message: await it for the text, or iterate over it for pieces of the text."""

    def __init__(
        self,
        task: asyncio.Task[Reply | SessionClosed | EngineLost],
        session: str,
        backend: Backend,
        tree_id: str,
    ) -> None:
        self._task = task
        self._session = session
        self._backend = backend
        self._tree_id = tree_id

    def __await__(self) -> Generator[Any, None, str]:
        """Return the final message; may be awaited again, also after a time-out.

        Raises:
            SessionFailed: the reply will not come; ``cause`` says why, such as ``interrupted``.
            SessionClosed: the session ended first.
            EngineLost: the Ray that the tree runs on is gone.
        """
        return self._wait().__await__()

    async def interrupt(self, reason: str) -> None:
        """Interrupt the turn of the session that writes the reply; nothing if the reply is there.

        Args:
            reason: What the journal and the session's transcript say.
        """
        if not self._task.done():
            await self._backend.supervisor.interrupt(self._tree_id, self._session, reason)

    def __iter__(self) -> NoReturn:
        """Raise an error that says to use ``async for``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "write `async for piece in session.send(…)`, or `text = await session.send(…)`; without await: "
            "sessiontree.sync, `for piece in session.stream(…)`"
        )

    async def _wait(self) -> str:
        try:
            reply = await asyncio.shield(self._task)
        except asyncio.CancelledError:
            for hear in ON_LEFT:
                hear(self)
            raise
        if isinstance(reply, SessionClosed | EngineLost):
            raise reply
        if reply.error is not None:
            raise _build_error(self._session, reply, reply.error) from find_cause(reply.error)
        return reply.text

    def __aiter__(self) -> AsyncIterator[str]:
        r"""Yield pieces of the replies' text as they arrive; ends with the final message.

        A piece ``"\n\n"`` separates the texts of two replies of the model: of the turns before and after a
        call, and of a reply that was cut short and the one that is asked for in its place. ``await`` gives
        the final message alone. Text from before this call is not repeated.
        """
        # Not at the first step of the iterator: the message may be sent, and answered, before it.
        return self._yield_pieces(self._backend.watch(self._tree_id, self._session))

    async def _yield_pieces(self, watching: ProgressBuffer) -> AsyncIterator[str]:
        def end(_: object) -> None:
            watching.end()

        self._task.add_done_callback(end)
        seams = _Seams()
        try:
            while (progress := await watching.wait_for_next()) is not None:
                for piece in seams.select_pieces(progress.event):
                    yield piece
            await watching.catch_up()
            for progress in watching.drain():
                for piece in seams.select_pieces(progress.event):
                    yield piece
        finally:
            self._task.remove_done_callback(end)
            watching.close()
        await self._wait()


class _Seams:
    """Separates the texts of replies that follow each other."""

    def __init__(self) -> None:
        self._is_open = False
        """Whether the reply that is written has text."""
        self._is_due = False
        """Whether a separator goes before the next text."""

    def select_pieces(self, event: Event) -> tuple[str, ...]:
        """Return what to yield for an event."""
        if isinstance(event, TextDelta) and event.delta:
            pieces = (SEPARATOR, event.delta) if self._is_due else (event.delta,)
            self._is_open, self._is_due = True, False
            return pieces
        # A call begins once its reply is whole: models of the program may leave out the end of a reply.
        if isinstance(event, Done | ToolExecutionStart) and self._is_open:
            self._is_open, self._is_due = False, True
        return ()


def _build_error(session: str, reply: Reply, error: str) -> SessionFailed:
    """Return the error for a reply that will not arrive."""
    if reply.interrupted:
        return SessionFailed(session, error, "interrupted")
    if reply.failure == "length":
        return SessionFailed(session, error, "truncated", reply.text)
    causes: dict[str, FailureReason] = {"refusal": "refused", "overflow": "too_long"}
    return SessionFailed(session, error, causes.get(reply.failure, "failed"))
