"""Which embedder the settings mean; its module is loaded when it is wanted, and only that one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.settings import HashingSettings, HTTPSettings, MiniLMSettings

Import: TypeAlias = Callable[[str], Any]

_EXTRA = {"tokenizers", "safetensors"}
"""What ``sessiontree[minilm]`` brings."""


def make_embedder(
    settings: HashingSettings | MiniLMSettings | HTTPSettings, load: Import = importlib.import_module
) -> Embedder:
    """Return the embedder that settings describe.

    Args:
        settings: Its kind, and what that kind needs.
        load: Imports a module.

    Raises:
        ConfigError: the extra it needs is not installed, or its model can't be read.
    """
    match settings:
        case HashingSettings():
            hashing: Embedder = load("sessiontree.memory.hashing_embedder").HashingEmbedder()
            return hashing
        case MiniLMSettings():
            return _minilm(settings, load)
        case HTTPSettings():
            http: Embedder = load("sessiontree.memory.http_embedder").HTTPEmbedder(settings)
            return http


def _minilm(settings: MiniLMSettings, load: Import) -> Embedder:
    try:
        module = load("sessiontree.memory.minilm")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        message = f"embedder 'minilm' needs {error.name}, which is not installed"
        raise ConfigError(f"{message}; pip install 'sessiontree[minilm]'") from error
    embedder: Embedder = module.MiniLMEmbedder(settings.model_dir)
    return embedder
