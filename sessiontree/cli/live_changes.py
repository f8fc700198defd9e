"""Live changes: what happens in a tree, one change at a time, for programs and for plain lines.

Each change is a JSON object of these members, and no others:

- all: ``change`` (its name), ``seq`` (number of its fact), ``at_ms`` (milliseconds since the epoch),
  ``session`` (the path of the session it is about);
- ``session_started``: ``kind``, ``label`` (null for none), ``parent`` (null for Main);
- ``session_ended``: ``status``, ``summary`` (at most 400 characters);
- ``call_started``: ``key`` (names the call within its session), ``tool``, ``arguments``;
- ``arguments_rejected``: ``key``, ``tool``, ``attempt`` (from 1), ``field`` (a JSON pointer, null where none
  is named), ``reason``, ``final`` (whether the tool is refused from now until the next message);
- ``call_ended``: ``key``, ``tool``, ``outcome``, ``display`` (the tool's line for people, null for none);
- ``approval_asked``: ``request_id``, ``tool``, ``arguments``, ``tier``;
- ``approval_decided``: ``request_id``, ``tool``, ``decision``, ``by``, ``reason``.

A call starts where its session's model asks for it, or the creating program does. Every call that is started
ends, unless its session ends first; one that only waits for an approval has not ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessiontree.cli.live_session import call_text
from sessiontree.cli.tree_report import shortened
from sessiontree.contracts.event_display import display_of
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.journal.record import Record, kind_in
from sessiontree.runtime.replay import fact_of

Change = dict[str, Any]


class LiveChanges:
    """Takes facts in, in order, and tells what they change."""

    def __init__(self) -> None:
        self._asked_by: dict[str, tuple[str, str]] = {}
        """Open requests: who asked, and for which tool."""
        self._of_tree: Mapping[str, Callable[[Any], tuple[str, Change]]] = {
            "session_spawned": _started,
            "session_ended": _ended,
            "approval_requested": self._asked,
            "approval_decided": self._decided,
        }

    def of(self, record: Record) -> list[Change]:
        """Return what a fact changes, in order; mostly nothing.

        Raises:
            JournalTooNew, JournalCorrupt: it is no fact of this release.
        """
        kind = kind_in(record.text)
        if record.session:
            tell = _OF_SESSION.get(kind)
            told = [] if tell is None else [(record.session, each) for each in tell(fact_of(record.text))]
        else:
            book = self._of_tree.get(kind)
            told = [] if book is None else [book(fact_of(record.text))]
        return [_change(record, session, members) for session, members in told]

    def _asked(self, fact: Any) -> tuple[str, Change]:
        self._asked_by[fact.request_id] = (fact.session, fact.tool)
        tier = PermissionTier(fact.tier).label
        return fact.session, {
            "change": "approval_asked",
            "request_id": fact.request_id,
            "tool": fact.tool,
            "arguments": dict(fact.arguments),
            "tier": tier,
        }

    def _decided(self, fact: Any) -> tuple[str, Change]:
        session, tool = self._asked_by.pop(fact.request_id, ("", ""))
        return session, {
            "change": "approval_decided",
            "request_id": fact.request_id,
            "tool": tool,
            "decision": fact.decision,
            "by": fact.by,
            "reason": fact.reason,
        }


def line_of(change: Change) -> str | None:
    """Return a change as a line for people, None where it is worth none; not yet safe to be shown."""
    session = change["session"]
    name = change["change"]
    if name == "session_started":
        return f"started {session}: {change['kind']} {change['label'] or ''}".rstrip()
    if name == "session_ended":
        failed = change["status"] != "completed" and change["summary"]
        return f"ended {session}: {change['status']}" + (f": {change['summary']}" if failed else "")
    if name == "call_ended" and change["display"]:
        return f"{session}, {change['tool']}: {change['display']}"
    if name == "arguments_rejected":
        reason = f"{change['reason']} at {change['field']}" if change["field"] else change["reason"]
        end = "; given up until the next message" if change["final"] else ""
        return f"attempt {change['attempt']} of {session} to call {change['tool']}: {reason}{end}"
    if name == "approval_asked":
        return f"asked for approval: {session} wants {call_text(change['tool'], change['arguments'])}"
    if name == "approval_decided":
        why = f", {change['reason']}" if change["reason"] else ""
        return f"{change['decision']} by {change['by']}: {change['tool']} for {session}{why}"
    return None


def _change(record: Record, session: str, members: Change) -> Change:
    return {
        "change": members["change"],
        "seq": record.seq,
        "at_ms": record.at_ms,
        "session": session,
        **{name: value for name, value in members.items() if name != "change"},
    }


def _started(fact: Any) -> tuple[str, Change]:
    spec = fact.spec
    members = {"kind": spec.kind.value, "label": spec.label, "parent": spec.parent}
    return spec.session_id, {"change": "session_started", **members}


def _ended(fact: Any) -> tuple[str, Change]:
    members = {"status": fact.status.value, "summary": shortened(fact.result.summary)}
    return fact.session, {"change": "session_ended", **members}


def _replied(fact: Any) -> list[Change]:
    return [
        _call(f"{fact.turn}.{index}", call.name, call.arguments)
        for index, call in enumerate(fact.message.tool_calls)
    ]


def _opened(fact: Any) -> list[Change]:
    return [_call(fact.key, fact.tool, fact.arguments)]


def _call(key: str, tool: str, arguments: Mapping[str, Any]) -> Change:
    return {"change": "call_started", "key": key, "tool": tool, "arguments": dict(arguments)}


def _rejected(fact: Any) -> list[Change]:
    return [
        {
            "change": "arguments_rejected",
            "key": fact.key,
            "tool": fact.tool,
            "attempt": fact.attempt,
            "field": fact.field,
            "reason": fact.reason,
            "final": fact.final,
        }
    ]


def _resolved(fact: Any) -> list[Change]:
    ended = {"key": fact.key, "tool": fact.message.tool_name, "outcome": fact.outcome}
    return [{"change": "call_ended", **ended, "display": display_of(fact.message)}]


_OF_SESSION: Mapping[str, Callable[[Any], list[Change]]] = {
    "turn_replied": _replied,
    "call_asked": _opened,
    "arguments_rejected": _rejected,
    "call_resolved": _resolved,
}
