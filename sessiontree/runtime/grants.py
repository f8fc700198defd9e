"""Grants: what a host shows to be heard as a session. Random, given with an adoption, worthless after it.

A grant names one session in one epoch and what may be asked for it. Nothing else a host sends says who it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.contracts.errors import PermissionDenied, SessionClosed
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.runtime.live_session import Seat

Right: TypeAlias = Literal["report", "say", "spawn", "recall", "remember", "forget"]
RIGHTS: dict[SessionKind, frozenset[Right]] = {
    SessionKind.MAIN: frozenset({"report", "say", "spawn", "recall", "remember", "forget"}),
    SessionKind.BRANCH: frozenset({"report", "say", "spawn", "recall", "remember", "forget"}),
    SessionKind.WORKER: frozenset({"report", "recall"}),
}
"""What each kind of session may ask: of its supervisor, and of memory (the last three)."""
TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Grant:
    """Whom a token stands for."""

    seat: Seat
    epoch: int
    rights: frozenset[Right]


class Grants:
    """The tokens that count now. One writer: the supervisor.

    Args:
        on_revoked: Told of each token that counts no more.
    """

    def __init__(self, on_revoked: Callable[[str], None] = lambda token: None) -> None:
        """Begin with none."""
        self._grants: dict[str, Grant] = {}
        self._on_revoked = on_revoked

    def __len__(self) -> int:
        """Return how many count now."""
        return len(self._grants)

    def issue(self, seat: Seat, kind: SessionKind) -> str:
        """Return a fresh token for a seat's epoch; the one before it counts no more."""
        self.revoke(seat)
        token = seat.grant = secrets.token_hex(TOKEN_BYTES)
        self._grants[token] = Grant(seat, seat.epoch, RIGHTS[kind])
        return token

    def revoke(self, seat: Seat) -> None:
        """Let a seat's token count no more."""
        token, seat.grant = seat.grant, ""
        if self._grants.pop(token, None) is not None:
            self._on_revoked(token)

    def check(self, token: object, right: Right) -> Seat:
        """Return the seat a token stands for.

        Raises:
            SessionClosed: the token is unknown, was revoked, or is of another epoch.
            PermissionDenied: sessions of its kind may not ask this.
        """
        grant = self._grants.get(token) if isinstance(token, str) else None
        if grant is None or grant.seat.over or grant.epoch != grant.seat.epoch:
            raise SessionClosed("?", f"asked to {right} with a grant that does not count now")
        if right not in grant.rights:
            reason = f"{grant.seat.session} may not ask to {right}: its kind holds no such right"
            raise PermissionDenied(PermissionTier.WORKSPACE, reason)
        return grant.seat
