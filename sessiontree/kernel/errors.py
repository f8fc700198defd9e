"""What goes wrong between supervisor and host; never leaves the kernel."""

from __future__ import annotations


class HostLost(Exception):
    """The host is gone; what it had not reported is lost."""
