"""Following a tree's durable facts as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.api.backend import OwnerPort
    from sessiontree.journal.record import Record

READ_AT_ONCE = 512
READ_WAIT_S = 20.0
"""How long a reader waits for the first fact before it asks again."""


async def facts_after(owner: OwnerPort, tree_id: str, after: int) -> AsyncIterator[Record]:
    """Yield facts after a number in order, then wait for more; ends when Main has ended."""
    over = owner.is_over(tree_id)
    while True:
        if over:
            await owner.result(tree_id, "main")  # its last facts are durable then
        records = await owner.read(tree_id, after, READ_AT_ONCE, 0.0 if over else READ_WAIT_S)
        for record in records:
            after = record.seq
            over = over or record.ends("main")
            yield record
        if over and not records:
            return
