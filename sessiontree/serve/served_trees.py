"""The trees of a state directory that are served: which there are, and those that somebody looks at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.recorded.questions import Surface
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.control.client import ControlClient
from sessiontree.journal.claim import list_journal_dirs, locate_journal
from sessiontree.journal.journal import Journal
from sessiontree.serve.canvas_frames import CanvasFrame
from sessiontree.serve.served_tree import ServedTree
from sessiontree.view.feed import TreeFeed

MAX_OPEN: Final = 32
"""Most trees that are looked at at once."""
KEPT_S: Final = 30.0
"""How long a tree stays open after its last viewer has gone: a reload finds it as it was."""
MAX_LISTED: Final = 1_000
MAX_PURPOSE_CHARS: Final = 200


@dataclass(slots=True)
class _Open:
    tree: ServedTree
    opening: asyncio.Task[None]
    viewers: int = 0
    closing: asyncio.TimerHandle | None = None


class ServedTrees:
    """Opens trees when they are looked at, and closes them some time after the last viewer has gone.

    Args:
        state_dir: The state directory.
        surface: Where their viewers answer, for the journal.
        may_act: Whether viewers may answer, steer, stop and fork; False = they only look.
    """

    def __init__(self, state_dir: Path, surface: Surface = "browser", *, may_act: bool = True) -> None:
        self._state_dir = state_dir
        self._surface = surface
        self._may_act = may_act
        self._open: dict[str, _Open] = {}
        self._is_closed = False
        self._ends: set[asyncio.Task[None]] = set()

    async def list_trees(self) -> list[dict[str, Any]]:
        """Return the newest trees of the directory: id, purpose, when made and written, whether live.

        Journals that can't be read are left out.
        """
        live: set[str] = set()
        found: list[dict[str, Any]] = []
        for place in await asyncio.to_thread(list_journal_dirs, self._state_dir):
            try:
                client = await ControlClient.find(place)
                if client is not None:
                    async with client:
                        live |= set(await client.supervisor.open_trees())
                found += await asyncio.to_thread(_read_rows, place)
            except SessionTreeError:
                continue
        found.sort(key=lambda row: (row["created_ms"], row["id"]), reverse=True)
        return [{**row, "is_live": row["id"] in live} for row in found[:MAX_LISTED]]

    @asynccontextmanager
    async def look_at(self, tree_id: str) -> AsyncIterator[ServedTree]:
        """Keep a tree open while somebody looks at it.

        Raises:
            TreeNotFound, JournalError: it can't be read.
            ConfigError: too many trees are looked at, or all of them were closed.
        """
        entry = self._open.get(tree_id)
        if entry is None:
            place = await asyncio.to_thread(locate_journal, self._state_dir, tree_id)
            # Race: another viewer may have opened it while this one looked for the journal.
            entry = self._open.get(tree_id) or self._begin(place, tree_id)
        # Counted before anything is awaited: another tree that needs room must not take this one for idle.
        entry.viewers += 1
        if entry.closing is not None:
            entry.closing.cancel()
            entry.closing = None
        try:
            # A viewer that goes must not cancel the opening that others wait for.
            await asyncio.shield(entry.opening)
            yield entry.tree
        finally:
            entry.viewers -= 1
            # It is closed already after a failure, and if all trees were closed while it was looked at.
            if entry.viewers == 0 and self._open.get(tree_id) is entry:
                entry.closing = asyncio.get_running_loop().call_later(KEPT_S, self._end, entry)

    async def ask(self, tree_id: str, verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a verb of a viewer of a tree.

        Raises:
            SessionTreeError: the tree can't be read, or what was asked for can't be done.
        """
        async with self.look_at(tree_id) as tree:
            return await tree.ask(verb, given)

    async def frame(self, tree_id: str, session: str) -> CanvasFrame:
        """Return the document of a frame that shows a canvas.

        Raises:
            SessionTreeError: the tree can't be read, or the session shows no canvas.
        """
        async with self.look_at(tree_id) as tree:
            return await tree.frame(session)

    @asynccontextmanager
    async def follow(self, tree_id: str) -> AsyncIterator[TreeFeed]:
        """Keep a tree open while somebody follows its feed.

        Raises:
            SessionTreeError: it can't be read, or too many trees are looked at.
        """
        async with self.look_at(tree_id) as tree:
            yield tree.feed

    async def close(self) -> None:
        """Close all trees; none is opened any more."""
        self._is_closed = True
        for entry in tuple(self._open.values()):
            self._end(entry)
        if self._ends:
            await asyncio.wait(self._ends)

    def _begin(self, place: Path, tree_id: str) -> _Open:
        if self._is_closed:  # while this viewer looked for the journal; nobody would close the tree
            raise ConfigError("no tree is shown any more; start the server again")
        idle = [entry for entry in self._open.values() if entry.viewers == 0]
        if len(self._open) >= MAX_OPEN and not idle:
            raise ConfigError(f"{MAX_OPEN} trees are looked at already; close a page and try again")
        if len(self._open) >= MAX_OPEN:
            self._end(idle[0])
        tree = ServedTree(place, tree_id, self._surface, may_act=self._may_act)
        entry = self._open[tree_id] = _Open(tree, asyncio.create_task(tree.open()))
        # Also if its viewers have left meanwhile: the next one tries again.
        entry.opening.add_done_callback(lambda opening: self._end(entry) if _has_failed(opening) else None)
        return entry

    def _end(self, entry: _Open) -> None:
        # Race: it may have been closed and opened again since; that one belongs to others.
        if self._open.get(entry.tree.tree_id) is not entry:
            return
        del self._open[entry.tree.tree_id]
        if entry.closing is not None:
            entry.closing.cancel()
        task = asyncio.create_task(_close_entry(entry))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


def _has_failed(opening: asyncio.Task[None]) -> bool:
    return opening.cancelled() or opening.exception() is not None


async def _close_entry(entry: _Open) -> None:
    # Closed while it opens, it would leave the journal open that it opens then.
    await asyncio.wait([entry.opening])
    if not _has_failed(entry.opening):
        await entry.tree.close()


def _read_rows(place: Path) -> list[dict[str, Any]]:
    with Journal.open(place, read_only=True) as journal:
        return [
            {
                "id": row.tree_id,
                "purpose": make_visible(str((row.row0 or {}).get("purpose", ""))[:MAX_PURPOSE_CHARS]),
                "created_ms": row.created_ms,
                "written_ms": row.written_ms,
                "facts": row.last_seq,
            }
            for row in journal.trees()
        ]
