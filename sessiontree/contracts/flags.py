"""Flags: what a tool says of itself besides its tier and its capabilities.

Source: seed 000, section 10.
"""

from __future__ import annotations

from enum import StrEnum


class ToolFlag(StrEnum):
    """One thing a tool declares; it narrows what the tool is for, and never gives a right."""

    OWNER_ONLY = "owner_only"
    """Only owners may have it called: other requesters don't hold it, and are refused if they try."""
    OPTIONAL = "optional"
    """A plugin's tool that is left out unless an allow list names it, its plugin or ``group:plugins``."""
    BACKGROUND = "background"
    """Can leave work running behind its result."""
    PTY = "pty"
    """Can give a command a terminal."""
    ELEVATED = "elevated"
    """Can be asked to run outside the confinement; such a call is Elevated."""
    WORKSPACE_ONLY = "workspace_only"
    """Touches nothing outside the workspace."""
