"""The rows of the table in memory: filters and vectors are compared here, and the newest texts are kept.

A row's position is its place in the mirror. Rows are appended, and forgotten ones stay as dead positions
until a new mirror is made. The mirror changes on the event loop alone; any thread may read its arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from sessiontree.contracts.values.memory import MemoryRecord, MemoryScope, RecordType, Source, Trust
from sessiontree.memory.tables import ROW_ID, Vectors

NONE: Final = -1
"""The code of a missing text."""
_SMALLEST: Final = 1_024


class NumberColumn:
    """One column of numbers. Appending costs amortised O(1)."""

    def __init__(self, kind: DTypeLike) -> None:
        self._cells: NDArray[Any] = np.empty(_SMALLEST, kind)
        self._count = 0

    def __len__(self) -> int:
        """Return the number of values."""
        return self._count

    def extend(self, values: NDArray[Any] | Sequence[int]) -> None:
        """Append values. Arrays that :meth:`all` returned before do not change."""
        needed = self._count + len(values)
        if needed > len(self._cells):
            grown = np.empty(max(needed, 2 * len(self._cells)), self._cells.dtype)
            grown[: self._count] = self._cells[: self._count]
            self._cells = grown
        self._cells[self._count : needed] = values
        self._count = needed

    def all(self) -> NDArray[Any]:
        """Return the values, not copied."""
        return self._cells[: self._count]


class StringColumn:
    """One column of texts with many repetitions: each text is kept once, and a row holds its code."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._kept: list[str] = []
        self._rows = NumberColumn(np.int32)

    def extend(self, values: Sequence[str | None]) -> None:
        """Append values."""
        self._rows.extend([NONE if value is None else self._assign_code(value) for value in values])

    def all(self) -> NDArray[np.int32]:
        """Return the rows' codes, not copied."""
        return self._rows.all()

    def code(self, text: str) -> int | None:
        """Return the code of a text, or None if no row ever had it."""
        return self._codes.get(text)

    def known(self) -> dict[str, int]:
        """Return the codes of all texts so far."""
        return dict(self._codes)

    def at(self, row: int) -> str:
        """Return the text of a row that has one."""
        return self._kept[int(self._rows.all()[row])]

    def has(self, row: int) -> bool:
        """Whether a row has a text."""
        return bool(self._rows.all()[row] != NONE)

    def _assign_code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._kept)
            self._kept.append(text)
        return code


_BLOCK_ROWS: Final = 2_048


class VectorColumn:
    """Vectors of float32, in blocks; vectors are only ever added.

    A block holds one array for each dimension. A query of few words has few numbers that are not zero, and
    only their arrays are read.

    Args:
        dimensions: Numbers of a vector.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._blocks: list[Vectors] = []
        self._rows = 0

    def extend(self, rows: int) -> None:
        """Append vectors of zeros."""
        self._rows += rows
        while len(self._blocks) * _BLOCK_ROWS < self._rows:
            # The system provides the memory as vectors are set.
            self._blocks.append(np.zeros((self._dimensions, _BLOCK_ROWS), np.float32))

    def put(self, positions: NDArray[np.intp], vectors: Vectors) -> None:
        """Set existing vectors; the shape of the argument is (positions, dimensions)."""
        blocks, rows = np.divmod(positions, _BLOCK_ROWS)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            own, columns = rows[chosen], vectors[chosen].T
            if own[-1] - own[0] == len(own) - 1 and (np.diff(own) == 1).all():
                self._blocks[block][:, own[0] : own[-1] + 1] = columns  # half the cost of places in any order
            else:
                self._blocks[block][:, own] = columns

    def scores(self, vector: Vectors, stop: int, start: int = 0) -> Vectors:
        """Return the inner products of a vector with those from ``start`` up to, not including, ``stop``.

        Equal vectors have equal products, to the last bit: products are made of whole blocks, always in the
        same order. It uses one thread. When BLAS shares a product among threads, the product waits for all
        of them, which takes long on a busy machine.
        """
        used = np.flatnonzero(vector)
        is_sparse = 2 * len(used) < self._dimensions
        weights = vector[used] if is_sparse else vector
        products = np.empty(stop - start, np.float32)
        for number in range(start // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS)):
            block, first = self._blocks[number], number * _BLOCK_ROWS
            own = np.einsum("i,ij->j", weights, block[used] if is_sparse else block)
            low, high = max(start, first), min(stop, first + _BLOCK_ROWS)
            products[low - start : high - start] = own[low - first : high - first]
        return products


_TEXT_BYTES: Final = 64 * 2**20


class TextColumn:
    """The texts of the newest rows, in UTF-8; those of older rows are only in the table.

    Args:
        limit: How many bytes of texts are kept. A row takes 41 bytes more.
    """

    def __init__(self, limit: int = _TEXT_BYTES) -> None:
        self._limit = limit
        self._texts: list[bytes | None] = []
        self._bytes = 0
        self._oldest = 0
        """No row before this one has a text."""

    def extend(self, rows: int) -> None:
        """Append rows without texts."""
        self._texts.extend([None] * rows)

    def put(self, positions: NDArray[np.intp], texts: Sequence[bytes]) -> None:
        """Set the texts of existing rows."""
        for position, text in zip(positions.tolist(), texts, strict=True):
            if position >= self._oldest:
                self.drop(position)
                self._texts[position] = text
                self._bytes += len(text)
        while self._bytes > self._limit:
            self.drop(self._oldest)
            self._oldest += 1

    def at(self, position: int) -> str | None:
        """Return the text of a row, or None if it is not kept."""
        text = self._texts[position]
        return None if text is None else text.decode()

    def drop(self, position: int) -> None:
        """Free the text of a row."""
        text = self._texts[position]
        if text is not None:
            self._bytes -= len(text)
            self._texts[position] = None

    def clear(self) -> None:
        """Free all texts; the rows stay."""
        self._texts = [None] * len(self._texts)
        self._bytes = self._oldest = 0


_GROUP: Final = 64


def select_best(scores: Vectors, candidates: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return up to ``most`` candidates with the highest scores, best first; equal ones by position."""
    if not len(candidates) or most < 1:
        return candidates[:0]
    own = scores[candidates]
    if len(own) >= 2 * most * _GROUP:
        # So many groups have a member as good as the last of the best groups: what is worse is not among the
        # best. To sort all of a large store takes ten times as long.
        groups = own[: len(own) // _GROUP * _GROUP].reshape(-1, _GROUP).max(axis=1)
        kept = own >= np.partition(groups, len(groups) - most)[len(groups) - most]
        candidates, own = candidates[kept], own[kept]
    if len(own) > most:
        least = np.partition(own, len(own) - most)[len(own) - most]
        kept = own >= least
        candidates, own = candidates[kept], own[kept]
    return candidates[np.lexsort((candidates, -own))][:most]


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
        self.texts.put(added, [record.text.encode() for record in records])

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
