"""Live channel: a channel on the terminal a live tree is drawn on; the tree yields while it is used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest


class YieldingChannel:
    """Has the terminal for itself while it tells or asks a person.

    Args:
        channel: Tells and asks.
        lent: Frees the terminal for as long as its context is open.
    """

    def __init__(self, channel: HumanChannel, lent: Callable[[], AbstractContextManager[None]]) -> None:
        self._channel = channel
        self._lent = lent

    async def send(self, text: str) -> None:
        """Deliver a message."""
        with self._lent():
            await self._channel.send(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and return the answer."""
        with self._lent():
            return await self._channel.ask(request)
