"""Vectors in memory, compared with one exactly. Grown in place: what is there is never copied."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
_BLOCK_ROWS: Final = 4_096


class Matrix:
    """Rows of float32, in blocks; rows are only ever added.

    Args:
        dimensions: Numbers of a row.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._blocks: list[Vectors] = []
        self._rows = 0

    def extend(self, rows: int) -> None:
        """Append rows of zeros."""
        self._rows += rows
        while len(self._blocks) * _BLOCK_ROWS < self._rows:
            self._blocks.append(np.zeros((_BLOCK_ROWS, self._dimensions), np.float32))

    def put(self, positions: NDArray[np.intp], vectors: Vectors) -> None:
        """Set rows that are there, shape (positions, dimensions)."""
        blocks, rows = np.divmod(positions, _BLOCK_ROWS)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            self._blocks[block][rows[chosen]] = vectors[chosen]

    def scores(self, vector: Vectors, rows: int) -> Vectors:
        """Return the inner products of a vector with the first rows, shape (rows,).

        In one thread: a product that several share waits for all of them, which takes long on a busy machine.
        """
        products = np.empty(rows, np.float32)
        for start in range(0, rows, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, rows)
            np.vecdot(self._blocks[start // _BLOCK_ROWS][: stop - start], vector, out=products[start:stop])
        return products


def best(scores: Vectors, candidates: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return the candidates of the highest scores, best first, at most so many; equal ones lowest first."""
    if not len(candidates):
        return candidates
    own = scores[candidates]
    if len(own) > most:
        least = np.partition(own, len(own) - most)[len(own) - most]
        kept = own >= least
        candidates, own = candidates[kept], own[kept]
    return candidates[np.lexsort((candidates, -own))][:most]
