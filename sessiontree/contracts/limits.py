"""Numbers that bound a tree, and amounts a session may spend."""

from __future__ import annotations

from pydantic import Field

from sessiontree.contracts.settings import StrictSettings


class Limits(StrictSettings):
    """Bounds of one tree; all are checked before anything starts."""

    max_depth: int = Field(default=4, ge=1, le=64)
    """Deepest level; Main is 0, a Branch at most one above this, a Worker at most this."""
    max_children: int = Field(default=8, ge=0)
    """Live children of one session at a time."""
    max_live: int = Field(default=256, ge=1)
    """Sessions of the tree that have not ended."""
    max_total: int = Field(default=10_000, ge=1)
    """Sessions the tree may ever have."""
    max_turns: int = Field(default=50, ge=1)
    """Model calls a session makes for one incoming message."""
    tool_timeout_s: float = Field(default=120.0, gt=0)
    """Longest run of one tool call, unless the tool declares its own."""
    approval_expiry_s: float = Field(default=900.0, gt=0)
    """After this an unanswered approval request counts as denied."""
    approval_patience_s: float | None = Field(default=30.0, ge=0)
    """How long a turn waits for a human before the model goes on; 0 = not at all, None = until answered."""
    branch_ttl_s: float | None = Field(default=1800.0, gt=0)
    """Time to live of a Branch, from its first host on; None = none."""
    worker_ttl_s: float | None = Field(default=300.0, gt=0)
    """Time to live of a Worker, from its first host on; None = none."""
    cancel_grace_s: float = Field(default=30.0, ge=0)
    """Time a cancelled session gets to wrap up before its host is taken away."""


class Budget(StrictSettings):
    """Amounts a session and everything below it may spend; None = no cap of its own."""

    tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens together."""
    cost_usd: float | None = Field(default=None, ge=0)
    wall_s: float | None = Field(default=None, gt=0)
    """Seconds from its spawn."""
    tool_calls: int | None = Field(default=None, ge=0)
    sessions: int | None = Field(default=None, ge=0)
    """Sessions below it."""
