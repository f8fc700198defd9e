"""Memory as a process of its own: who may ask what. Hosts show grants, the supervisor a key."""

from __future__ import annotations

import hmac
from typing import Any, Final

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.runtime.answers import Answer, portable
from sessiontree.runtime.memory import MemoryCore

FOR_GRANTS: Final = frozenset({"search", "select", "store", "forget"})
"""What hosts may ask; which of it, their grants say."""
FOR_SUPERVISOR: Final = frozenset({"revoked", "ended"})


class MemoryHost:
    """Answers hosts, and hears its supervisor.

    Args:
        core: Does what is asked.
        key: What the supervisor shows.
    """

    def __init__(self, core: MemoryCore, key: str) -> None:
        """Bind both."""
        self._core = core
        self._key = key

    async def answer(self, grant: str, name: str, given: tuple[Any, ...]) -> Answer:
        """Answer a host, for the session its grant names."""
        if name not in FOR_GRANTS:
            reason = f"asked memory to {name!r}, which no grant allows"
            return Answer("", None, PermissionDenied(PermissionTier.ELEVATED, reason))
        try:
            return Answer("", await getattr(self._core, name)(grant, *given))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            return Answer("", None, portable(error))

    def hear(self, key: str, name: str, given: tuple[Any, ...]) -> None:
        """Hear the supervisor; what shows another key is not heard."""
        if name in FOR_SUPERVISOR and self._is_supervisor(key):
            getattr(self._core, name)(*given)

    async def close(self, key: str) -> None:
        """Let the store go, for the supervisor."""
        if self._is_supervisor(key):
            await self._core.close()

    def _is_supervisor(self, key: str) -> bool:
        return hmac.compare_digest(key.encode("utf-8", "replace"), self._key.encode())
