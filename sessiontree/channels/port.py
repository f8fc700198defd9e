"""What a channel is to the runtime: a way to tell a person something, and to ask."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest


class HumanChannel(Protocol):
    """A person, or a program that stands for one.

    A channel may bring tools along, such as one that links a device: a sequence of them in an attribute
    ``tools``. They join the tree's own before any policy judges them, and are gone where the channel is not
    given again. One with a ``name`` is called that towards plugins.
    """

    async def send(self, text: str) -> None:
        """Deliver a message."""
        ...

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show a request and return the answer; None = answered elsewhere, or not here.

        Contract: cancelled when the request is decided by other means; must then leave nothing on the screen
        that asks for an answer.
        """
        ...
