"""How hosts and gateway call their supervisor."""

from __future__ import annotations

from typing import Any

import ray

from sessiontree.actors.wire import opened, packed
from sessiontree.contracts.ports import SessionReport, SpawnRequest
from sessiontree.kernel.answers import Answer

LAST_WORDS_S = 2.0


class RemoteServices:
    """The supervisor's services, by one actor call each; a grant says for whom.

    Args:
        supervisor: The supervisor's actor.
        key: What this host shows for baggage.
    """

    def __init__(self, supervisor: Any, key: str) -> None:
        """Bind the supervisor."""
        self._supervisor = supervisor
        self._key = key

    async def spawn(self, grant: str, request: SpawnRequest, key: str) -> str:
        """Spawn a child of the session; returns its id."""
        session: str = await self._ask(grant, "spawn", request, key)
        return session

    async def say(self, grant: str, text: str) -> None:
        """Say something on the nearest channel at or above the session."""
        await self._ask(grant, "say", text)

    async def report(self, grant: str) -> SessionReport:
        """Return the session's standing."""
        report: SessionReport = await self._ask(grant, "report")
        return report

    async def baggage(self, equipment: str) -> bytes:
        """Return what a host gets for a tree."""
        packed: bytes = await self._ask(self._key, "baggage", equipment)
        return packed

    async def model(self, equipment: str) -> bytes:
        """Return what the gateway gets for a tree."""
        packed: bytes = await self._ask(self._key, "model", equipment)
        return packed

    def last_words(self, grant: str, reason: str) -> None:
        """Say, from a thread, why this process is about to end."""
        ray.get(self._supervisor.serve.remote(grant, "last_words", packed((reason,))), timeout=LAST_WORDS_S)

    async def _ask(self, token: str, name: str, *given: Any) -> Any:
        answer: Answer = opened(await self._supervisor.serve.remote(token, name, packed(given)))
        return answer.taken()
