"""One look at a tree from a cell: its sessions, and when each of them did what."""

from __future__ import annotations

from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import Any, Final

from sessiontree.contracts.errors import SessionTreeError
from sessiontree.notebook.view_thread import VIEWS
from sessiontree.view.content import MAX_SESSIONS, MAX_SPANS

LOOK_S: Final = 30.0
"""How long a cell waits for it."""


def look(state_dir: Path, tree_id: str, *, with_times: bool = False) -> dict[str, Any]:
    """Return ``{"snapshot", "spans"}`` of a tree; it may be open or closed.

    Args:
        state_dir: Its state directory.
        tree_id: The tree.
        with_times: Whether the spans are read too; else the list is empty.

    Raises:
        SessionTreeError: it can't be read, or not in time.
    """

    async def read() -> dict[str, Any]:
        async with VIEWS.get_trees(state_dir).look_at(tree_id) as tree:
            # A cell shows a tree once, so a part of it would stay in the notebook as if it were the whole.
            await tree.wait_until_whole()
            snapshot = tree.feed.snapshot()
            paths = [row[0] for row in snapshot["rows"][:MAX_SESSIONS]]
            timeline = {"sessions": paths, "most": MAX_SPANS}
            spans = (await tree.ask("timeline", timeline))["spans"] if with_times else []
            return {"snapshot": snapshot, "spans": spans}

    try:
        return VIEWS.submit(read).result(LOOK_S)
    except NotInTime:
        raise SessionTreeError(f"tree {tree_id} can't be read in {LOOK_S:.0f} s") from None
