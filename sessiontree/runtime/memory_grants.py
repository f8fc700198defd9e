"""Whom grants stand for, as memory knows it: by its supervisor alone.

What changes memory is checked at that moment; for searching, an answer is kept until the grant is revoked.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sessiontree.contracts.memory import MemoryScope
from sessiontree.runtime.memory_words import MemoryRight, Whose

MOST_KEPT: Final = 4096
"""Grants kept at a time; each session embodied now has one."""

Ask = Callable[[Sequence[tuple[str, MemoryRight]]], Awaitable[Sequence[Whose]]]


class MemoryGrants:
    """Asks the supervisor whom grants stand for; those that come while it is asked go with the next question.

    Args:
        ask: Asks it, for several at once.
    """

    def __init__(self, ask: Ask) -> None:
        """Begin knowing none."""
        self._ask = ask
        self._kept: OrderedDict[str, MemoryScope] = OrderedDict()
        self._revocations = 0
        self._waiting: list[tuple[str, MemoryRight, asyncio.Future[MemoryScope]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def recall(self, grant: str) -> MemoryScope:
        """Return whom a grant stands for, for searching.

        Raises:
            SessionClosed: it does not count now.
            PermissionDenied: it does not cover that.
        """
        scope = self._kept.get(grant)
        if scope is not None:
            self._kept.move_to_end(grant)
            return scope
        before = self._revocations
        scope = await self.check(grant, "recall")
        if self._revocations == before:
            # What was revoked meanwhile may be this one, said before its answer arrived.
            self._kept[grant] = scope
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return scope

    async def check(self, grant: str, right: MemoryRight) -> MemoryScope:
        """Return whom a grant stands for at this moment; raises as :meth:`recall` does."""
        answer: asyncio.Future[MemoryScope] = asyncio.get_running_loop().create_future()
        self._waiting.append((grant, right, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all())
        return await answer

    def revoke(self, grant: str) -> None:
        """Keep a grant no longer."""
        self._revocations += 1
        self._kept.pop(grant, None)

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                try:
                    answers = await self._ask([(grant, right) for grant, right, _ in asked])
                except Exception as error:  # noqa: BLE001 - whoever waits is told
                    answers = [error] * len(asked)
                for (_, _, waiting), answer in zip(asked, answers, strict=True):
                    if waiting.done():
                        continue
                    if isinstance(answer, Exception):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)
        finally:
            self._asking = None
