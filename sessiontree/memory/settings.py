"""Settings of a runtime's memory: where it lies, and what turns text into vectors. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator

from sessiontree.contracts.settings import StrictSettings
from sessiontree.memory.place import directory_of

MEMORY_DIR: Final = "memory"
"""Name of the store in a state directory."""

_HIDING = ConfigDict(hide_input_in_errors=True, protected_namespaces=())


class HashingSettings(StrictSettings):
    """Words and parts of words hashed into 384 numbers: needs nothing, knows spelling but no meaning."""

    model_config = _HIDING

    kind: Literal["hashing"] = "hashing"


class MiniLMSettings(StrictSettings):
    """A MiniLM sentence model from a local directory, computed in numpy (``sessiontree[minilm]``)."""

    model_config = _HIDING

    kind: Literal["minilm"] = "minilm"
    model_dir: Path
    """Holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``."""

    @field_validator("model_dir")
    @classmethod
    def _absolute(cls, given: Path) -> Path:
        return given.expanduser().absolute()


class HTTPSettings(StrictSettings):
    """A model behind an OpenAI-shaped ``/v1/embeddings``, such as Ollama, vLLM or a vendor."""

    model_config = _HIDING

    kind: Literal["http"] = "http"
    url: str = Field(max_length=2_000)
    """Where it is: the server (``http://localhost:11434``), its ``…/v1``, or the full ``…/embeddings``."""
    model: str = Field(min_length=1, max_length=200)
    dimensions: int = Field(ge=1, le=16_384)
    """How many numbers the model's vectors have; an answer with others is refused."""
    api_key_env: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the environment variable that holds the key; None = the server asks for none."""
    timeout_s: float = Field(default=30.0, gt=0, le=600, allow_inf_nan=False)
    """Of one request."""
    batch: int = Field(default=64, ge=1, le=2_048)
    """Most texts of one request."""

    @field_validator("url")
    @classmethod
    def _plain(cls, given: str) -> str:
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("give an address that begins with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("leave name and password out of the address; name a variable with api_key_env")
        return given


EmbedderSettings: TypeAlias = Annotated[
    HashingSettings | MiniLMSettings | HTTPSettings, Field(discriminator="kind")
]


class MemorySettings(StrictSettings):
    """Where a runtime's memory lies, what embeds its texts, and when it gets an index."""

    model_config = _HIDING

    uri: str | None = Field(default=None, min_length=1, max_length=4_096)
    """A directory, or an address LanceDB knows such as ``s3://bucket/memory``; None = beside the journal."""
    storage_options: Mapping[str, SecretStr] = {}
    """What LanceDB needs to reach an address: region, keys. Never shown."""
    embedder: EmbedderSettings = HashingSettings()
    ann_above: int | None = Field(default=None, ge=1)
    """More records than this are searched by an approximate index instead of a matrix in memory; None = the
    store's own choice."""

    @field_validator("uri")
    @classmethod
    def _absolute(cls, given: str | None) -> str | None:
        path = None if given is None else directory_of(given)
        return given if path is None else str(path)

    def uri_in(self, state_dir: Path) -> str:
        """Return where the memory of a state directory lies."""
        return str(state_dir / MEMORY_DIR) if self.uri is None else self.uri

    def directory_in(self, state_dir: Path) -> Path | None:
        """Return the local directory it lies in; None where it is elsewhere."""
        return directory_of(self.uri_in(state_dir))

    def revealed_options(self) -> dict[str, str]:
        """Return the storage options as LanceDB takes them, keys in plain text."""
        return {name: value.get_secret_value() for name, value in self.storage_options.items()}
