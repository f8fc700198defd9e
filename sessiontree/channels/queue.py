"""A channel that keeps what it is told, for programs that look when they like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest


class QueueChannel:
    """Messages wait in ``messages``; requests wait in the tree until somebody answers them there."""

    def __init__(self, owners: Sequence[str] = ()) -> None:
        """Begin with nothing said; ``owners`` are the ids of the senders who own the tree."""
        self.owners = owners
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, text: str) -> None:
        """Keep a message."""
        self.messages.put_nowait(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Leave the request pending."""
        return None
