"""Changes: what the facts of a tree change, as JSON objects for programs and as lines for people.

Each change is a JSON object of these members, and no others:

- all: ``change`` (its name), ``seq`` (number of its fact), ``at_ms`` (milliseconds since the epoch),
  ``session`` (the path of the session it is about);
- ``session_started``: ``kind``, ``label`` (null for none), ``parent`` (null for Main);
- ``session_ended``: ``status``, ``summary`` (at most 400 characters), and ``cause`` if it says nothing about
  the session's task (``provider``, ``budget``, ``lost``);
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

from sessiontree.cli.live_view import LiveView
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import describe_decision
from sessiontree.contracts.reports.events import describe_failure, get_display
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.journal.record import JournalRecord, read_kind
from sessiontree.journal.replay import read_fact
from sessiontree.view.live_tree import FAILED_CALL, LiveTree
from sessiontree.view.session_panel import call_text

Change = dict[str, Any]

Say = Callable[[str, str], None]
"""Shows a line in a style, empty for none."""

SUMMARY_CHARS = 400
FAILURE = "red"
"""The style of a line about what went wrong."""


class LiveChanges:
    """Processes facts in order and reports what they change."""

    def __init__(self) -> None:
        self._asked_by: dict[str, tuple[str, str]] = {}
        """Open requests: who asked, and for which tool."""
        self._of_tree: Mapping[str, Callable[[Any], tuple[str, Change]]] = {
            "session_spawned": _on_started,
            "session_ended": _on_ended,
            "approval_requested": self._on_asked,
            "approval_decided": self._on_decided,
        }

    def of(self, record: JournalRecord) -> list[Change]:
        """Return the changes of a fact, in order; most facts have none.

        Raises:
            JournalTooNew, JournalCorrupt: it is not a fact of this release.
        """
        kind = read_kind(record.text)
        if record.session:
            tell = _OF_SESSION.get(kind)
            told = [] if tell is None else [(record.session, each) for each in tell(read_fact(record.text))]
        else:
            book = self._of_tree.get(kind)
            told = [] if book is None else [book(read_fact(record.text))]
        return [_change(record, session, members) for session, members in told]

    def _on_asked(self, fact: Any) -> tuple[str, Change]:
        question, call = fact.question, fact.question.call
        self._asked_by[question.request_id] = (question.session, call.tool)
        tier = PermissionTier(call.tier).label
        return question.session, {
            "change": "approval_asked",
            "request_id": question.request_id,
            "tool": call.tool,
            "arguments": dict(call.arguments),
            "tier": tier,
        }

    def _on_decided(self, fact: Any) -> tuple[str, Change]:
        session, tool = self._asked_by.pop(fact.request_id, ("", ""))
        return session, {
            "change": "approval_decided",
            "request_id": fact.request_id,
            "tool": tool,
            "decision": fact.decision,
            "by": fact.by,
            "reason": fact.reason,
        }


def change_text(change: Change) -> str | None:
    """Return a change as a line for people, None if it needs none; the line is not yet safe to show."""
    session = change["session"]
    name = change["change"]
    if name == "session_started":
        return f"started {session}: {change['kind']} {change['label'] or ''}".rstrip()
    if name == "session_ended":
        failed = change["status"] != "completed" and change["summary"]
        how = change.get("cause") or change["status"]
        return f"ended {session}: {how}" + (f": {change['summary']}" if failed else "")
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
        how = describe_decision(change["decision"], change["by"])
        return f"{how}: {change['tool']} for {session}{why}"
    return None


class CallFailures:
    """Tells from the facts of sessions which calls failed, and why."""

    def __init__(self) -> None:
        self._settled: set[tuple[str, str]] = set()
        """Calls whose request was not approved, by session and key: the decision has a line of its own."""

    def of(self, record: JournalRecord) -> tuple[str, ToolResultMessage] | None:
        """Return why the call failed whose result a fact is, and the result; None for any other fact.

        Raises:
            JournalTooNew, JournalCorrupt: it is not a fact of this release.
        """
        kind = read_kind(record.text)
        if kind == "approval_settled":
            fact = read_fact(record.text)
            if fact.decision != "approved":
                self._settled.add((record.session, fact.key))
        if kind != "call_resolved" or FAILED_CALL.search(record.text) is None:
            return None
        fact = read_fact(record.text)
        place = (record.session, fact.key)
        if place in self._settled:
            self._settled.remove(place)
            return None
        reason = describe_failure(fact.message)
        return None if reason is None else (reason, fact.message)


def _is_failure(change: Change) -> bool:
    return change.get("status") == "failed" or change.get("decision") in {"denied", "expired"}


def _change(record: JournalRecord, session: str, members: Change) -> Change:
    return {
        "change": members["change"],
        "seq": record.seq,
        "at_ms": record.at_ms,
        "session": session,
        **{name: value for name, value in members.items() if name != "change"},
    }


def _on_started(fact: Any) -> tuple[str, Change]:
    spec = fact.spec
    members = {"kind": spec.kind.value, "label": spec.label, "parent": spec.parent}
    return spec.session_id, {"change": "session_started", **members}


def _on_ended(fact: Any) -> tuple[str, Change]:
    members = {"status": fact.status.value, "summary": shorten_summary(fact.result.summary)}
    if fact.result.cause:
        members["cause"] = fact.result.cause
    return fact.session, {"change": "session_ended", **members}


def _on_replied(fact: Any) -> list[Change]:
    return [
        _call(f"{fact.turn}.{index}", call.name, call.arguments)
        for index, call in enumerate(fact.message.tool_calls)
    ]


def _on_opened(fact: Any) -> list[Change]:
    return [_call(fact.key, fact.tool, fact.arguments)]


def _call(key: str, tool: str, arguments: Mapping[str, Any]) -> Change:
    return {"change": "call_started", "key": key, "tool": tool, "arguments": dict(arguments)}


def _on_rejected(fact: Any) -> list[Change]:
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


def _on_resolved(fact: Any) -> list[Change]:
    ended = {"key": fact.key, "tool": fact.message.tool_name, "outcome": fact.outcome}
    return [{"change": "call_ended", **ended, "display": get_display(fact.message)}]


_OF_SESSION: Mapping[str, Callable[[Any], list[Change]]] = {
    "turn_replied": _on_replied,
    "call_opened": _on_opened,
    "arguments_rejected": _on_rejected,
    "call_resolved": _on_resolved,
}


def shorten_summary(summary: str) -> str:
    """Return a session's final message, cut to ``SUMMARY_CHARS`` characters."""
    return summary if len(summary) <= SUMMARY_CHARS else f"{summary[: SUMMARY_CHARS - 1]}…"


class TreeWatch:
    """Shows a tree's progress from its facts: as a picture if there is one, else with a line for each change.

    With a picture, only approvals and sessions that did not complete have lines.

    Args:
        say: Shows a line.
        view: The picture; None = nothing is drawn.
        known_seq: Number of the last fact of an earlier process; facts up to it have no line.
        failures: Whether each call that failed has a line.
    """

    def __init__(
        self,
        say: Say,
        view: LiveView | None = None,
        known_seq: int = 0,
        *,
        failures: bool = False,
    ) -> None:
        self.tree = LiveTree() if view is None else view.tree
        self._failures = CallFailures() if failures else None
        self._say = say
        self._view = view
        self._known_seq = known_seq
        self._changes = LiveChanges()

    def take(self, record: JournalRecord) -> None:
        """Take a fact in.

        Raises:
            JournalTooNew, JournalCorrupt: it is not a fact of this release.
        """
        self.tree.take(record)
        count_files(self.tree, record)
        # there are too many calls for lines, and their facts are too long to parse
        for change in () if record.session else self._changes.of(record):
            is_routine = change["change"] == "session_started" or change.get("status") == "completed"
            if record.seq > self._known_seq and not (is_routine and self._view is not None):
                self._say(self._format_line(change), FAILURE if _is_failure(change) else "")
        if self._failures is not None and record.session:
            self._tell_failure(record, self._failures)
        if record.seq == self._known_seq and self._view is not None:
            self._view.reset_pace()

    def _tell_failure(self, record: JournalRecord, failures: CallFailures) -> None:
        failed = failures.of(record)
        if failed is None or record.seq <= self._known_seq:
            return
        reason, message = failed
        if not message.is_error and record.session == MAIN and self._view is None:
            return  # Main's channel shows the command's own line where nothing is drawn
        self._say(f"{record.session}, {message.tool_name} failed: {reason}", FAILURE)

    def expect(self, files: int) -> None:
        """Say how many files there are."""
        self.tree.expected = files

    def amounts(self) -> tuple[int, int, int]:
        """Return how many sessions were started, how many have ended, and how many files are done."""
        return self.tree.total, self.tree.total - self.tree.live, self.tree.done

    def _format_line(self, change: Change) -> str:
        line = change_text(change) or ""
        session = self.tree.sessions.get(change["session"])
        if change["change"] != "session_ended" or session is None or session.kind is not SessionKind.WORKER:
            return line
        if self.tree.expected is None and not self.tree.done:  # nothing is counted here
            return line
        return f"{line}, {self.tree.done:,} of {self.tree.expected or 0:,} files"


def count_files(tree: LiveTree, record: JournalRecord) -> None:
    """Count the finished files that a Worker's result reports, as in a survey."""
    if record.session or read_kind(record.text) != "session_ended":
        return
    fact = read_fact(record.text)
    session, output = tree.sessions.get(fact.session), fact.result.output
    if session is None or session.kind is not SessionKind.WORKER or not isinstance(output, dict):
        return
    totals = output.get("totals")
    files = totals.get("files") if isinstance(totals, dict) else None
    if isinstance(files, int) and files > 0:
        tree.count(fact.session, files)
