"""What a channel is to the runtime: a way to tell a person something, and to ask."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.approvals import ApprovalAnswer, ApprovalRequest


class HumanChannel(Protocol):
    """A person, or a program that stands for one.

    A channel may bring tools along, such as one that links a device: a sequence of them in an attribute
    ``tools``. They join the tree's own before any policy judges them, and are gone where the channel is not
    given again. One with a ``name`` is called that towards plugins.

    Where several people speak on a channel, it lists the ids of those who own its trees in an attribute
    ``owners``; the list that was there when a tree was made counts for the tree's whole life. Messages then
    carry their sender, and so do answers: those of others than owners are dropped, and the request asked
    again.

    One with a ``system_tier`` says what becomes of System calls in the trees whose Main's it is: they are
    asked about (``ask``) or refused (``deny``), whatever agents say; ``allow`` leaves it to those. It counts
    as it was when a tree was made.

    One with a ``message_policy``, a MessagePolicy, says which Branches of those trees may send messages, how
    often, and how long one may be. It counts as it was when a tree was made.

    One with a function ``show(tool, display)`` is told the line for people that each tool of the session it
    belongs to gave with its result. It may be async; while it is not done, the next line waits.
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
