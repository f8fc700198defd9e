"""The runner of an eval set: asks its definition what it would run, and has each task run by a worker.

Workers may die, alone or with their node: the task's log says which samples are finished, another worker
resumes it, and the newest complete log replaces the earlier ones. So each sample is scored once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeAlias

from inspect_ai._eval.eval_set_manifest import EVAL_SET_CAPTURE_VERSION
from inspect_ai._eval.eval_set_selection import EVAL_SET_SELECTION_VERSION

from sessiontree import ConfigError
from sessiontree.api.runtime.ray_door import open_cluster_calls
from sessiontree.bench.inspect_sets.log_folder import LogFolder, TaskCount, is_complete
from sessiontree.bench.inspect_sets.set_documents import (
    CAPTURE,
    SELECTION,
    CapturedSet,
    CapturedTask,
    build_selection,
    check_versions,
    read_capture,
)
from sessiontree.bench.inspect_sets.worker_process import WorkerOrder, run_here, run_on_node
from sessiontree.contracts.values.quick_dataclass import dataclass

Say: TypeAlias = Callable[[str], None]
Run: TypeAlias = Callable[[WorkerOrder], Awaitable[int | None]]
"""Runs a worker and returns its exit code; None = its process or node was lost."""
_CAPTURED: Final = "capture.json"


@dataclass(frozen=True, slots=True)
class SetOrder:
    """What to run, and how."""

    definition: Path
    """A Python file that calls ``eval_set()``; absolute."""
    log_dir: Path
    """Where the logs go; absolute, and on a cluster mounted by every node."""
    workers: int
    """How many tasks run at a time."""
    attempts: int
    """How often a task is begun at most, by this command."""
    address: str | None
    """The cluster that the workers run on; None = they run on this machine."""


async def run_set(order: SetOrder, say: Say) -> list[TaskCount]:
    """Run what is left of an eval set; return how far its tasks are.

    Raises:
        ConfigError: the definition can't be captured, or is of another eval set than the directory; the
            directory is in use; or no cluster can be reached.
    """
    check_versions(EVAL_SET_CAPTURE_VERSION, EVAL_SET_SELECTION_VERSION)
    folder = LogFolder(order.log_dir)
    with folder.held():
        async with AsyncExitStack() as stack:
            run: Run = run_here
            if order.address is not None:
                calls = await stack.enter_async_context(open_cluster_calls(order.address, say))

                async def run(worker: WorkerOrder) -> int | None:
                    code: int | None = await calls.call(run_on_node, worker)
                    return code

            return await EvalSetRun(order, folder, run, say).run()


class EvalSetRun:
    """One command's work on an eval set.

    Args:
        order: What to run.
        folder: Its logs.
        run: Runs a worker.
        say: Gets a line when something happens.
    """

    def __init__(self, order: SetOrder, folder: LogFolder, run: Run, say: Say) -> None:
        self._order = order
        self._folder = folder
        self._run = run
        self._say = say
        self._places = asyncio.Semaphore(order.workers)

    async def run(self) -> list[TaskCount]:
        """Work until every task is complete or was begun often enough; see :func:`run_set`."""
        captured = await self._capture()
        set_id = self._folder.ensure_id(captured.set_id)
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, task in enumerate(captured.tasks):
                    tasks.create_task(self._run_task(set_id, number, task))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group  # what ends one task ends the command
        return await asyncio.to_thread(self._folder.finish, set_id, captured)

    async def _capture(self) -> CapturedSet:
        document = self._folder.work / _CAPTURED
        document.unlink(missing_ok=True)
        order = self._build_order("capture", CAPTURE, document)
        code = await run_here(order)  # what it would run is the same on every node
        if code or not document.is_file():
            problem = f"ended with exit code {code}" if code else "did not call eval_set()"
            raise ConfigError(
                f"the definition {str(self._order.definition)!r} {problem}\n{order.read_tail()}"
            )
        return read_capture(document.read_bytes())

    def _build_order(self, name: str, variable: str, document: Path) -> WorkerOrder:
        return WorkerOrder(
            self._order.definition, Path.cwd(), variable, document, self._folder.work / f"{name}.txt"
        )

    async def _run_task(self, set_id: str, number: int, task: CapturedTask) -> None:
        """Have one task run until its log is complete."""
        for attempt in range(1, self._order.attempts + 1):
            async with self._places:
                # Looked at before each attempt: a worker that was lost may have finished its log.
                log = await asyncio.to_thread(self._folder.find_newest, task)
                if log is not None and is_complete(log, task):
                    return
                resume = None if log is None else log.info.name
                name = f"task-{number}-{attempt}"
                document = self._folder.work / f"{name}.selection"
                document.write_text(build_selection(set_id, task, str(self._order.log_dir), resume), "utf-8")
                worker = self._build_order(name, SELECTION, document)
                self._say(f"{task.name}: {'resumed' if resume else 'begun'}, attempt {attempt}")
                code = await self._run(worker)
            if code != 0:
                how = "was lost with its process or node" if code is None else f"ended with exit code {code}"
                self._say(f"{task.name}: its worker {how}; see {worker.output}")
