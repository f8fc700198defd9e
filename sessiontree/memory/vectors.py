"""Asking an embedder, and not believing it blindly: a vector that is no number would poison every search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sessiontree.contracts.errors import MemoryFailed, SessionTreeError, words_of
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.matrix import Vectors


def vectors_of(texts: Sequence[str], embedder: Embedder, place: str) -> Vectors:
    """Return one row for each text. Blocks.

    Raises:
        MemoryFailed: the embedder failed, or answered with something else.
    """
    try:
        vectors = np.asarray(embedder.embed(texts), np.float32)
    except SessionTreeError:
        raise
    except Exception as error:
        raise MemoryFailed(place, f"embedder {embedder.identity!r} failed ({words_of(error)})") from error
    if vectors.shape != (len(texts), embedder.dimensions):
        raise MemoryFailed(
            place,
            f"embedder {embedder.identity!r} answered with shape {vectors.shape} for {len(texts)} texts"
            f" of {embedder.dimensions} dimensions",
        )
    if not np.isfinite(vectors).all():
        raise MemoryFailed(place, f"embedder {embedder.identity!r} answered with numbers that are none")
    return vectors
