"""What the creating program gets back from a session."""

from __future__ import annotations

from dataclasses import dataclass

from sessiontree.contracts.messages import ToolResultMessage


@dataclass(frozen=True, slots=True)
class Reply:
    """The last word for a message, or why there is none."""

    text: str
    error: str | None


@dataclass(frozen=True, slots=True)
class CallReply:
    """The result of a call asked from outside."""

    outcome: str
    message: ToolResultMessage
