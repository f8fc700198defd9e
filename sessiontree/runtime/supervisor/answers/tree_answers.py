"""Whole trees: forks, timed jobs, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import OutsideHookFailed
from sessiontree.contracts.recorded.cron import JobAction, JobChange, JobRow
from sessiontree.journal.replay import read_config
from sessiontree.runtime.replay.tree_fork import Identity
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.supervisor.timed_jobs import change_job
from sessiontree.runtime.transport.supervisor_api import TreeApi
from sessiontree.tree.report import ReceiptLine, build_receipt
from sessiontree.tree.state import protocol as tree_stimuli


class TreeAnswers(TreeApi):
    """Answers questions about trees."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def fork(
        self, tree_id: str, at: int | None, new_tree_id: str, nonce: str, replaced: Mapping[str, str]
    ) -> None:
        """Write a new tree that shares the first facts of another one; durable when this returns."""
        new = Identity(new_tree_id, nonce, self._supervisor.clock.now_ms())
        await self._supervisor.fork(tree_id, at, new, replaced)

    async def read_config(self, tree_id: str) -> TreeConfig:
        """Return a journaled tree's configuration.

        Raises:
            TreeNotFound: the journal has none of that id.
        """
        return read_config(self._supervisor.journal.row0(tree_id))

    async def change_job(self, tree_id: str, job_id: str, action: JobAction, key: str) -> JobRow:
        """Change a timed job of a tree with the owner's rights; durable when this returns."""
        return await change_job(self._supervisor.tree(tree_id), JobChange(action, job_id), key)

    async def hook_failed(self, tree_id: str, session: str, hook: str, point: str, reason: str) -> None:
        """Record that a hook failed in the creating program; durable when this returns."""
        controller = self._supervisor.tree(tree_id)
        failed = tree_stimuli.HookFailedOutside(
            controller.now_ms(), OutsideHookFailed(session, hook, point, reason)
        )
        await controller.settle(failed, f"hook:{session}")

    async def receipt(self, tree_id: str) -> tuple[ReceiptLine, ...]:
        """Return every session of a tree with its state."""
        return build_receipt(self._supervisor.tree(tree_id).state, "main")

    async def measure_waited_s(self, tree_id: str) -> float:
        """Return how long a tree did nothing but wait for hosts, rate limiters and retries, in seconds."""
        return self._supervisor.tree(tree_id).waits.measure_waited_s()

    async def is_over(self, tree_id: str) -> bool:
        """Whether Main has ended."""
        return self._supervisor.tree(tree_id).state.sessions["main"].status.is_final

    async def is_ending(self, tree_id: str) -> bool:
        """Whether Main has ended, or was stopped and is about to end."""
        main = self._supervisor.tree(tree_id).state.sessions["main"]
        return main.status.is_final or main.stop is not None
