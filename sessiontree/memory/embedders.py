"""Embedders turn texts into vectors: the protocol, and the embedder that settings describe."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

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


Import: TypeAlias = Callable[[str], Any]

_EXTRA = {"tokenizers", "safetensors"}
"""Packages of ``sessiontree[minilm]``."""


def make_embedder(
    settings: HashingSettings | MiniLMSettings | HTTPSettings, load: Import = importlib.import_module
) -> Embedder:
    """Return the embedder that settings describe.

    Args:
        settings: The kind of embedder, and its parameters.
        load: Imports a module.

    Raises:
        ConfigError: the extra it needs is not installed, or its model cannot be read.
    """
    match settings:
        case HashingSettings():
            hashing: Embedder = load("sessiontree.memory.hashing_embedder").HashingEmbedder()
            return hashing
        case MiniLMSettings():
            return _build_minilm(settings, load)
        case HTTPSettings():
            http: Embedder = load("sessiontree.memory.http_embedder").HTTPEmbedder(settings)
            return http


def _build_minilm(settings: MiniLMSettings, load: Import) -> Embedder:
    try:
        module = load("sessiontree.memory.minilm")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        message = f"can't use embedder 'minilm': {error.name} is not installed"
        raise ConfigError(f"{message}; {explain_installation('minilm')}") from error
    embedder: Embedder = module.MiniLMEmbedder(settings.model_dir)
    return embedder
