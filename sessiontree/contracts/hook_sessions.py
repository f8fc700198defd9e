"""What hooks of sessions, of spawning and of messages are shown, and what they may answer.

Source of the points: the system that seed 001 describes; its merge rules are those of calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.spec import Via

Speaker: TypeAlias = Literal["user", "parent", "child", "notice", "model", "thought", "channel"]
"""Whose words: of who sent a message; of the session's model, which says or thinks them; or said on a channel
by a tool."""


@dataclass(frozen=True, slots=True)
class Words:
    """A message on its way; rewrite it with ``dataclasses.replace(words, text=…)``.

    Of what a hook returns, the text alone is taken.
    """

    text: str
    """Never blank."""
    speaker: Speaker
    message_id: str = ""
    """Of a message to the session; empty for what goes out."""


@dataclass(frozen=True, slots=True)
class Spawning:
    """A child that a session, or the creating program on its behalf, is about to ask for."""

    kind: SessionKind
    task: str
    label: str | None
    agent: str | None
    """None = the parent's."""
    via: Via


@dataclass(frozen=True, slots=True)
class Reword:
    """The child is asked for with this task or label; None leaves what was there."""

    task: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class StartedSession:
    """A session that exists from now on."""

    session_id: str
    kind: SessionKind
    agent_id: str
    task: str
    """Empty for Main."""
    label: str | None
    via: Via


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session that has reached its final state."""

    session_id: str
    status: SessionStatus
    summary: str
    """Its last word, or why it ended."""
    output: JsonValue
    forced: bool
    """Whether it was ended without its own wrap-up."""
