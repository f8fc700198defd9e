"""A channel that keeps what it is told, for programs that look when they like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.message_policy import MessagePolicy
from sessiontree.contracts.tiers import SystemAnswer


class QueueChannel:
    """Messages wait in ``messages``; requests wait in the tree until somebody answers them there."""

    def __init__(
        self,
        owners: Sequence[str] = (),
        system_tier: SystemAnswer = "allow",
        message_policy: MessagePolicy | None = None,
    ) -> None:
        """Begin with nothing said.

        Args:
            owners: Ids of the senders who own the tree, where several people speak.
            system_tier: What becomes of System calls in trees that people talk to here.
            message_policy: What Branches of those trees may send.
        """
        self.owners = owners
        self.system_tier = system_tier
        self.message_policy = message_policy
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, text: str) -> None:
        """Keep a message."""
        self.messages.put_nowait(text)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Leave the request pending."""
        return None
