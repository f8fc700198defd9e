"""Requests to a supervisor's process that only the creating program may make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.runtime.supervisor.tree_resources import PackedResources
from sessiontree.runtime.transport.progress import Progress
from sessiontree.runtime.transport.rpc import rpc


class TreeControl(Protocol):
    """Opens and closes the supervisor and its trees."""

    @rpc()
    async def open(self) -> int:
        """Open the journal and start the first hosts; return the id of the process.

        Raises:
            JournalError: the state directory can't be used.
        """
        ...

    @rpc()
    async def create(
        self,
        config: TreeConfig,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Create a tree; durable when this returns. ``again``: it may have been created already."""
        ...

    @rpc()
    async def resume(
        self,
        tree_id: str,
        agents: Mapping[str, AgentConfig],
        resources: PackedResources,
        again: bool = False,
    ) -> None:
        """Resume a tree from the journal. ``again``: it may have been resumed already."""
        ...

    @rpc()
    async def release(self, tree_id: str) -> None:
        """Let a tree go; it stays in the journal."""
        ...

    @rpc()
    async def close(self) -> None:
        """End hosts and gateway, and release the journal."""
        ...


class WatchControl(Protocol):
    """Watches the progress of trees."""

    @rpc()
    async def watch(self, tree_id: str, session: str | None) -> str:
        """Begin to watch progress; return the name of the watch."""
        ...

    @rpc()
    async def unwatch(self, name: str) -> None:
        """End a watch."""
        ...

    @rpc(waits=True)
    async def progress(self, name: str, wait_s: float) -> tuple[tuple[Progress, ...], int]:
        """Return what a watch holds, waiting for the first event, and how many it has dropped so far."""
        ...

    @rpc()
    async def offered(self, name: str) -> int:
        """Return how many events a watch was offered so far."""
        ...


class SupervisorControl(TreeControl, WatchControl, Protocol):
    """All of them."""
