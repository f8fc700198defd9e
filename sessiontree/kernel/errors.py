"""What goes wrong between supervisor and host; never leaves the kernel."""

from __future__ import annotations


class HostLost(Exception):  # noqa: N818 - it is an event, and the scheduler answers it
    """The host is gone; what it had not reported is lost."""
