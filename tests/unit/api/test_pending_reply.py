"""A pending reply: when it begins to listen for pieces."""

from __future__ import annotations

import asyncio
from typing import Any

from sessiontree.api.tree.pending_reply import PendingReply
from sessiontree.runtime.transport.progress import ProgressBuffer, ProgressHub
from sessiontree.runtime.transport.supervisor_api import Reply


class NotingBackend:
    """Notes when somebody begins to listen."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def watch(self, tree_id: str, session: str | None) -> ProgressBuffer:
        """Note it."""
        self._notes.append("listens")
        return ProgressHub().watch(tree_id, session)


async def test_reply_listens_before_its_message_is_sent() -> None:
    """An iterator that another task reads listens from the start: pieces before its first step are kept."""
    notes: list[str] = []

    async def deliver() -> Any:
        notes.append("sent")
        return Reply("said", None)

    task = asyncio.create_task(deliver())
    pieces = aiter(PendingReply(task, "main", NotingBackend(notes), "tree"))  # type: ignore[arg-type]

    async def read() -> list[str]:
        return [piece async for piece in pieces]

    assert await asyncio.create_task(read()) == []
    assert notes == ["listens", "sent"]
