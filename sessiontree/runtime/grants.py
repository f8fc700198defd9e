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
from sessiontree.runtime.live_session import LiveSession

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

    live: LiveSession
    epoch: int
    rights: frozenset[Right]


class Grants:
    """The tokens that count now. One writer: the supervisor.

    Args:
        on_revoked: Told of each token that counts no more.
    """

    def __init__(self, on_revoked: Callable[[str], None] = lambda token: None) -> None:
        self._grants: dict[str, Grant] = {}
        self._on_revoked = on_revoked

    def __len__(self) -> int:
        """Return how many count now."""
        return len(self._grants)

    def issue(self, live: LiveSession, kind: SessionKind) -> str:
        """Return a fresh token for a session's epoch; the previous one is no longer valid."""
        self.revoke(live)
        token = live.grant = secrets.token_hex(TOKEN_BYTES)
        self._grants[token] = Grant(live, live.epoch, RIGHTS[kind])
        return token

    def revoke(self, live: LiveSession) -> None:
        """Revoke a session's token."""
        token, live.grant = live.grant, ""
        if self._grants.pop(token, None) is not None:
            self._on_revoked(token)

    def check(self, token: object, right: Right) -> LiveSession:
        """Return the live session that a token belongs to.

        Raises:
            SessionClosed: the token is unknown, was revoked, or is of another epoch.
            PermissionDenied: sessions of its kind may not ask this.
        """
        grant = self._grants.get(token) if isinstance(token, str) else None
        if grant is None or grant.live.over or grant.epoch != grant.live.epoch:
            raise SessionClosed("?", f"asked to {right} with a grant that does not count now")
        if right not in grant.rights:
            reason = f"{grant.live.session} may not ask to {right}: its kind holds no such right"
            raise PermissionDenied(PermissionTier.WORKSPACE, reason)
        return grant.live
