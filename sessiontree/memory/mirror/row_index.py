"""The rows of the table in memory: filters and vectors are compared here, and the newest texts are kept.

A row's position is its place in the mirror. Rows are appended, and forgotten ones stay as dead positions
until a new mirror is made. The mirror changes on the event loop alone; any thread may read its arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sessiontree.contracts.values.memory import MemoryRecord, MemoryScope, RecordType, Source, Trust
from sessiontree.memory.mirror.columns import NumberColumn, StringColumn, TextColumn, VectorColumn
from sessiontree.memory.mirror.word_index import WordIndex
from sessiontree.memory.tables import ROW_ID, Vectors

Positions = NDArray[np.intp]
Mask = NDArray[np.bool_]
WHOLE: Final = -1
"""In ``firsts`` and ``lasts``: the source is a whole file."""


class RowIndex:
    """Every row of the table: ids, the columns that filters use, vectors, and the newest texts.

    Args:
        dimensions: Numbers of one vector.
        vectors: Whether vectors are kept. Without them searches use the table's index.
    """

    def __init__(self, dimensions: int, *, vectors: bool = True) -> None:
        self.matrix = VectorColumn(dimensions) if vectors else None
        self.texts = TextColumn()
        self.words = WordIndex()
        """The words of the texts; rows that it does not have yet are added when it is asked."""
        self.ids: list[str] = []
        self.types, self.paths, self.trees, self.trusts = (
            StringColumn(),
            StringColumn(),
            StringColumn(),
            StringColumn(),
        )
        self.sessions, self.agents, self.workspaces = StringColumn(), StringColumn(), StringColumn()
        self.firsts, self.lasts, self.created = (
            NumberColumn(np.int32),
            NumberColumn(np.int32),
            NumberColumn(np.int64),
        )
        self.next_row_id = 0
        """Rows of the table with this number or a higher one are not yet known by number."""
        self._alive = NumberColumn(np.bool_)
        self._row_ids = NumberColumn(np.int64)
        self._positions: dict[str, int] = {}
        self._unnumbered: set[int] = set()
        self._numbered = NumberColumn(np.int64)
        self._numbered_positions = NumberColumn(np.intp)

    def __len__(self) -> int:
        """Return the number of living rows."""
        return len(self._positions)

    def __contains__(self, record_id: str) -> bool:
        """Whether a living row has this id."""
        return record_id in self._positions

    @property
    def rows(self) -> int:
        """The number of positions, dead ones included."""
        return len(self.ids)

    @property
    def unnumbered(self) -> bool:
        """Whether rows were added and their numbers in the table are not known yet."""
        return bool(self._unnumbered)

    @property
    def is_crowded(self) -> bool:
        """Whether so many positions are dead that a new mirror is worth its cost."""
        return self.rows > 1_000 and len(self) < self.rows / 2

    def alive(self) -> Mask:
        """Return which positions are alive, not copied."""
        mask: Mask = self._alive.all()
        return mask

    def position(self, record_id: str) -> int | None:
        """Return the position of a living row, or None."""
        return self._positions.get(record_id)

    def record(self, position: int, text: str) -> MemoryRecord:
        """Return the record at a position, with this text."""
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

    def list_living_row_ids(self) -> NDArray[np.int64]:
        """Return the numbers of all living rows that have one, ascending."""
        numbers: NDArray[np.int64] = self._numbered.all()[self.alive()[self._numbered_positions.all()]]
        return numbers

    def find_positions(self, row_ids: NDArray[np.int64]) -> Positions:
        """Return the positions of the rows with these numbers, in their order; -1 = unknown or dead."""
        known: NDArray[np.int64] = self._numbered.all()
        if not len(known):
            return np.full(len(row_ids), -1, np.intp)
        places = np.minimum(np.searchsorted(known, row_ids), len(known) - 1)
        positions: Positions = self._numbered_positions.all()[places]
        return np.where((known[places] == row_ids) & self.alive()[positions], positions, -1)

    def append(self, records: Sequence[MemoryRecord], vectors: Vectors) -> None:
        """Add records that were just written; :meth:`number` adds their row numbers later."""
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
        added = np.arange(start, self.rows)
        if self.matrix is not None:
            self.matrix.put(added, vectors)
        self.put_texts(added, [record.text.encode() for record in records])

    def load(self, rows: pa.Table) -> None:
        """Add rows of the table, by ascending number; rows whose ids are known only get their numbers.

        Until the caller sets them, their vectors are all zero, and their texts are not kept.
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
        """Set the numbers of rows, given in any order; known numbers and unknown ids are ignored."""
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
        """Mark living rows as dead."""
        self.alive()[positions] = False
        for position in positions.tolist():
            del self._positions[self.ids[position]]
            self.texts.drop(position)
            self._unnumbered.discard(position)

    def drop_unnumbered(self) -> None:
        """Mark as dead the living rows whose numbers are not known."""
        self.drop(np.array(sorted(self._unnumbered), np.intp))

    @property
    def has_all_texts(self) -> bool:
        """Whether the text of every living row is in memory."""
        return len(self.texts) == len(self)

    def put_texts(self, positions: Positions, texts: Sequence[bytes]) -> None:
        """Set the texts of living rows."""
        if self.texts.put(positions, texts) or self.texts.is_cut:
            self.words = WordIndex()  # of another text, or of no use any more

    def forget_texts(self) -> None:
        """Drop all texts, and the words that were found in them."""
        self.texts.clear()
        self.words = WordIndex()

    def forget_vectors(self) -> None:
        """Drop all vectors: from now on an index of the table compares them."""
        self.matrix = None

    def list_living_trees(self) -> set[str]:
        """Return the ids of all trees that have records."""
        living = set(np.unique(self.trees.all()[self.alive()]).tolist())
        return {tree for tree, code in self.trees.known().items() if code in living}

    def sort_by_creation(self, positions: Positions) -> Positions:
        """Return positions, oldest record first; those of one millisecond in the order they were stored."""
        return positions[np.lexsort((positions, self.created.all()[positions]))]

    def _take_in(self, ids: Sequence[str]) -> None:
        if self.matrix is not None:
            self.matrix.extend(len(ids))
        self.texts.extend(len(ids))
        positions = range(self.rows, self.rows + len(ids))
        self._row_ids.extend(np.full(len(ids), -1))
        self._alive.extend(np.ones(len(ids), np.bool_))
        self._positions.update(zip(ids, positions, strict=True))
        self._unnumbered.update(positions)
        # The ids come last. Threads take their number as the length of every column, so a row exists for them
        # only when all its columns do.
        self.ids.extend(ids)


def list_ancestry(session: str) -> list[str]:
    """Return the paths of a session and its ancestors, the session first."""
    parts = session.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def select_visible(mirror: RowIndex, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    """Return a new mask of the rows that are alive and that the asker may see.

    Args:
        mirror: The rows.
        scope: Who asks; None = the owner, who may see all.
        finished: Ids of the trees whose Main has finished.
    """
    rows = mirror.rows
    # A copy: the search narrows it, and rows that are forgotten meanwhile change the original.
    alive = mirror.alive()[:rows].copy()
    if scope is None:
        return alive
    trees, known = mirror.trees.all()[:rows], mirror.trees.known()
    own = _select_any(mirror.sessions, list_ancestry(scope.session), rows) & _is(
        mirror.trees, scope.tree_id, rows
    )
    left = np.zeros(len(known), np.bool_)
    left[[code for tree, code in known.items() if tree in finished]] = True
    left_behind = (
        left[trees] & _is(mirror.agents, scope.agent_id, rows) & _is(mirror.workspaces, scope.workspace, rows)
    )
    mask: Mask = alive & (own | left_behind)
    return mask


def select_types(mirror: RowIndex, types: Collection[RecordType], rows: int) -> Mask:
    """Return which of the first ``rows`` rows have one of the types; without types, all of them."""
    return _select_any(mirror.types, types, rows) if types else np.ones(rows, np.bool_)


def select_path(mirror: RowIndex, path: str, rows: int) -> Mask:
    """Return which rows have a source at this path or below it."""
    start = path.rstrip("/")
    below = f"{start}/"
    return _select_any(
        mirror.paths,
        [known for known in mirror.paths.known() if known == start or known.startswith(below)],
        rows,
    )


def select_overlapping(mirror: RowIndex, first: int | None, last: int | None, rows: int) -> Mask:
    """Return which rows' lines overlap a range. A whole file overlaps every range; None = no bound."""
    firsts, lasts = mirror.firsts.all()[:rows], mirror.lasts.all()[:rows]
    mask: Mask = firsts == WHOLE
    inside = np.ones(rows, np.bool_)
    if first is not None:
        inside &= lasts >= first
    if last is not None:
        inside &= firsts <= last
    mask |= inside
    return mask


def select_tree(mirror: RowIndex, tree_id: str, rows: int) -> Mask:
    """Return which rows belong to a tree."""
    return _is(mirror.trees, tree_id, rows)


def _is(texts: StringColumn, text: str, rows: int) -> Mask:
    return _select_any(texts, (text,), rows)


def _select_any(texts: StringColumn, wanted: Iterable[str], rows: int) -> Mask:
    codes = [code for text in wanted if (code := texts.code(text)) is not None]
    cells = texts.all()[:rows]
    if len(codes) == 1:
        mask: Mask = cells == codes[0]
        return mask
    return np.isin(cells, codes)
