"""Trees at rest whose timed jobs come due: they are resumed, and go to rest again once nothing is to be done.

The journals alone say when: a tree that another program has open is left to it. What can't be resumed is
reported once for each reason; its slot is settled when somebody opens the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from sessiontree.api.tree.session_tree import SessionTree
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.control.client import ControlClient
from sessiontree.runtime.replay.stored_jobs import ScheduledTree, list_scheduled_trees
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.tree.rules.cron import find_next_ring, is_running

LOOK_EVERY_S: Final = 20.0
"""How often the journals are looked at: a slot runs within this time, and is not missed."""
REST_LOOK_S: Final = 0.5
"""How often a resumed tree is looked at."""
SOON_MS: Final = 90_000
"""A tree whose next slot comes within this time stays open."""
RETRY_MS: Final = 600_000
"""When a tree that could not be resumed is tried again."""
MAX_DUE: Final = 8
"""Most trees that are open for their jobs at once; the others wait."""

ResumeTree: TypeAlias = Callable[[Path, TreeConfig], Awaitable[SessionTree]]
"""Resumes a tree of the journal in a directory."""


class DueTrees:
    """Opens trees when their timed jobs come due.

    Args:
        state_dir: The state directory.
        resume: Resumes a tree.
        say: Reports what can't be resumed.
        wall_ms: Returns the machine's time.
    """

    def __init__(
        self,
        state_dir: Path,
        resume: ResumeTree,
        say: Callable[[str], None],
        wall_ms: Callable[[], int] = read_machine_ms,
    ) -> None:
        self._state_dir = state_dir
        self._resume = resume
        self._say = say
        self._wall_ms = wall_ms
        self._open: dict[str, asyncio.Task[None]] = {}
        self._tried: dict[str, int] = {}
        """When trees that could not be resumed were tried last."""
        self._reported: set[tuple[str, str]] = set()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look at the journals again and again; at the end, close what was opened."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await self.close()

    async def look(self) -> None:
        """Resume the trees whose slots have come."""
        for each in await asyncio.to_thread(lambda: list(list_scheduled_trees(self._state_dir))):
            if isinstance(each, ScheduledTree):
                if self._is_due(each):
                    tree_id = each.config.tree_id
                    self._open[tree_id] = asyncio.create_task(self._serve(each))
            else:
                self._report(*each)

    async def settled(self) -> None:
        """Wait until every tree that was opened is at rest again."""
        if self._open:
            await asyncio.wait(list(self._open.values()))

    async def close(self) -> None:
        """Let every open tree go; it can be resumed."""
        for task in self._open.values():
            task.cancel()
        await self.settled()

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
            except (SessionTreeError, OSError) as error:
                self._report(str(self._state_dir), error)
            await asyncio.sleep(LOOK_EVERY_S)

    def _is_due(self, each: ScheduledTree) -> bool:
        tree_id, now_ms = each.config.tree_id, self._wall_ms()
        next_ms = find_next_ring(each.state)
        was_tried = tree_id in self._tried and now_ms < self._tried[tree_id] + RETRY_MS
        is_free = tree_id not in self._open and len(self._open) < MAX_DUE
        return is_free and not was_tried and next_ms is not None and next_ms <= now_ms

    async def _serve(self, due: ScheduledTree) -> None:
        tree_id = due.config.tree_id
        try:
            # Asked first: a program that runs the tree does its jobs too, so this is not a failure to report.
            if not await _is_open(due.place, tree_id):
                async with await self._resume(due.place, due.config) as tree:
                    await self._wait_for_rest(tree, due.place)
                self._tried.pop(tree_id, None)
        except (SessionTreeError, OSError) as error:
            # Each attempt replays a whole journal, so a tree that fails is not tried at every look.
            self._tried[tree_id] = self._wall_ms()
            self._report(tree_id, error)
        finally:
            del self._open[tree_id]

    async def _wait_for_rest(self, tree: SessionTree, place: Path) -> None:
        """Wait until a tree has nothing to do, twice in a row: between two facts it may look idle."""
        seen = 0
        while seen < 2:
            await asyncio.sleep(REST_LOOK_S)
            main = tree.main.status()
            if main.status.is_final:
                return
            # Main is active, too, before its first message.
            is_silent = main.status is SessionStatus.SUSPENDED or not tree.main.history(limit=1)
            is_idle = is_silent and not main.children
            at_rest = is_idle and not main.pending_approvals and await self._has_time(tree.tree_id, place)
            seen = seen + 1 if at_rest else 0

    async def _has_time(self, tree_id: str, place: Path) -> bool:
        """Whether no run of a job goes on, and no slot comes soon."""
        for each in await asyncio.to_thread(lambda: list(list_scheduled_trees(place, tree_id))):
            if isinstance(each, ScheduledTree):
                next_ms = find_next_ring(each.state)
                is_later = next_ms is None or next_ms > self._wall_ms() + SOON_MS
                return is_later and not any(
                    is_running(each.state, known) for known in each.state.jobs.values()
                )
        return True

    def _report(self, name: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if (name, reason) not in self._reported:
            self._reported.add((name, reason))
            self._say(f"timed jobs of {name} do not run: {reason}")


async def _is_open(place: Path, tree_id: str) -> bool:
    """Whether a program has a tree open."""
    client = await ControlClient.find(place)
    if client is None:
        return False
    async with client:
        return tree_id in await client.supervisor.open_trees()
