"""Timed jobs of an open tree: the timer that rings for their slots, and their changes by Main and program."""

from __future__ import annotations

import asyncio
from typing import Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.recorded.cron import CronTable, JobChange, JobRow, JobRun
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.runtime.scheduling.live_session import Controller
from sessiontree.runtime.timing.clock import TreeClock
from sessiontree.tree.job_report import build_job_row, build_job_table, list_job_runs
from sessiontree.tree.rules.cron import find_next_ring
from sessiontree.tree.state.protocol import AcceptJob, JobAsked, JobsRang, RefuseJob

LOOK_AFTER_S: Final = 30.0
"""The machine's clock may be set, or stand still while it sleeps, and no timer of the event loop notices. So
it is looked at again after this time."""


class JobTimer:
    """Rings for a tree's timed jobs. While no job has a slot to come, nothing is timed.

    Args:
        controller: The tree.
        clock: The tree's clock.
    """

    def __init__(self, controller: Controller, clock: TreeClock) -> None:
        self._controller = controller
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Ring when the next slot comes; an earlier call no longer counts."""
        self.close()
        next_ms = find_next_ring(self._controller.state)
        if next_ms is not None:
            delay_s = max(0.0, (next_ms - self._clock.wall_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(min(delay_s, LOOK_AFTER_S), self._look)

    def close(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._controller.failure is not None:
            return
        next_ms, wall_ms = find_next_ring(self._controller.state), self._clock.wall_ms()
        if next_ms is not None and next_ms <= wall_ms:
            self._controller.stimulate(JobsRang(self._controller.now_ms(), wall_ms), "cron")
        else:
            self.watch()


def list_jobs(controller: Controller) -> CronTable:
    """Return all jobs of a tree."""
    return build_job_table(controller.state, controller.wall_ms())


def list_history(controller: Controller, job_id: str, limit: int) -> tuple[JobRun, ...]:
    """Return runs and skips of a job, newest first, at most ``limit``.

    Raises:
        ExecutionError: no job has this id.
    """
    return list_job_runs(controller.state, job_id, limit)


async def change_job(
    controller: Controller, change: JobChange, key: str, asked_by: tuple[Principal, ...] = ()
) -> JobRow:
    """Carry out a change of a tree's timed jobs; durable when this returns.

    Args:
        controller: The tree.
        change: What is asked for.
        key: Identifies it; empty = it is not repeated.
        asked_by: Those for whom Main asks; empty = the creating program, or a person at its controls.

    Returns:
        The job afterwards; of a job that was removed, as it was before.

    Raises:
        ExecutionError: no job has the id, the tree has too many, or it can't be done to it now.
        ValidationError: what is wanted is not valid.
    """
    state = controller.state
    before = build_job_row(state, change.job_id) if change.job_id in state.jobs else None
    taint = state.sessions[MAIN].taint
    asked = JobAsked(controller.now_ms(), controller.wall_ms(), change, key, asked_by, taint)
    for instruction in await controller.settle(asked, f"cron:{key or change.action}"):
        if isinstance(instruction, RefuseJob):
            raise instruction.error
        if isinstance(instruction, AcceptJob):
            if instruction.job_id in state.jobs:
                return build_job_row(state, instruction.job_id)
            if before is not None:
                return before
    raise ExecutionError(f"job {change.job_id!r} was removed since then")
