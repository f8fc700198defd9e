"""A runtime as programs reach it: a backend with its supervisor, and a tree's facts as they arrive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

    from sessiontree.contracts.facts.tree_config import TreeConfig
    from sessiontree.contracts.recorded.results import SessionResult
    from sessiontree.journal.record import JournalRecord
    from sessiontree.runtime.supervisor.tree_resources import TreeResources
    from sessiontree.runtime.transport.progress import ProgressBuffer
    from sessiontree.runtime.transport.supervisor_api import SupervisorApi

T = TypeVar("T")


class Backend(Protocol):
    """Runs trees over one state directory. It raises the tree's typed errors."""

    @property
    def supervisor(self) -> SupervisorApi:
        """The supervisor, which answers questions about open trees."""
        ...

    def ask_now(self, question: Callable[[SupervisorApi], Coroutine[Any, Any, T]]) -> T:
        """Ask a question that needs no waiting, and return its answer without an event loop.

        If the supervisor is another process, this blocks for about a millisecond.

        Args:
            question: Function that asks, such as ``lambda supervisor: supervisor.report(tree_id, session)``.
        """
        ...

    def request_result(self, tree_id: str, session: str) -> asyncio.Future[SessionResult[Any]]:
        """Return a session's result as a future, which holds less than a call of the supervisor that waits.

        Errors are those of :meth:`SupervisorApi.result`. A future that is cancelled is awaited no more.
        """
        ...

    def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open in this runtime."""
        ...

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration."""
        ...

    async def create(self, config: TreeConfig, setup: TreeResources) -> None:
        """Create a tree; durable when this returns."""
        ...

    async def resume(self, tree_id: str, setup: TreeResources) -> None:
        """Resume a tree from the journal."""
        ...

    async def release(self, tree_id: str) -> None:
        """Release a tree; it stays in the journal."""
        ...

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Return a reader of progress."""
        ...

    async def close(self) -> None:
        """End hosts and supervisor and release the journal."""
        ...


READ_AT_ONCE = 512
READ_WAIT_S = 20.0
"""Seconds that a reader waits for the first fact before it asks again."""


async def follow_facts(supervisor: SupervisorApi, tree_id: str, after: int) -> AsyncGenerator[JournalRecord]:
    """Yield facts after a number in order, then wait for more; ends when Main has ended."""
    over = await supervisor.is_over(tree_id)
    while True:
        if over:
            await supervisor.result(tree_id, "main")  # its last facts are durable then
        records = await supervisor.read(tree_id, after, READ_AT_ONCE, 0.0 if over else READ_WAIT_S)
        for record in records:
            after = record.seq
            over = over or record.ends("main")
            yield record
        if over and not records:
            return
