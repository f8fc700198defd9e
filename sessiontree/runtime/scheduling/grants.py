"""Grants: random tokens by which a host identifies its session. Each is valid during one adoption only.

A grant stands for one session in one epoch and for the rights of its kind. The supervisor identifies a
session by nothing else that a host sends.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Literal, TypeAlias

from sessiontree.contracts.errors import PermissionDenied, SessionClosed
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.scheduling.live_session import LiveSession

Right: TypeAlias = Literal[
    "report", "say", "show", "see", "spawn", "look", "direct", "command", "publish", "schedule", "operate",
    "call", "recall", "remember", "forget",
]  # fmt: skip
_ACTING: frozenset[Right] = frozenset(
    {
        "report", "say", "show", "see", "spawn", "look", "direct", "command", "publish", "operate", "call",
        "recall", "remember", "forget",
    }
)  # fmt: skip
RIGHTS: dict[SessionKind, frozenset[Right]] = {
    SessionKind.MAIN: _ACTING | {"schedule"},
    SessionKind.BRANCH: _ACTING,
    SessionKind.WORKER: frozenset({"report", "call", "recall"}),
}
"""The requests that each kind of session may make, to its supervisor and (the last three) to memory. ``look``
and ``direct``: see, and stop or write to, the sessions below. ``command``: run commands in a container.
``publish``: publish pages on this machine. ``show``: change the session's canvas, and ask its frames.
``see``: ask the agent's image model. ``call``: call tools of MCP servers, each under its own tier.
``schedule``: see and change timed jobs. ``operate``: see the runtime's
state, and have its hosts replaced."""
TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Grant:
    """The session that a token belongs to."""

    live: LiveSession
    epoch: int
    rights: frozenset[Right]


class Grants:
    """The tokens that are valid now. Only the supervisor changes them.

    Args:
        on_revoked: Called with each token that is no longer valid.
    """

    def __init__(self, on_revoked: Callable[[str], None] = lambda token: None) -> None:
        self._grants: dict[str, Grant] = {}
        self._on_revoked = on_revoked

    def __len__(self) -> int:
        """Return how many are valid now."""
        return len(self._grants)

    def issue(self, live: LiveSession, kind: SessionKind) -> str:
        """Return a new token for a session's epoch; the previous one is no longer valid."""
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
            raise SessionClosed(
                "?", f"asked to {right} with a grant that is not valid now; its host has let it go"
            )
        if right not in grant.rights:
            reason = f"{grant.live.session} may not {right}: a {grant.live.kind} does not have that right"
            raise PermissionDenied(PermissionTier.WORKSPACE, reason)
        return grant.live
