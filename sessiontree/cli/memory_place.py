"""Memory's place: which store a command means, and which embedder its options name."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pydantic

from sessiontree.cli.tree import state_dir_of
from sessiontree.contracts.errors import ConfigError, MemoryFailed
from sessiontree.memory.embedder import Embedder
from sessiontree.memory.embedders import make_embedder
from sessiontree.memory.hashing_embedder import HashingEmbedder
from sessiontree.memory.settings import EmbedderSettings, MemorySettings
from sessiontree.memory.store import LanceMemoryStore
from sessiontree.memory.stored import NOTHING_YET, open_as_stored, stored_embedder

_EMBEDDER: pydantic.TypeAdapter[EmbedderSettings] = pydantic.TypeAdapter(EmbedderSettings)


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """A store that may be there or not."""

    uri: str

    @classmethod
    def of(cls, workspace: Path | None, state_dir: Path | None, uri: str | None) -> MemoryPlace:
        """Return the store that options name; without any, that of the workspace.

        Raises:
            ConfigError: the workspace is none, or there is no such address.
        """
        try:
            settings = MemorySettings(uri=uri)
        except pydantic.ValidationError as error:
            raise ConfigError(f"--uri: {_told(error)}") from error
        if uri is not None:
            return cls(settings.uri_in(Path()))
        return cls(settings.uri_in(state_dir_of(workspace, state_dir)))

    async def read(self) -> LanceMemoryStore:
        """Open it for reading, beside whoever writes; it can't be searched.

        Raises:
            MemoryFailed: there is none, or it can't be read.
        """
        store, _ = await open_as_stored(self.uri, lock=False)
        return store

    async def thin(self) -> LanceMemoryStore:
        """Open it to forget records.

        Raises:
            MemoryLocked: a runtime writes it.
            MemoryFailed: there is none, or it can't be used.
        """
        store, _ = await open_as_stored(self.uri, lock=True)
        return store

    async def check(self) -> None:
        """Check that there is a store.

        Raises:
            MemoryFailed: there is none, or it can't be read.
        """
        if await self.identity() is None:
            raise MemoryFailed(self.uri, NOTHING_YET)

    async def identity(self) -> str | None:
        """Return the identity of the embedder that made its vectors; None where there is no store."""
        stored = await stored_embedder(self.uri)
        return None if stored is None else stored.identity

    async def embedder(self, named: str | None) -> Embedder:
        """Return the embedder to open it with: the one named, else the one it was made with.

        Raises:
            ConfigError: it was made with another than the default, and none is named.
        """
        if named is not None:
            return embedder_named(named)
        stored, default = await self.identity(), HashingEmbedder()
        if stored not in {None, default.identity}:
            raise ConfigError(
                f"the vectors in {self.uri!r} come from {stored!r}; name its embedder with --embedder: "
                "'minilm model_dir=…' or 'http url=… model=… dimensions=…'"
            )
        return default


def embedder_named(text: str) -> Embedder:
    """Return the embedder an option names.

    Args:
        text: A kind, and its settings behind it: ``hashing``, ``minilm model_dir=…`` or
            ``http url=… model=… dimensions=… api_key_env=…``.

    Raises:
        ConfigError: there is no such kind, a setting is missing or wrong, or its extra is not installed.
    """
    try:
        kind, *given = shlex.split(text)
        members = dict(each.split("=", 1) for each in given)
        settings = _EMBEDDER.validate_python({"kind": kind, **members})
    except pydantic.ValidationError as error:
        raise ConfigError(f"--embedder: {_told(error)}") from error
    except ValueError as error:
        message = "a kind and its settings were expected, such as 'minilm model_dir=/models/minilm'"
        raise ConfigError(f"--embedder: {message}") from error
    return make_embedder(settings)


def _told(error: pydantic.ValidationError) -> str:
    """Return what is wrong with which setting, without what was given."""
    return ", ".join(
        ".".join(map(str, each["loc"][1:])) + (": " if each["loc"][1:] else "") + each["msg"]
        for each in error.errors(include_url=False, include_input=False)
    )
