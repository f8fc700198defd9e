"""The trees whose Main has finished: what they left is for later Mains of their agent and workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from sessiontree.memory.failures import typed_reads, typed_writes
from sessiontree.memory.table import OLD_VERSIONS_FOR, open_table

MAINS: Final = "mains"
_SCHEMA: Final = pa.schema(
    [
        pa.field("tree_id", pa.string(), nullable=False),
        pa.field("agent_id", pa.string(), nullable=False),
        pa.field("workspace", pa.string(), nullable=False),
        pa.field("ended_at_ms", pa.int64(), nullable=False),
    ]
)
_MOST_COMMITS: Final = 100
"""After so many the small files are merged."""


@dataclass(frozen=True, slots=True)
class FinishedTree:
    """A tree whose Main has completed."""

    tree_id: str
    agent_id: str
    workspace: str
    ended_at_ms: int


class FinishedTrees:
    """The small table of finished trees, held in memory whole."""

    def __init__(self, connection: Any, table: Any | None, place: str) -> None:
        self._connection = connection
        self._table = table
        self._place = place
        self._trees: dict[str, FinishedTree] = {}
        self._commits = 0

    @classmethod
    async def open(cls, connection: Any, place: str, *, create: bool) -> FinishedTrees:
        """Open the table; a reader does without one."""
        table = await open_table(connection, MAINS, place)
        if table is None and create:
            with typed_writes(place):
                table = await connection.create_table(MAINS, schema=_SCHEMA, exist_ok=True)
        opened = cls(connection, table, place)
        await opened.load()
        return opened

    @property
    def trees(self) -> Mapping[str, FinishedTree]:
        """All by tree id."""
        return self._trees

    async def load(self) -> None:
        """Read what is new; other processes may have written."""
        if self._table is None:
            self._table = await open_table(self._connection, MAINS, self._place)
        if self._table is None:
            return
        with typed_reads(self._place):
            before = await self._table.version()
            await self._table.checkout_latest()
            if self._trees and await self._table.version() == before:
                return
            rows = await self._table.query().to_arrow()
        self._trees = {row["tree_id"]: FinishedTree(**row) for row in rows.to_pylist()}

    async def add(self, trees: list[FinishedTree]) -> None:
        """Write those that are not there yet, in one commit."""
        fresh = {tree.tree_id: tree for tree in trees if tree.tree_id not in self._trees}
        if self._table is None or not fresh:
            return
        rows = [
            {
                "tree_id": tree.tree_id,
                "agent_id": tree.agent_id,
                "workspace": tree.workspace,
                "ended_at_ms": tree.ended_at_ms,
            }
            for tree in fresh.values()
        ]
        with typed_writes(self._place):
            await self._table.add(pa.Table.from_pylist(rows, schema=_SCHEMA))
            self._trees |= fresh
            self._commits += 1
            if self._commits >= _MOST_COMMITS:
                await self._table.optimize(cleanup_older_than=OLD_VERSIONS_FOR)
                self._commits = 0

    def close(self) -> None:
        """Let go of files."""
        if self._table is not None:
            self._table.close()
