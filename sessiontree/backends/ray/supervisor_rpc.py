"""How hosts, gateway and memory call their supervisor, and hosts memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from sessiontree.backends.ray.wire import opened, packed
from sessiontree.contracts.errors import MemoryFailed, words_of
from sessiontree.contracts.ports import SessionReport, SpawnRequest
from sessiontree.contracts.senders import Principal
from sessiontree.runtime.host_link import HostLost
from sessiontree.runtime.memory_protocol import Ended, MemoryRight, ScopeAnswer
from sessiontree.runtime.rpc_response import RpcResponse

LAST_WORDS_S = 2.0


class RemoteServices:
    """The supervisor's services, by one actor call each; a grant says for whom.

    Args:
        supervisor: The supervisor's actor.
        key: What this process shows for what is not asked for a session.
    """

    def __init__(self, supervisor: Any, key: str) -> None:
        self._supervisor = supervisor
        self._key = key

    async def spawn(
        self,
        grant: str,
        request: SpawnRequest,
        key: str,
        forbidden: str | None = None,
        asked_by: tuple[Principal, ...] = (),
    ) -> str:
        """Spawn a child of the session; returns its id."""
        session: str = await self._ask(grant, "spawn", request, key, forbidden, asked_by)
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

    async def memory(self, grant: str) -> RemoteMemory:
        """Return the way to memory."""
        return RemoteMemory(await self._ask(grant, "memory"))

    async def begun(self, pid: int) -> None:
        """Say that memory begins, in a process of that id."""
        await self._ask(self._key, "begun", pid)

    async def whose(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Say for each grant whom it stands for."""
        told: ScopeAnswer = await self._ask(self._key, "whose", tuple(wanted))
        return told

    async def ended_of(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return those trees of the journal whose Main has completed."""
        ended: Sequence[Ended] = await self._ask(self._key, "ended_of", tuple(tree_ids))
        return ended

    def last_words(self, grant: str, reason: str) -> None:
        """Say, from a thread, why this process is about to end."""
        ray.get(self._supervisor.serve.remote(grant, "last_words", packed((reason,))), timeout=LAST_WORDS_S)

    async def _ask(self, token: str, name: str, *given: Any) -> Any:
        answer: RpcResponse = opened(await self._supervisor.serve.remote(token, name, packed(given)))
        return answer.taken()


class RemoteMemory:
    """Memory, by one actor call each.

    Args:
        actor: Memory's actor.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def ask(self, grant: str, name: str, given: tuple[Any, ...]) -> Any:
        """Return its answer.

        Raises:
            HostLost: it was lost meanwhile.
            MemoryFailed: it runs and can't answer.
        """
        try:
            data = await self._actor.answer.remote(grant, name, packed(given))
        except RayActorError as error:
            raise HostLost(words_of(error).splitlines()[0]) from None
        except RayTaskError as error:
            reason = f"its process can't begin: {words_of(error.cause)}; try again, or go on without it"
            raise MemoryFailed(name, reason) from None
        answer: RpcResponse = opened(data)
        return answer.taken()
