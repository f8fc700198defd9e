"""The runtime itself, as a tool of an owner sees it: its state, the owner's configuration, its hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

NO_CONFIGURATION: Final = "this tree was opened without a configuration of its owner's"
"""Message of the error where a session asks for one."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool of hosts."""

    name: str
    most: int
    """Maximum number of its hosts, not counting those of dedicated sessions."""
    hosts: int
    """All its hosts now, those that start included."""
    occupied: int
    """Hosts at which a session is."""
    waiting: int
    """Sessions that wait for a host."""
    retiring: int
    """Hosts that end once their session is at rest."""


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """What a runtime does now. Counts are over all its open trees."""

    version: str
    trees: int
    sessions: int
    """Sessions that have not ended."""
    timed_jobs: int
    model_requests: int
    """Questions to models that have no answer yet."""
    memory_bytes: int
    """Memory that the supervisor's process alone holds."""
    pools: tuple[PoolStatus, ...]


@dataclass(frozen=True, slots=True)
class RestartReport:
    """What became of the hosts when they were to be replaced."""

    ended: int
    """Hosts that ended at once: no session was at them, or one at rest."""
    retiring: int
    """Hosts that first finish the work of their session; the host that asks is one of them."""
    dedicated: int
    """Hosts that stay: each belongs to one session for its life."""


@dataclass(frozen=True, slots=True)
class StoredConfiguration:
    """The owner's configuration as its file has it. What could be a secret is replaced."""

    is_there: bool
    """False: the file does not exist yet, and all members have their defaults."""
    sha256: str
    """Of the file's bytes, in hexadecimal; of no bytes without a file."""
    values: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """A change of the owner's configuration that is durable."""

    sha256: str
    """Of the bytes of the new file, in hexadecimal."""
    changed: tuple[str, ...]
    """Names of the top-level members that differ, sorted."""


class OwnerConfiguration(Protocol):
    """The owner's configuration, as a runtime opens it. A tool uses it through ``RuntimeControl``."""

    async def read(self) -> StoredConfiguration:
        """Return the configuration.

        Raises:
            ExecutionError: the file can't be read, or is not on this machine.
        """
        ...

    async def schema(self) -> Mapping[str, JsonValue]:
        """Return its JSON Schema."""
        ...

    async def patch(self, base_sha256: str, patch: Mapping[str, JsonValue]) -> ConfigurationChange:
        """Apply a JSON merge patch (RFC 7396) to it; all of it, or nothing.

        Args:
            base_sha256: Hash of the bytes that the patch is for, in hexadecimal.
            patch: Members to set; null removes one.

        Raises:
            ValidationError: the file has other bytes than those of the hash, or the result is not valid;
                names the member.
            ExecutionError: the file can't be read or written, or is not on this machine.
        """
        ...


class RuntimeControl(Protocol):
    """The runtime in which a session runs."""

    @property
    def backend(self) -> Literal["local", "ray"]:
        """What the runtime runs on."""
        ...

    async def status(self) -> RuntimeStatus:
        """Return what the runtime does."""
        ...

    async def restart(self) -> RestartReport:
        """Replace the hosts. Each finishes the work of its session first; then a new one goes on with it."""
        ...

    async def read_configuration(self) -> StoredConfiguration:
        """Return the owner's configuration.

        Raises:
            ExecutionError: the tree was opened without one, or its file can't be read here.
        """
        ...

    async def configuration_schema(self) -> Mapping[str, JsonValue]:
        """Return the JSON Schema of the owner's configuration.

        Raises:
            ExecutionError: the tree was opened without one.
        """
        ...

    async def patch_configuration(
        self, base_sha256: str, patch: Mapping[str, JsonValue]
    ) -> ConfigurationChange:
        """Apply a JSON merge patch (RFC 7396) to the owner's configuration; all of it, or nothing.

        No running tree reads the configuration again, so no change of it reaches one.

        Args:
            base_sha256: Hash of the bytes that the patch is for, in hexadecimal.
            patch: Members to set; null removes one.

        Raises:
            ValidationError: the file has other bytes than those of the hash, or the result is not valid;
                names the member.
            ExecutionError: the tree was opened without one, or its file can't be read or written here.
        """
        ...
