"""The table's rows in memory, without their texts: what is asked about a record before it is read.

A row's position is its place in the mirror; rows are appended, and forgotten ones stay as dead positions
until a new mirror is made. Changed on the event loop alone; its arrays may be read in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sessiontree.contracts.memory import MemoryRecord, MemoryScope, RecordType, Source, Trust
from sessiontree.memory.columns import Numbers, Texts
from sessiontree.memory.matrix import Matrix, Vectors
from sessiontree.memory.rows import ROW_ID

Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]
WHOLE: Final = -1
"""In ``firsts`` and ``lasts``: the source is a whole file."""


class Mirror:
    """Every row of the table: ids, codes of what it may be filtered by, and vectors.

    Args:
        dimensions: Of the vectors.
        vectors: Whether vectors are kept; without them an index of the table must be asked.
    """

    def __init__(self, dimensions: int, *, vectors: bool = True) -> None:
        self.matrix = Matrix(dimensions) if vectors else None
        self.ids: list[str] = []
        self.types, self.paths, self.trees, self.trusts = Texts(), Texts(), Texts(), Texts()
        self.sessions, self.agents, self.workspaces = Texts(), Texts(), Texts()
        self.firsts, self.lasts, self.created = Numbers(np.int32), Numbers(np.int32), Numbers(np.int64)
        self.next_row_id = 0
        """Rows of the table from this number on are not yet known by number."""
        self._alive = Numbers(np.bool_)
        self._row_ids = Numbers(np.int64)
        self._positions: dict[str, int] = {}
        self._unnumbered: set[int] = set()
        self._numbered = Numbers(np.int64)
        self._numbered_positions = Numbers(np.intp)

    def __len__(self) -> int:
        """Return the number of living rows."""
        return len(self._positions)

    def __contains__(self, record_id: str) -> bool:
        """Whether a living row has that id."""
        return record_id in self._positions

    @property
    def rows(self) -> int:
        """Positions there are, dead ones too."""
        return len(self.ids)

    @property
    def unnumbered(self) -> bool:
        """Whether rows were added whose numbers in the table are not known yet."""
        return bool(self._unnumbered)

    @property
    def crowded(self) -> bool:
        """Whether so many positions are dead that a new mirror is worth making."""
        return self.rows > 1_000 and len(self) < self.rows / 2

    def alive(self) -> Mask:
        """Return which positions are alive, not copied."""
        mask: Mask = self._alive.all()
        return mask

    def position(self, record_id: str) -> int | None:
        """Return where a living row stands."""
        return self._positions.get(record_id)

    def record(self, position: int, text: str) -> MemoryRecord:
        """Return the record at a position; its text comes from the table."""
        source = None
        if self.paths.has(position):
            first, last = int(self.firsts.all()[position]), int(self.lasts.all()[position])
            whole = first == WHOLE
            source = Source(self.paths.at(position), None if whole else first, None if whole else last)
        return MemoryRecord(
            self.ids[position],
            cast("RecordType", self.types.at(position)),
            text,
            None if source is None else str(source),
            cast("Trust", self.trusts.at(position)),
            MemoryScope(
                self.trees.at(position),
                self.sessions.at(position),
                self.agents.at(position),
                self.workspaces.at(position),
            ),
            int(self.created.all()[position]),
        )

    def row_ids(self, positions: Positions) -> list[int]:
        """Return the rows' numbers in the table."""
        numbers: list[int] = self._row_ids.all()[positions].tolist()
        return numbers

    def living_row_ids(self) -> NDArray[np.int64]:
        """Return the numbers of all living rows that have one, ascending."""
        numbers: NDArray[np.int64] = self._numbered.all()[self.alive()[self._numbered_positions.all()]]
        return numbers

    def positions_of(self, row_ids: NDArray[np.int64]) -> Positions:
        """Return where the rows of these numbers stand, in their order; -1 for unknown and dead ones."""
        known: NDArray[np.int64] = self._numbered.all()
        if not len(known):
            return np.full(len(row_ids), -1, np.intp)
        places = np.minimum(np.searchsorted(known, row_ids), len(known) - 1)
        positions: Positions = self._numbered_positions.all()[places]
        return np.where((known[places] == row_ids) & self.alive()[positions], positions, -1)

    def append(self, records: Sequence[MemoryRecord], vectors: Vectors) -> None:
        """Take in records just written; their row numbers follow with :meth:`number`."""
        sources = [None if record.source is None else Source.of(record.source) for record in records]
        self.types.extend([record.type for record in records])
        self.paths.extend([None if source is None else source.path for source in sources])
        self.trees.extend([record.scope.tree_id for record in records])
        self.trusts.extend([record.trust for record in records])
        self.sessions.extend([record.scope.session for record in records])
        self.agents.extend([record.scope.agent_id for record in records])
        self.workspaces.extend([record.scope.workspace for record in records])
        self.firsts.extend([source.first or WHOLE if source else WHOLE for source in sources])
        self.lasts.extend([source.last or WHOLE if source else WHOLE for source in sources])
        self.created.extend([record.created_at_ms for record in records])
        start = self.rows
        self._take_in([record.id for record in records])
        if self.matrix is not None:
            self.matrix.put(np.arange(start, self.rows), vectors)

    def load(self, rows: pa.Table) -> None:
        """Take in rows as the table holds them, by ascending number; rows known by id are numbered only.

        Their vectors are all zero until they are put in the matrix.
        """
        fresh = [record_id not in self._positions for record_id in rows["id"].to_pylist()]
        added = rows.filter(pa.array(fresh, pa.bool_()))
        self.types.extend(added["type"].to_pylist())
        self.paths.extend(added["path"].to_pylist())
        self.trees.extend(added["tree_id"].to_pylist())
        self.trusts.extend(added["trust"].to_pylist())
        self.sessions.extend(added["session"].to_pylist())
        self.agents.extend(added["agent_id"].to_pylist())
        self.workspaces.extend(added["workspace"].to_pylist())
        self.firsts.extend(added["first"].fill_null(WHOLE).to_numpy())
        self.lasts.extend(added["last"].fill_null(WHOLE).to_numpy())
        self.created.extend(added["created_at_ms"].to_numpy())
        self._take_in(added["id"].to_pylist())
        self.number(rows["id"].to_pylist(), rows[ROW_ID].to_numpy().astype(np.int64))

    def number(self, ids: Sequence[str], row_ids: NDArray[np.int64]) -> None:
        """Learn the numbers of rows, in any order; known ones and unknown ids are passed over."""
        order = np.argsort(row_ids)
        order = order[row_ids[order] >= self.next_row_id]
        positions = np.array([self._positions.get(ids[place], -1) for place in order], np.intp)
        known = positions >= 0
        numbers, positions = row_ids[order][known], positions[known]
        self._row_ids.all()[positions] = numbers
        self._numbered.extend(numbers)
        self._numbered_positions.extend(positions)
        self._unnumbered.difference_update(positions.tolist())
        if len(numbers):
            self.next_row_id = int(numbers[-1]) + 1

    def drop(self, positions: Positions) -> None:
        """Let living rows die."""
        self.alive()[positions] = False
        for position in positions.tolist():
            del self._positions[self.ids[position]]
            self._unnumbered.discard(position)

    def forget_vectors(self) -> None:
        """Keep vectors no longer: an index of the table answers for them."""
        self.matrix = None

    def living_trees(self) -> set[str]:
        """Return the ids of all trees that have records."""
        living = set(np.unique(self.trees.all()[self.alive()]).tolist())
        return {tree for tree, code in self.trees.known().items() if code in living}

    def in_created_order(self, positions: Positions) -> Positions:
        """Return positions, oldest record first; those of one millisecond as they were stored."""
        return positions[np.lexsort((positions, self.created.all()[positions]))]

    def _take_in(self, ids: Sequence[str]) -> None:
        if self.matrix is not None:
            self.matrix.extend(len(ids))
        positions = range(self.rows, self.rows + len(ids))
        self._row_ids.extend(np.full(len(ids), -1))
        self._alive.extend(np.ones(len(ids), np.bool_))
        self._positions.update(zip(ids, positions, strict=True))
        self._unnumbered.update(positions)
        self.ids.extend(ids)
