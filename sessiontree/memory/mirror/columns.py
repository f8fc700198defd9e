"""Columns of the rows in memory: numbers, texts with many repetitions, vectors, and whole texts.

A column changes on the event loop alone; any thread may read what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sessiontree.memory.tables import Vectors

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
        self._bytes = self._count = 0
        self._oldest = 0
        """No row before this one has a text."""

    def __len__(self) -> int:
        """Return the number of rows whose texts are kept."""
        return self._count

    @property
    def is_cut(self) -> bool:
        """Whether texts were dropped because all together are longer than the limit."""
        return self._oldest > 0

    def extend(self, rows: int) -> None:
        """Append rows without texts."""
        self._texts.extend([None] * rows)

    def put(self, positions: NDArray[np.intp], texts: Sequence[bytes]) -> bool:
        """Set the texts of existing rows; return whether one of them had another text."""
        is_changed = False
        for position, text in zip(positions.tolist(), texts, strict=True):
            before = self._texts[position]
            if position >= self._oldest and before != text:
                is_changed = is_changed or before is not None
                self.drop(position)
                self._texts[position] = text
                self._bytes += len(text)
                self._count += 1
        while self._bytes > self._limit:
            self.drop(self._oldest)
            self._oldest += 1
        return is_changed

    def part(self, start: int, stop: int) -> list[bytes | None]:
        """Return the texts of rows from ``start`` up to, not including, ``stop``; None = not kept."""
        return self._texts[start:stop]

    def at(self, position: int) -> str | None:
        """Return the text of a row, or None if it is not kept."""
        text = self._texts[position]
        return None if text is None else text.decode()

    def drop(self, position: int) -> None:
        """Free the text of a row."""
        text = self._texts[position]
        if text is not None:
            self._bytes -= len(text)
            self._count -= 1
            self._texts[position] = None

    def clear(self) -> None:
        """Free all texts; the rows stay."""
        self._texts = [None] * len(self._texts)
        self._bytes = self._count = self._oldest = 0


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
