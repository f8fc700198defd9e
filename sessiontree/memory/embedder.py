"""What the store needs of whatever turns text into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy


class Embedder(Protocol):
    """Turns texts into vectors that lie close together where the texts are alike."""

    @property
    def identity(self) -> str:
        """Name and digest of everything that decides its vectors, such as ``hashing-384-v1``."""
        ...

    @property
    def dimensions(self) -> int:
        """Numbers of one vector."""
        ...

    def embed(self, texts: Sequence[str]) -> numpy.ndarray:
        """Return one row for each text: float32, shape (texts, dimensions), each row of length 1 or all zero.

        Blocks; called in a thread, from several threads at once.
        """
        ...
