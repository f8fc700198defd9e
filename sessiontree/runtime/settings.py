"""What the processes of one runtime are started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.scheduler import PoolSize

ACTING: Final = "acting"
"""Pool of hosts for Main and Branch."""
OBSERVING: Final = "observing"
"""Pool of hosts for Workers: their processes are read-only."""


def pool_of(kind: SessionKind) -> str:
    """Return the pool that embodies sessions of a kind."""
    return OBSERVING if kind is SessionKind.WORKER else ACTING


def hidden_places(state_dir: Path, memory: MemorySettings) -> tuple[Path, ...]:
    """Return what no tool and no Worker may see: the state directory, and memory where it lies elsewhere."""
    directory = memory.directory_in(state_dir)
    if directory is None or directory.is_relative_to(state_dir):
        return (state_dir,)
    return (state_dir, directory)


@dataclass(frozen=True, slots=True)
class Settings:
    """One runtime's choices, and where its Ray keeps things."""

    state_dir: Path
    """Hidden from tools and Workers; memory lies there."""
    journal_dir: Path
    """The state directory, or one beneath it."""
    program_pid: int
    """The creating program's process."""
    program_started: int
    """When that was started, as the kernel counts: its id may be given to another one later."""
    python: str | None
    """Shell words that start Python, where the program's Ray job has its own."""
    node_id: str
    """Node of the state directory, in hex; every process of the runtime runs there."""
    logs_dir: Path
    """The only place a Worker's process may write to: no Ray worker starts without it."""
    unseen_s: float
    """How long a process that is to start may be unseen before it counts as dead."""
    token_path: Path | None
    """Hidden from Workers."""
    scratch: Path
    """Where what Workers must fail to change is put, and what they are started with."""
    reports: Path
    """Where hosts' reapers say how many processes they ended."""
    program: Path
    """Where copies of the creating program's modules are; beneath the state directory, and no secret."""
    pool: PoolSize
    """Of each pool."""
    warm: int
    """Hosts of each pool started before anybody wants one."""
    host_bytes: int
    """Most memory one host may hold."""
    gateway_bytes: int
    """Most memory the gateway may hold."""
    memory: MemorySettings
    memory_bytes: int
    """Most memory that memory's process may hold."""
    pass_env: tuple[str, ...]
    """Variables of the program's environment that hosts get beside harmless ones."""
    enforcement: Literal["required", "best_effort"]
    """Whether Workers run where the kernel can't confine them."""
    security: Mapping[str, JsonValue]
    """What protects this Ray, as the creating program found it; told to people, never acted on."""
