"""Vectors in memory, compared with one exactly. Grown in place: what is there is never copied."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
_BLOCK_ROWS: Final = 16_384


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
        while rows:
            block, used = divmod(self._rows, _BLOCK_ROWS)
            if block == len(self._blocks):  # memory is taken as rows are set; numpy asks for large pages
                self._blocks.append(np.empty((_BLOCK_ROWS, self._dimensions), np.float32))
            fitting = min(_BLOCK_ROWS - used, rows)
            self._blocks[block][used : used + fitting] = 0
            self._rows += fitting
            rows -= fitting

    def put(self, positions: NDArray[np.intp], vectors: Vectors) -> None:
        """Set rows that are there, shape (positions, dimensions)."""
        blocks, rows = np.divmod(positions, _BLOCK_ROWS)
        for block in np.unique(blocks).tolist():
            chosen = blocks == block
            self._blocks[block][rows[chosen]] = vectors[chosen]

    def scores(self, vector: Vectors, stop: int, start: int = 0) -> Vectors:
        """Return the inner products of a vector with the rows from ``start`` to before ``stop``.

        In one thread: a product that BLAS shares among several waits for all of them, which takes long on a
        busy machine.
        """
        products = np.empty(stop - start, np.float32)
        while start < stop:
            block, first = divmod(start, _BLOCK_ROWS)
            last = min(_BLOCK_ROWS, first + stop - start)
            done = len(products) - (stop - start)
            np.vecdot(self._blocks[block][first:last], vector, out=products[done : done + last - first])
            start += last - first
        return products


def best(scores: Vectors, candidates: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return the candidates of the highest scores, best first, at most so many; equal ones lowest first."""
    if not len(candidates) or most < 1:
        return candidates[:0]
    own = scores[candidates]
    if len(own) > most:
        least = np.partition(own, len(own) - most)[len(own) - most]
        kept = own >= least
        candidates, own = candidates[kept], own[kept]
    return candidates[np.lexsort((candidates, -own))][:most]
