"""Settings of a runtime's memory: where it is, and which embedder it uses. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator

from sessiontree.contracts.settings.settings import StrictSettings
from sessiontree.memory.place import resolve_directory

MEMORY_DIR: Final = "memory"
"""Name of the store's directory in a state directory."""

_OF_STORES: Final = ("AWS_", "AZURE_", "GOOGLE_", "LANCE")
"""Prefixes of the environment variables that LanceDB reads for an address."""

_HIDING = ConfigDict(hide_input_in_errors=True, protected_namespaces=())


class HashingSettings(StrictSettings):
    """The default: hashes words and parts of words into 384 numbers. It knows spelling, not meaning."""

    model_config = _HIDING

    kind: Literal["hashing"] = "hashing"
    """Names these settings in a file."""


class MiniLMSettings(StrictSettings):
    """A MiniLM sentence model from a local directory, computed in numpy. Needs ``sessiontree[minilm]``."""

    model_config = _HIDING

    kind: Literal["minilm"] = "minilm"
    """Names these settings in a file."""
    model_dir: Path
    """Holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``."""

    @field_validator("model_dir")
    @classmethod
    def _absolute(cls, given: Path) -> Path:
        return given.expanduser().absolute()


class HTTPSettings(StrictSettings):
    """A server with OpenAI's ``/v1/embeddings``, such as Ollama, vLLM or a vendor."""

    model_config = _HIDING

    kind: Literal["http"] = "http"
    """Names these settings in a file."""
    url: str = Field(max_length=2_000)
    """The server (``http://localhost:11434``), its ``…/v1``, or the full ``…/embeddings``."""
    model: str = Field(min_length=1, max_length=200)
    """Name of the model, as the server knows it."""
    dimensions: int = Field(ge=1, le=16_384)
    """How many numbers one vector of the model has. Answers with other vectors are refused."""
    api_key_env: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the environment variable that holds the key; None = the server needs no key."""
    timeout_s: float = Field(default=30.0, gt=0, le=600, allow_inf_nan=False)
    """Seconds for one request."""
    batch: int = Field(default=64, ge=1, le=2_048)
    """How many texts one request holds at most."""

    @field_validator("url")
    @classmethod
    def _check_plain(cls, given: str) -> str:
        parts = urlsplit(given)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("give an address that begins with http:// or https://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("leave name and password out of the address; name a variable with api_key_env")
        return given


EmbedderSettings: TypeAlias = Annotated[
    HashingSettings | MiniLMSettings | HTTPSettings, Field(discriminator="kind")
]
"""What turns texts into vectors; ``kind`` says which."""


class MemorySettings(StrictSettings):
    """Where a runtime's memory is, which embedder it uses, and when it gets a vector index."""

    model_config = _HIDING

    uri: str | None = Field(default=None, min_length=1, max_length=4_096)
    """A directory, or an address of LanceDB such as ``s3://bucket/memory``; None = next to the journal."""
    storage_options: Mapping[str, SecretStr] = {}
    """What LanceDB needs for an address, such as region and keys. Never shown."""
    embedder: EmbedderSettings = HashingSettings()
    ann_above: int | None = Field(default=None, ge=1)
    """With more records than this, searches use an approximate index instead of vectors in memory; None = as
    many records as have 512 MiB of vectors."""

    @field_validator("uri")
    @classmethod
    def _absolute(cls, given: str | None) -> str | None:
        path = None if given is None else resolve_directory(given)
        place = given if path is None else str(path)
        if place is not None and "\0" in place:
            raise ValueError("it holds a NUL character; no path or address does")
        return place

    @field_validator("storage_options")
    @classmethod
    def _check_plain(cls, given: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in given.items():  # LanceDB panics on some of them
            if not name or not f"{name}{value.get_secret_value()}".isprintable():
                raise ValueError(
                    f"option {name!r} has no name, or holds a line break or another control character; "
                    "a key from a file often ends with one"
                )
        return given

    def uri_in(self, state_dir: Path) -> str:
        """Return the path or address of the memory whose journal is in ``state_dir``."""
        return str(state_dir / MEMORY_DIR) if self.uri is None else self.uri

    def directory_in(self, state_dir: Path) -> Path | None:
        """Return the local directory of the memory of ``state_dir``, or None if it is not local."""
        return resolve_directory(self.uri_in(state_dir))

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the embedder's key; None if it needs no key."""
        return self.embedder.api_key_env if isinstance(self.embedder, HTTPSettings) else None

    @property
    def is_remote(self) -> bool:
        """Whether it is at an address of LanceDB, whose keys may be in environment variables."""
        return self.uri is not None and resolve_directory(self.uri) is None

    def reads_variable(self, name: str) -> bool:
        """Whether an environment variable of this name may hold a key or a proxy that it needs."""
        if name == self.key_variable:
            return True
        return self.is_remote and (name.startswith(_OF_STORES) or name.upper().endswith("_PROXY"))

    def without_values(self) -> MemorySettings:
        """Return the settings with the names of the storage options only, for processes that need no key."""
        return self.with_options(dict.fromkeys(self.storage_options, ""))

    def with_options(self, options: Mapping[str, str]) -> MemorySettings:
        """Return the settings with these storage options instead of their own."""
        hidden = {name: SecretStr(value) for name, value in options.items()}
        return self.model_copy(update={"storage_options": hidden})

    def revealed_options(self) -> dict[str, str]:
        """Return the storage options as LanceDB takes them, keys in plain text."""
        return {name: value.get_secret_value() for name, value in self.storage_options.items()}
