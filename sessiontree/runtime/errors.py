"""What goes wrong between supervisor and host."""

from __future__ import annotations


class HostLost(Exception):
    """The host is gone for good; its session is embodied elsewhere, or ends where it is to blame.

    Args:
        reason: What is known of its end.
        to_blame: Whether the session's own work brought it about, so that trying again would too.
        served: Whether it ever was ready to serve.
    """

    def __init__(self, reason: str, to_blame: bool = False, served: bool = True) -> None:
        """Keep what is known."""
        super().__init__(reason, to_blame, served)
        self.reason = reason
        self.to_blame = to_blame
        self.served = served

    def __str__(self) -> str:
        """Return the reason alone."""
        return self.reason
