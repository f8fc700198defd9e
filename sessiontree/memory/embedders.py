"""Embedders turn texts into vectors: the protocol, and the embedder that settings describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sessiontree.contracts.errors import ConfigError
from sessiontree.memory.settings import HashingSettings, HTTPSettings, MiniLMSettings
from sessiontree.version import explain_installation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Turns texts into vectors; similar texts get vectors that are close together."""

    @property
    def identity(self) -> str:
        """Name and digest of everything that determines its vectors, such as ``hashing-384-v1``."""
        ...

    @property
    def dimensions(self) -> int:
        """How many numbers one vector has."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row for each text: float32, shape (texts, dimensions), each of length 1 or all zero.

        Blocks. It is called in threads, several at once.
        """
        ...


_EXTRA = {"tokenizers", "safetensors"}
"""Packages of ``sessiontree[minilm]``."""


def make_embedder(settings: HashingSettings | MiniLMSettings | HTTPSettings) -> Embedder:
    """Return the embedder that settings describe. Only the modules of that embedder are loaded.

    Args:
        settings: The kind of embedder, and its parameters.

    Raises:
        ConfigError: the extra it needs is not installed, or its model cannot be read.
    """
    match settings:
        case HashingSettings():
            from sessiontree.memory.hashing_embedder import HashingEmbedder

            return HashingEmbedder()
        case MiniLMSettings():
            return _make_minilm(settings)
        case HTTPSettings():
            from sessiontree.memory.http_embedder import HTTPEmbedder

            return HTTPEmbedder(settings)


def _make_minilm(settings: MiniLMSettings) -> Embedder:
    try:
        from sessiontree.memory.minilm import MiniLMEmbedder
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        message = f"can't use embedder 'minilm': {error.name} is not installed"
        raise ConfigError(f"{message}; {explain_installation('minilm')}") from error
    return MiniLMEmbedder(settings.model_dir)
