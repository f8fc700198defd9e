"""Requests that wait for a person, for programs that look at them instead of being asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.senders import Sender
from sessiontree.sync.blocking_bridge import Crossing

if TYPE_CHECKING:
    from sessiontree.api import inbox as desk


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """One request that waits for a person."""

    request: ApprovalRequest
    _pending: desk.PendingApproval
    _crossing: Crossing

    def approve(self, *, always: bool = False, reason: str = "", sender: Sender | str | None = None) -> None:
        """Say yes: once, or to every later call of the tool in this tree.

        Raises:
            ApprovalClosed: it was decided meanwhile.
            PermissionDenied: a sender is named who does not own the tree; the request waits on.
        """
        self._crossing.run(self._pending.approve, always=always, reason=reason, sender=sender)

    def deny(self, reason: str = "", *, sender: Sender | str | None = None) -> None:
        """Say no; the same call stays denied on this path until the tree ends.

        Raises:
            ApprovalClosed: it was decided meanwhile.
            PermissionDenied: a sender is named who does not own the tree; the request waits on.
        """
        self._crossing.run(self._pending.deny, reason, sender=sender)


class Approvals:
    """The requests of a tree that wait for a person."""

    def __init__(self, approvals: desk.Approvals, crossing: Crossing) -> None:
        """Bind the tree's."""
        self._approvals = approvals
        self._crossing = crossing

    def pending(self) -> list[PendingApproval]:
        """Return the requests that wait for a person, oldest first, also those just asked."""
        waiting: list[desk.PendingApproval] = self._crossing.run(self._approvals.pending)
        return [PendingApproval(pending.request, pending, self._crossing) for pending in waiting]
