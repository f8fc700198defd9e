"""The runtime: its open trees, its processes, and its protection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.supervisor_api import ActorRow, RuntimeApi


class RuntimeAnswers(RuntimeApi):
    """Answers questions about the runtime.

    Args:
        supervisor: The supervisor.
        security: Looks up how its engine is protected; None = it runs on no engine.
    """

    def __init__(
        self, supervisor: Supervisor, security: Callable[[], Mapping[str, JsonValue]] | None
    ) -> None:
        self._supervisor = supervisor
        self._security = security

    async def is_open(self, tree_id: str) -> bool:
        """Whether a tree is open here."""
        return tree_id in self._supervisor.trees

    async def open_trees(self) -> list[str]:
        """Return the ids of all open trees, in the order they were opened."""
        return list(self._supervisor.trees)

    async def live_sessions(self) -> int:
        """Return how many sessions of all open trees have not ended."""
        return sum(controller.state.live for controller in self._supervisor.trees.values())

    async def actors(self) -> list[ActorRow]:
        """Return every process of the runtime, and the session it embodies."""
        return self._supervisor.actors()

    async def security(self) -> Mapping[str, JsonValue] | None:
        """Return how the engine of the runtime is protected; None = it runs without an engine.

        The lookup runs in a thread.
        """
        return None if self._security is None else await asyncio.to_thread(self._security)
