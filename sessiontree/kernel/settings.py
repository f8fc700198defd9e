"""What the processes of one runtime are started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.kernel.scheduler import PoolSize

ACTING: Final = "acting"
"""Pool of hosts for Main and Branch."""
OBSERVING: Final = "observing"
"""Pool of hosts for Workers: their processes are read-only."""


def pool_of(kind: SessionKind) -> str:
    """Return the pool that embodies sessions of a kind."""
    return OBSERVING if kind is SessionKind.WORKER else ACTING


@dataclass(frozen=True, slots=True)
class Settings:
    """One runtime's choices, and where its Ray keeps things."""

    state_dir: Path
    node_id: str
    """Node of the state directory, in hex; every process of the runtime runs there."""
    logs_dir: Path
    """The only place a Worker's process may write to: no Ray worker starts without it."""
    token_path: Path | None
    """Hidden from Workers."""
    scratch: Path
    """Where what Workers must fail to change is put, and what they are started with."""
    pool: PoolSize
    """Of each pool."""
    warm: int
    """Hosts of each pool started before anybody wants one."""
    host_bytes: int
    """Most memory one host may hold."""
    gateway_bytes: int
    """Most memory the gateway may hold."""
    enforcement: Literal["required", "best_effort"]
    """Whether Workers run where the kernel can't confine them."""
    security: Mapping[str, JsonValue]
    """What protects this Ray, as the creating program found it; told to people, never acted on."""
