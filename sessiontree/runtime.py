"""What programs start first: pools and supervisor over one state directory, on the backend they choose."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.suggestion import meant
from sessiontree.memory.settings import MemorySettings
from sessiontree.places import absolute_path

if TYPE_CHECKING:
    from sessiontree.backend import Backend

BackendName: TypeAlias = Literal["ray", "local"]
Enforcement: TypeAlias = Literal["required", "best_effort"]
BACKENDS = ("ray", "local")
ENFORCEMENTS = ("required", "best_effort")
LEAST_HOST_BYTES = 128 * 2**20
_LATE = {
    "ray": "sessiontree.actors.backend:RayBackend",
    "local": "sessiontree.local.backend:LocalBackend",
    "desk": "sessiontree.desk:ApprovalDesk",
    "handle": "sessiontree.handle:SessionHandle",
    "hook_desk": "sessiontree.hook_desk:HookDesk",
}
"""What a tree needs once it is opened: the one place that loads a backend, and only the one asked for."""


@cache
def late(name: str) -> Any:
    """Return what a tree needs once it is opened, loaded with the first use."""
    module, _, wanted = _LATE[name].partition(":")
    return getattr(importlib.import_module(module), wanted)


def _remembering(memory: MemorySettings | None) -> dict[str, Any]:
    """Return what a backend is told of memory; nothing where its own place and embedder will do."""
    if memory is None:
        return {}
    if not isinstance(memory, MemorySettings):
        raise ConfigError(f"memory: give MemorySettings, or None, not {memory!r}")
    return {"memory": memory}


class Runtime:
    """Pools and supervisor over one state directory; serves many trees.

    Args:
        state_dir: Where the journal lies; locked while the runtime is open.
        backend: ``ray``: sessions are actors on the Ray the program has initialised, or on a private one that
            ends with the runtime; ``local``: everything runs in this process.
        slots: Most sessions embodied at a time (``ray``: of each pool); None = the backend's own number.
        address: Cluster to connect to, as ``host:port`` or ``auto``. Only ``ray``.
        num_cpus: CPUs of a private Ray; None counts the machine's. Only ``ray``.
        insecure: Allow a private Ray without authentication where ``RAY_AUTH_MODE=disabled`` asks for it.
        kernel_enforcement: ``required``: no Worker runs where the kernel can't make its process read-only;
            ``best_effort``: it runs with what there is, and its status says what that was. Only ``ray``.
        max_host_bytes: Most memory one session's host may hold of its own; what holds more ends, its session
            with it. None = 2 GiB. Only ``ray``.
        memory: Where memory lies, and what embeds its texts; None = beside the journal, texts compared by
            their words.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings of the public door
        self,
        state_dir: str | Path,
        *,
        backend: BackendName = "ray",
        slots: int | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        insecure: bool = False,
        kernel_enforcement: Enforcement = "required",
        max_host_bytes: int | None = None,
        memory: MemorySettings | None = None,
    ) -> None:
        """Choose; ``local`` opens the state directory at once, ``ray`` with the first tree.

        Raises:
            ConfigError: there is no such backend, a setting is out of bounds or of the other backend, or the
                kernel can't confine Workers.
            JournalError: the state directory can't be used.
        """
        if backend not in BACKENDS:
            raise ConfigError(
                f"backend {backend!r} is none of {', '.join(BACKENDS)}{meant(backend, BACKENDS)}"
            )
        for name, number in (("slots", slots), ("num_cpus", num_cpus), ("max_host_bytes", max_host_bytes)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
                raise ConfigError(f"{name} is {number!r}; give a whole number, or None")
        if slots is not None and slots < 1:
            raise ConfigError(f"slots is {slots}; at least 1 session must be embodied to go on")
        if kernel_enforcement not in ENFORCEMENTS:
            raise ConfigError(
                f"kernel_enforcement {kernel_enforcement!r} is none of {', '.join(ENFORCEMENTS)}"
            )
        if max_host_bytes is not None and max_host_bytes < LEAST_HOST_BYTES:
            raise ConfigError(
                f"max_host_bytes is {max_host_bytes:,}; a host needs {LEAST_HOST_BYTES:,} for itself"
            )
        wishes: dict[str, Any] = {
            "address": address,
            "num_cpus": num_cpus,
            "insecure": insecure or None,
            "enforcement": None if kernel_enforcement == "required" else kernel_enforcement,
            "host_bytes": max_host_bytes,
        }
        given = {name: value for name, value in wishes.items() if value is not None}
        if given and backend != "ray":
            raise ConfigError(
                f"only backend 'ray' takes {', '.join(given)}; {backend!r} runs in this process"
            )
        if slots is not None:
            given["slots"] = slots
        given |= _remembering(memory)
        self.state_dir = absolute_path(state_dir, "state_dir")
        self.backend: Backend = late(backend)(self.state_dir, **given)

    async def close(self) -> None:
        """End hosts and supervisor; trees stay in the journal and can be resumed."""
        await self.backend.close()

    async def __aenter__(self) -> Self:
        """Return the runtime."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
