"""The settings that the processes of one runtime are started with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from platformdirs import user_config_path, user_state_path

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.settings.placement import Placement, Placements
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.settings import MemorySettings
from sessiontree.runtime.scheduling.pool import PoolSize

ACTING: Final = "acting"
"""Pool of hosts for Main and Branch."""
OBSERVING: Final = "observing"
"""Pool of hosts for Workers: their processes are read-only."""
BRANCHING: Final = "branching"
"""Pool of hosts for Branches, if these have a placement of their own."""


def assign_pools(placements: Placements | None) -> dict[SessionKind, str]:
    """Return the pool whose hosts run the sessions of each kind."""
    is_placed = placements is not None and placements.branch is not None
    return {
        SessionKind.MAIN: ACTING,
        SessionKind.BRANCH: BRANCHING if is_placed else ACTING,
        SessionKind.WORKER: OBSERVING,
    }


def list_placed_pools(placements: Placements | None) -> dict[str, Placement]:
    """Return the pools whose hosts may run on other nodes, with what is asked of these."""
    if placements is None:
        return {}
    pools = assign_pools(placements)
    return {pools[kind]: placement for kind, placement in placements.group_by_kind().items()}


COPIES: Final = "workspaces"
"""Name of the directory of workspaces that children have of their own, in that of the journal."""


def list_hidden_places(state_dir: Path, memory: MemorySettings) -> tuple[Path, ...]:
    """Return the places hidden from tools and Workers: the state directory, and memory's if elsewhere."""
    directory = memory.directory_in(state_dir)
    if directory is None or directory.is_relative_to(state_dir):
        return (state_dir,)
    return (state_dir, directory)


def list_private_places(state_dir: Path, memory: MemorySettings) -> tuple[Path, ...]:
    """Return the places that no copy of a workspace may hold: hidden ones, and the owner's folders."""
    owners = (user_config_path, user_state_path)
    return (
        *list_hidden_places(state_dir, memory),
        *(folder("sessiontree", appauthor=False) for folder in owners),
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """One runtime's settings and the places that its Ray uses."""

    state_dir: Path
    """Hidden from tools and Workers; holds memory unless its settings name another place."""
    journal_dir: Path
    """The state directory, or one beneath it."""
    program_pid: int
    """Process id of the creating program."""
    program_started: int
    """Start time of that process in the kernel's ticks; its id may be used again later."""
    python: str | None
    """Shell words that start Python if the program's Ray job sets them; else None."""
    node_id: str
    """Node of the state directory, in hex; every process of the runtime runs there."""
    logs_dir: Path
    """The only place a Worker's process may write to: no Ray worker starts without it."""
    unseen_s: float
    """How long a process that is starting may be invisible before it counts as dead."""
    token_path: Path | None
    """Ray's token; hidden from Workers. None = Ray uses no token."""
    scratch: Path
    """Holds files that Workers are started with, and files that their self-test must fail to change."""
    reports: Path
    """Where the reapers of hosts report how many processes they ended."""
    program: Path
    """Copies of the creating program's modules; beneath the state directory, and not secret."""
    pool: PoolSize
    """Of each pool."""
    warm: int
    """Hosts of each pool that are started before a session needs one."""
    host_bytes: int
    """Most memory of one host, in bytes."""
    gateway_bytes: int
    """Most memory of the gateway, in bytes."""
    memory: MemorySettings
    """Without the values of its storage options: memory asks the program for them."""
    memory_bytes: int
    """Most memory of the memory process, in bytes."""
    pass_env: tuple[str, ...]
    """Variables of the program's environment that hosts get in addition to the harmless ones."""
    passed: Path | None
    """File with those variables and their values; None where hosts have them from Ray."""
    enforcement: Literal["required", "best_effort"]
    """Whether Workers are refused or run unconfined if the kernel can't confine them."""
    security: Mapping[str, JsonValue]
    """How this Ray is protected, as the creating program found it. It is shown and never acted on."""
    placements: Placements | None = None
    """Which kinds of sessions may run on other nodes, and on which; None = none."""

    @property
    def placed_pools(self) -> dict[str, Placement]:
        """The pools whose hosts may run on other nodes, with what is asked of these."""
        return list_placed_pools(self.placements)
