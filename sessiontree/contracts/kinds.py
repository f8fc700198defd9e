"""Kinds and states of a session."""

from __future__ import annotations

from enum import StrEnum


class SessionKind(StrEnum):
    """What a session is for; decides what its context holds."""

    MAIN = "main"
    """Talks to a human through a channel; the root, depth 0."""
    BRANCH = "branch"
    """Thinks and acts on behalf of its parent."""
    WORKER = "worker"
    """A read-only leaf."""


class SessionStatus(StrEnum):
    """Where a session stands. The last four are final."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """Whether the session can never run again."""
        return self not in {SessionStatus.ACTIVE, SessionStatus.SUSPENDED}
