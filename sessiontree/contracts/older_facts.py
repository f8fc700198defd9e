"""Upcasters: the shapes of facts in older journals, and the steps that convert each to its next version.

A step takes the JSON object of one version and returns that of the next. It is pure and never changes its
argument. A step is never edited once a release has written the resulting version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Wire: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[Wire], Wire]
"""Takes a fact of version v and returns it as of v + 1; pure, never changes its argument."""

_TIERS: Final = {"ReadOnly": 0, "Workspace": 1, "System": 2, "Elevated": 3}
"""Maps labels to tiers; older questions to approver functions contain a tier's label."""


def _call_first(wire: Wire) -> Wire:
    """Move the members that describe the call into an object of their own."""
    names = ("key", "tool", "arguments", "digest", "tier", "repeatable")
    rest = {name: value for name, value in wire.items() if name not in names}
    return {**rest, "call": _checked(wire)}


def _checked(wire: Wire) -> Wire:
    """Return the checked call of a fact; members that the fact lacks were never used."""
    return {
        "kind": "checked_call",
        "v": 1,
        "key": wire.get("key", ""),
        "tool": wire["tool"],
        "arguments": wire["arguments"],
        "digest": wire.get("digest", ""),
        "tier": wire.get("tier", 0),
        "repeatable": wire.get("repeatable", False),
    }


def _question(wire: Wire, session: str) -> Wire:
    return {
        "kind": "approval_question",
        "v": 1,
        "request_id": wire["request_id"],
        "session": session,
        "call": _checked(wire),
        "asked_by": wire.get("asked_by", []),
    }


def _approval_requested(wire: Wire) -> Wire:
    return {
        "question": _question(wire, wire["session"]),
        "expires_at_ms": wire["expires_at_ms"],
        "at_ms": wire["at_ms"],
        "precedent": wire.get("precedent"),
    }


def _approver_consulted(wire: Wire) -> Wire:
    numbered = {**wire, "tier": _TIERS[wire["tier"]]}
    return {"question": _question(numbered, wire["requester"])}


def _approver_asked(wire: Wire) -> Wire:
    return {"at_ms": wire["at_ms"], **_approver_consulted(wire)}


def _trouble(wire: Wire, reason: str) -> Wire:
    return {
        "kind": "tool_given_up",
        "v": 1,
        "tool": wire["tool"],
        "attempts": wire["attempts"],
        "field": wire["field"],
        "reason": reason,
    }


def _child_trouble_noted(wire: Wire) -> Wire:
    return {"child": wire["child"], "trouble": _trouble(wire, wire["reason"])}


def _child_troubled(wire: Wire) -> Wire:
    return {
        "at_ms": wire["at_ms"],
        "post_id": wire["post_id"],
        "child": wire["child"],
        "trouble": _trouble(wire, wire["message"]),
        "taint": wire.get("taint", ""),
    }


def _client_call_opened(wire: Wire) -> Wire:
    call = {
        "kind": "client_call",
        "v": 1,
        "call_id": wire["client_id"],
        "session_id": wire["session"],
        "tool": wire["tool"],
        "arguments": wire["arguments"],
        "expires_at_ms": wire["expires_at_ms"],
    }
    return {"call": call}


def _single(wire: Wire) -> Wire:
    """Return a fact of a version that held no other facts."""
    return wire


STEPS: Final[Mapping[tuple[str, int], Step]] = {
    ("approval_requested", 1): _approval_requested,
    ("approval_wanted", 1): _call_first,
    ("approver_asked", 1): _approver_asked,
    ("approver_consulted", 1): _approver_consulted,
    ("call_delegated", 1): _call_first,
    ("call_intended", 1): _call_first,
    ("call_resolved", 1): _single,
    ("child_trouble_noted", 1): _child_trouble_noted,
    ("child_troubled", 1): _child_troubled,
    ("client_call_opened", 1): _client_call_opened,
    ("message_received", 1): _single,
    ("opened", 1): _single,
    ("session_ended", 1): _single,
    ("turn_replied", 1): _single,
}
"""Maps current kind and version to the step to the next version."""

NESTED: Final[Mapping[str, tuple[str, ...]]] = {
    "call_resolved": ("turn",),
    "message_received": ("turn",),
    "opened": ("task", "turn"),
    "posted": ("stimulus",),
    "session_ended": ("charged", "report"),
    "turn_replied": ("finished",),
}
"""Maps a kind to its members that contain another recorded value, which has its own versions."""
